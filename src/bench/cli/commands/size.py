"""`bench size`."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from bench.cli.commands.shared import PLAN, Accelerator, FormerDevice, Hardware, Json, at_least_one, command, number, positive

_GIVEN = "Given numbers, in place of RESULTS"


def _share(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r} is not between 0 and 1.")
    return value


def _safety(text: str) -> float:
    value = number(text)
    if not 1 <= value < math.inf:
        raise typer.BadParameter(f"{text!r} is not a number of 1 or more; 1 means no spare GPU.")
    return value


@command(
    PLAN,
    "bench size results:tiny-mha --slo ttft_p99=2s --peak-rps 100 --price-per-hour 1.50",
    "bench size results --slo ttft_p95=1s --slo tpot_p95=40ms --peak-rps 1000 --chart fleet.svg",
    "bench size --usable-rps 12 --gpus 4 --safety 1.3 --peak-rps 120 --accelerator h100",
)
def size(
    peak_rps: Annotated[float, typer.Option(metavar="N", parser=positive, help="Requests/s of the busiest moment.")],
    results: Annotated[
        str | None,
        typer.Argument(
            metavar="[RESULTS]",
            help="A folder with results, a summary.parquet, or one of them with :DEPLOYMENT.",
            show_default="the study in this folder",
        ),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT", help="Such as ttft_p99=2s or tpot_p95=50ms. Repeatable; all have to be met."),
    ] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="The workload, where RESULTS has several.")] = None,
    failed_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            parser=_share,
            help="Largest share of requests that may fail at a load that an instance carries, 0 to 1.",
        ),
    ] = 0.01,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            "--tensor-parallel",
            metavar="N",
            parser=at_least_one,
            help="GPUs of an instance: tensor × pipeline × data parallelism.",
            show_default="that of RESULTS, or 1",
        ),
    ] = None,
    safety: Annotated[
        float, typer.Option(metavar="FACTOR", parser=_safety, help="GPUs as a multiple of what the peak takes.")
    ] = 1.3,
    accelerator: Accelerator = None,
    price_per_hour: Annotated[
        float | None, typer.Option(metavar="USD", parser=positive, help="Of one GPU, in place of the accelerator's price.")
    ] = None,
    api_price: Annotated[
        float | None,
        typer.Option(
            metavar="USD", parser=positive, help="Of 10⁶ output tokens elsewhere, for the point where costs break even."
        ),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw how fleet and capacity move with the SLO and the peak (.svg, .png or .json)."),
    ] = None,
    hardware: Hardware = None,
    json: Json = False,
    usable_rps: Annotated[
        float | None,
        typer.Option(metavar="N", parser=positive, help="Requests/s that one instance carries.", rich_help_panel=_GIVEN),
    ] = None,
    c_max: Annotated[
        float | None, typer.Option(metavar="N", parser=positive, help="Requests in flight there.", rich_help_panel=_GIVEN)
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", parser=positive, help="Mean E2E latency there, for Little's law.", rich_help_panel=_GIVEN
        ),
    ] = None,
    prompt_length: Annotated[
        float | None, typer.Option(metavar="TOKENS", parser=positive, help="Mean of a prompt.", rich_help_panel=_GIVEN)
    ] = None,
    output_length: Annotated[
        float | None,
        typer.Option(metavar="TOKENS", parser=positive, help="Mean of an output, for costs.", rich_help_panel=_GIVEN),
    ] = None,
    kv_tokens: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", parser=at_least_one, help="KV capacity of an instance.", rich_help_panel=_GIVEN),
    ] = None,
    device: FormerDevice = None,
) -> None:
    """Size a fleet: instances, GPUs, admission limits and cost, from results or from numbers.

    The load that one instance carries while it meets its SLOs is read from RESULTS, or given by --usable-rps.
    """
    options = SimpleNamespace(**locals())
    options.slo = slo or []
    from bench.cli.size import run

    run(options)
