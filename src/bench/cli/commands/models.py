"""`bench models`."""

from types import SimpleNamespace
from typing import Annotated

import typer

from bench.cli import defaults
from bench.cli.commands.shared import PLAN, GpuMemoryUtilization, Json, MaxNumSeqs, TensorParallel, at_least_one, command


@command(
    PLAN,
    "bench models",
    "bench models --gpu-memory 80GiB --tokens 2048",
    "bench models --gpu-memory 93.6GiB --max-num-seqs 1024 --tokens 640 --json",
)
def models(
    gpu_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of one GPU, such as 80GiB: adds the tokens that its KV cache would hold."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=at_least_one,
            help="Prompt + output of a request. KV bytes a token are those of such a sequence, fewer where layers have a window; with "
            "--gpu-memory, adds the number of requests at which the KV cache is full.",
        ),
    ] = None,
    gpu_memory_utilization: GpuMemoryUtilization = defaults.GPU_MEMORY_UTILIZATION,
    tensor_parallel: TensorParallel = defaults.TENSOR_PARALLEL,
    max_num_seqs: MaxNumSeqs = defaults.MAX_NUM_SEQS,
    json: Json = False,
) -> None:
    """List the model catalogue, and what a GPU would hold of each model.

    `models.NAME.catalogue` of a study takes these names. Parameters, KV bytes a token and weights are computed from each model's
    published config.json, for 16-bit weights (a quantised checkpoint keeps its own) and a 16-bit KV cache.
    """
    options = SimpleNamespace(**locals())
    from bench.cli.models import run

    run(options)
