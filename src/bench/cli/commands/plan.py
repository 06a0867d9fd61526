"""`bench plan`."""

from types import SimpleNamespace
from typing import Annotated, get_args

import typer

from bench.cli import completion, defaults
from bench.cli.commands.shared import (
    PLAN,
    Accelerator,
    FormerDevice,
    GpuMemoryUtilization,
    Hardware,
    Json,
    MaxNumSeqs,
    TensorParallel,
    at_least_one,
    command,
)

_SHORT = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_WEIGHTS, _KV = get_args(defaults.WeightDtype), get_args(defaults.KvDtype)


def _dtype(text: str, known: tuple[str, ...]) -> str:
    """`fp16`, as documents write it, is `float16`, as engines do."""
    name = _SHORT.get(text.lower(), text.lower())
    if name not in known:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}.")
    return name


@command(
    PLAN,
    "bench plan",
    "bench plan --model llama-3.1-8b --concurrency 64",
    "bench plan --model llama-3.1-70b-fp8 --accelerator h100-nvl --tensor-parallel 2 --prompt-length 1000 --output-length 128",
)
def plan(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model of the catalogue (`bench models`), a config.json, or a folder with one.",
            show_default="every model of the catalogue",
            autocompletion=completion.models,
        ),
    ] = None,
    accelerator: Accelerator = None,
    prompt_length: Annotated[
        int, typer.Option(metavar="TOKENS", parser=at_least_one, help="Prompt tokens of a request.")
    ] = 128,
    output_length: Annotated[
        int, typer.Option(metavar="TOKENS", parser=at_least_one, help="Output tokens of a request.")
    ] = 512,
    concurrency: Annotated[
        int, typer.Option(metavar="N", parser=at_least_one, help="Requests to hold at once, for the fewest GPUs.")
    ] = 1,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            parser=lambda text: _dtype(text, _WEIGHTS),
            autocompletion=lambda incomplete: [name for name in _WEIGHTS if name.startswith(incomplete)],
            help=f"Of the weights: {', '.join(_WEIGHTS)}. int8 and int4 store weights alone, computed in 16 bit; a quantised "
            "checkpoint keeps its own.",
        ),
    ] = "bfloat16",
    kv_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE",
            parser=lambda text: _dtype(text, _KV),
            autocompletion=lambda incomplete: [name for name in _KV if name.startswith(incomplete)],
            help=f"Of the KV cache: {', '.join(_KV)}.",
            show_default="16 bit, or 32 with --dtype float32",
        ),
    ] = None,
    gpu_memory_utilization: GpuMemoryUtilization = defaults.GPU_MEMORY_UTILIZATION,
    tensor_parallel: TensorParallel = defaults.TENSOR_PARALLEL,
    max_num_seqs: MaxNumSeqs = defaults.MAX_NUM_SEQS,
    hardware: Hardware = None,
    json: Json = False,
    device: FormerDevice = None,
) -> None:
    """Weigh a model on a GPU: what fits, the load that it could hold, and the ceilings of its speed.

    Weights, activations, overhead and KV cache term by term, the KV capacity in tokens, the concurrency at which it is full, the fewest
    GPUs, and the ceilings that bandwidth and FLOP/s set. Without --model, every model of the catalogue; without --accelerator, every
    accelerator; without both, the fewest GPUs of each for each. What each number means: docs/explanation/memory.md.
    """
    options = SimpleNamespace(**locals())
    from bench.cli.plan import run

    run(options)
