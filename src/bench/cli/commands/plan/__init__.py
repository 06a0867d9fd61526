"""`bench plan`: what a model needs of an accelerator, and what it could hold, before anything is spent (`planned`); and how many GPUs a
rate of requests takes (`needed`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from bench.cli.entry import command
from bench.cli.options import Json, at_least_one, limits, option, percent, positive

_RATE = "For a rate of requests"
# As the study's models have them: reading those would cost the help half a second.
Weights = Literal["bfloat16", "float16", "float32", "fp8", "int8", "int4"]
Kv = Literal["float32", "bfloat16", "float16", "fp8"]


@command(
    "bench plan",
    "bench plan --model llama-3.1-8b --concurrency 64",
    "bench plan --model llama-3.1-70b-fp8 --accelerator h100-nvl --tensor-parallel 2 --prompt-length 1000 --output-length 128",
    "bench plan --model llama-3.3-70b --accelerator h100 --request-rate 50 --slo tpot_p95=50ms --prompt-length p50=1500,p95=6000",
)
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Weights, activations, overhead and KV cache term by term, the KV capacity in tokens, the concurrency at which it is full, the
    fewest GPUs, and the ceilings that bandwidth and FLOP/s set. Without --model, every model of the catalogue, by the names that
    `models.NAME.catalogue` of a study takes; without --accelerator, every accelerator; without both, the catalogue, and the fewest GPUs
    of each for each. What each number means: docs/explanation/memory.md.

    With --request-rate, the instances and GPUs that it takes within --slo, at those ceilings and at a share of them that was measured.
    """

    model: Annotated[
        str | None,
        option(
            "MODEL",
            "A model of the catalogue, a config.json, a folder with one, or an id on the hub, such as Qwen/Qwen3-8B.",
            default="every model of the catalogue",
        ),
    ] = None
    parameters: Annotated[
        int | None,
        option("N", "How many weights it has, where --model is a config.json without its *.safetensors.", parser=at_least_one),
    ] = None
    accelerator: Annotated[str | None, option("NAME", "A GPU that is known here or in --hardware, such as h100.")] = None
    prompt_length: Annotated[str, option("TOKENS", "Prompt tokens of a request; or percentiles, as in p50=800,p95=4000.")] = (
        "128"
    )
    output_length: Annotated[str, option("TOKENS", "Output tokens of a request, likewise.")] = "512"
    concurrency: Annotated[int, option("N", "Requests to hold at once, for the fewest GPUs.", parser=at_least_one)] = 1
    dtype: Annotated[
        Weights,
        option(
            None,
            "Type of the weights; int8 and int4 are computed in 16 bit. A quantised checkpoint keeps its own.",
        ),
    ] = "bfloat16"
    kv_dtype: Annotated[Kv | None, option(None, "Type of the KV cache.", default="16 bit, or 32 with --dtype float32")] = None
    gpu_memory_utilization: Annotated[
        float, option("SHARE", "Share of a GPU's memory that the engine may take, above 0 and at most 1.")
    ] = 0.9
    tensor_parallel: Annotated[
        int | None,
        option("N", "GPUs that share each layer.", parser=at_least_one, default="1; with --request-rate each size of up to 8"),
    ] = None
    max_num_seqs: Annotated[
        int,
        option(
            "N",
            "Most sequences in one step: the sampler keeps memory for them, and no more requests run at once.",
            parser=at_least_one,
        ),
    ] = 256
    hardware: Annotated[
        Path | None,
        option(
            "FILE",
            "A YAML file of accelerators, which add to those known here or replace their values: `h100: {price_per_hour: 2.5}`.",
        ),
    ] = None
    request_rate: Annotated[
        float | None, option("N", "Requests/s to serve: how many instances and GPUs take that?", _RATE, parser=positive)
    ] = None
    slo: Annotated[list[str] | None, limits(_RATE)] = None
    efficiency: Annotated[
        float | None,
        option(
            "PERCENT", "Share of the ceilings that a server reaches.", _RATE, parser=percent, default="57, measured: docs/h200"
        ),
    ] = None
    json: Json = False

    def run(self) -> None:
        """Print the plan of each model on each accelerator that is asked for."""
        from bench.cli.commands.plan.planned import plan

        plan(self)
