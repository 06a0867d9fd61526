"""`bench size`: how many instances and GPUs a peak takes, what they should refuse, and what they cost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import polars as pl

from bench.analysis import OperatingPoint, is_machine, sized
from bench.cli.common import known_accelerators
from bench.cli.output import print_json, print_table
from bench.cli.sources import capacity_of, read_named, with_goodput
from bench.errors import BenchError, shown_share
from bench.published import accelerator_named
from bench.study import Decision, parse_slo
from bench.words.capacity import with_texts
from bench.words.fleet import UNKNOWN_GPUS, ends, little, meets, next_step, no_point

__all__ = ["run"]

_CHARTS = (".svg", ".png", ".json")


def run(options: SimpleNamespace) -> None:

    slos = [parse_slo(text) for text in options.slo]
    _refuse_contradictions(options)
    price = options.price_per_hour
    if price is None and options.accelerator is not None:
        price = accelerator_named(options.accelerator, known_accelerators(options.hardware)).price_per_hour
        if price is None:
            raise BenchError(f"--accelerator {options.accelerator} has no price here; give --price-per-hour.")
    measured: dict[str, Any] | None = None
    if options.usable_rps is not None:
        point, device, machine = _given(options), None, False
    else:
        runs, deployment = _runs(options)
        decision = Decision(slo=options.slo, failed_share=options.failed_share)
        points = capacity_of(runs, options.results or "results", decision)
        point, measured = _measured(runs, points, deployment)
        runs = runs.filter(runs["deployment"] == measured["deployment"])
        device = runs["device"][0]
        point = _with_gpus(point, options.gpus, measured["deployment"])
        machine = is_machine(runs.row(0, named=True))
        if options.accelerator is not None and machine:
            raise BenchError(
                f"--accelerator {options.accelerator}: the results are of an engine on a CPU, and a GPU's price is not theirs. Give "
                "--price-per-hour, of the machine."
            )
        if options.chart is not None:
            runs = with_goodput(runs, options.results or "results", slos)
            _draw(options, runs if options.gpus is None else runs.with_columns(gpus=0 if machine else options.gpus))
    fleet = {
        **sized(point, options.peak_rps, safety=options.safety, slos=slos, gpu_hour=price, token_price=options.api_price),
        "device": device,
    }
    if options.json:
        print_json({**fleet, "evidence": {"source": "measured", **with_texts(measured)} if measured else {"source": "given"}})
    else:
        _print(fleet, measured, machine=machine)


def _refuse_contradictions(options: SimpleNamespace) -> None:
    if options.usable_rps is not None and options.results is not None:
        raise BenchError("RESULTS and --usable-rps both say what one instance carries; give one of them.")
    if options.usable_rps is None:
        for name in ("c_max", "latency", "prompt_length", "output_length", "kv_tokens"):
            if getattr(options, name) is not None:
                lengths = " Traffic that was not measured: bench fleet." if name.endswith("length") else ""
                raise BenchError(f"--{name.replace('_', '-')} belongs to --usable-rps; from results it is read.{lengths}")
        if not options.slo:
            raise BenchError(
                "--slo is missing: from results, the operating point is the highest load that meets one, such as ttft_p99=2s."
            )
    elif options.workload is not None:
        raise BenchError("--workload chooses among results; it says nothing beside --usable-rps.")
    elif options.chart is not None:
        raise BenchError("--chart is drawn from measured curves; give RESULTS in place of --usable-rps.")
    if options.chart is not None and not options.chart.parent.is_dir():
        raise BenchError(f"--chart {options.chart}: there is no folder {options.chart.parent}.")
    if options.chart is not None and options.chart.suffix not in _CHARTS:
        raise BenchError(f"--chart {options.chart}: its name ends in {', '.join(_CHARTS[:2])} or {_CHARTS[2]}.")
    if options.api_price is not None and options.price_per_hour is None and options.accelerator is None:
        raise BenchError("--api-price needs what our own GPUs cost: --price-per-hour or --accelerator.")


def _given(options: SimpleNamespace) -> OperatingPoint:

    if None not in (options.c_max, options.prompt_length, options.output_length, options.kv_tokens):
        held = options.c_max * (options.prompt_length + options.output_length)
        if held > options.kv_tokens:
            raise BenchError(
                f"--c-max {options.c_max:g} requests of {options.prompt_length:g} + {options.output_length:g} tokens are {held:,.0f}, "
                f"more than --kv-tokens {options.kv_tokens:,}: they were never in flight at once."
            )

    return OperatingPoint(
        options.usable_rps,
        options.gpus or 1,
        c_max=options.c_max,
        latency_s=options.latency,
        prompt_tokens=options.prompt_length,
        output_tokens=options.output_length,
        kv_tokens=options.kv_tokens,
    )


def _runs(options: SimpleNamespace) -> tuple[pl.DataFrame, str | None]:
    """The rows of a workload, with all deployments, whose repeats tell of noise; and the deployment that is meant."""
    runs, deployment = read_named(options.results or "results")
    if options.workload is not None:
        if options.workload not in runs["workload"]:
            known = ", ".join(runs["workload"].unique(maintain_order=True))
            raise BenchError(f"--workload {options.workload}: the results have {known}.")
        runs = runs.filter(runs["workload"] == options.workload)
    return runs, deployment


def _measured(runs: pl.DataFrame, points: pl.DataFrame, deployment: str | None) -> tuple[OperatingPoint, dict[str, Any]]:

    points = points if deployment is None else points.filter(points["deployment"] == deployment)
    if points.height != 1:
        curves = ", ".join(f"{row['deployment']} with {row['workload']}" for row in points.iter_rows(named=True))
        raise BenchError(
            f"one curve is sized at a time; name it as RESULTS:DEPLOYMENT and with --workload. There are: {curves or 'none'}."
        )
    row = points.row(0, named=True)
    point = OperatingPoint.of(row, runs.filter(runs["deployment"] == row["deployment"]).row(0, named=True))
    if point is None:
        if row["basis"] == "burst" and row["c_max"] is not None:
            raise BenchError(
                f"{row['deployment']} with {row['workload']}: a burst does not show what an instance carries in the long run. "
                "Measure a closed or an open loop (`arrival: closed`, `poisson`), and size that."
            )
        raise BenchError(f"{row['deployment']} with {row['workload']}: {no_point(row)}. {next_step(row)}".rstrip())
    return point, row


def _with_gpus(point: OperatingPoint, given: int | None, deployment: str) -> OperatingPoint:
    """The point with the GPUs that are given, where the results do not say them.

    Raises:
        BenchError: they say others.
    """
    if given is not None and point.gpus not in (None, given):
        raise BenchError(f"--gpus {given}: an instance of {deployment} has {point.gpus}, as the results say; leave --gpus out.")
    return point if given is None else replace(point, gpus=given)


def _draw(options: SimpleNamespace, runs: pl.DataFrame) -> None:
    """The figure `fleet` of the curve."""

    from bench.figures import Results  # noqa: PLC0415
    from bench.figures.save import save_figure  # noqa: PLC0415

    decision = Decision(slo=options.slo, failed_share=options.failed_share, peak_rps=options.peak_rps, safety=options.safety)
    with TemporaryDirectory() as folder:  # a figure is several files; others beside the one that is wanted are not ours
        paths = save_figure("fleet", Results(runs, pl.DataFrame(), None, decision), Path(folder, "fleet"))
        options.chart.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(next(path for path in paths if path.suffix == options.chart.suffix), options.chart)


def _print(fleet: dict[str, Any], measured: dict[str, Any] | None, *, machine: bool) -> None:
    """Args: measured: the row of `operating_points` that was sized; None of one that was given."""

    if measured:
        print(f"{meets(measured)}\n")
    rows = [
        ["instances", f"{fleet['instances']:,}"],
        [f"{'machines' if machine else 'GPUs'}, with the safety factor {fleet['safety']:g}", _count(fleet["gpus"])],
        ["usable requests/s of an instance", f"{fleet['usable_rps']:.3g}"],
    ]
    if measured and measured["goodput_rps"] is not None:
        rows.append(["goodput of an instance there, requests/s", f"{measured['goodput_rps']:.3g}"])
    if measured:
        rows.append(["instances at 95 % confidence", ends(fleet["instances_least"], fleet["instances_most"])])
    rows.append(["load of the fleet at the peak (60–80 % is wanted)", shown_share(fleet["utilisation_at_peak"])])
    limit = fleet["limits"]
    if limit["queue"] is not None:
        rows += [
            ["longest queue of an instance", f"{limit['queue']:,}"],
            ["shed load from, and all at", f"{limit['shed_from']:,}, {limit['shed_at']:,}"],
        ]
    if limit["admission"] is not None:
        rows.append(["requests in flight to admit", f"{limit['admission']:,}"])
    if limit["input_tokens"] is not None:
        rows.append(["longest prompt to admit (tokens)", f"{limit['input_tokens']:,}"])
    if limit["kv_free_tokens"] is not None:
        rows.append(["10 to 15 % of the KV tokens", "{:,} to {:,}".format(*limit["kv_free_tokens"])])
    rows += [[_COSTS[key], f"{value:,.2f}"] for key, value in (fleet["cost"] or {}).items() if key in _COSTS]
    print_table(rows, head=False)
    if fleet["gpus"] is None:
        print(f"\n{UNKNOWN_GPUS}")
    if fleet["consistent"] is False:
        print(f"\n{little(fleet['little'])}")


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


_COSTS = {
    "hour": "USD an hour",
    "month": "USD a month",
    "worth_of_tokens_an_hour_at_peak": "USD an hour that the API would take at the peak",
    "million_output_tokens_at_peak": "USD a million output tokens, at the peak all day",
    "break_even_million_tokens_a_month": "million output tokens a month to break even with the API",
}
