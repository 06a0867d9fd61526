"""A fleet from numbers, and from what a study measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.cli.commands.fleet import Fleet
from bench.cli.options import refuse_strange_classes
from bench.cli.output import print_json, print_table
from bench.errors import BenchError
from bench.findings.capacity.words import limit, sustains
from bench.findings.fleet import UNKNOWN_GPUS, little, meets, next_step, no_point, sized_rows
from bench.findings.sizing import OperatingPoint, is_machine, sized
from bench.results import Results
from bench.runs.latencies import class_names
from bench.study.slo import Slo


def from_numbers(asked: Fleet, slos: Sequence[Slo]) -> None:
    """Size it by `--sustained-rps`."""
    given = asked.further
    point = OperatingPoint(
        asked.sustained_rps or 0.0,
        asked.gpus or 1,
        c_max=given.limit,
        latency_s=given.latency_s,
        prompt_tokens=asked.prompt_length,
        output_tokens=asked.output_length,
        kv_tokens=given.kv_tokens,
    )
    _print(asked, slos, point, {}, {"device": None, "gpus": point.gpus})


def from_results(asked: Fleet, slos: Sequence[Slo]) -> None:
    """Size it by the operating point of one measured curve."""
    found = Results.open(asked.results or "results")
    if asked.workload is not None:
        if asked.workload not in found.runs["workload"]:
            known = ", ".join(found.runs["workload"].unique(maintain_order=True))
            raise BenchError(f"--workload {asked.workload}: neither a file nor a workload of the results, which have {known}.")
        found = replace(found, runs=found.runs.filter(found.runs["workload"] == asked.workload))
    classes = dict.fromkeys(name for text in found.own["classes"].unique(maintain_order=True) for name in class_names(text))
    refuse_strange_classes(slos, list(classes), "these runs do")  # without its limit a rate's curve would be sized by none
    failed = 0.01 if asked.further.failed_share is None else asked.further.failed_share
    points = found.capacity(asked.slo or [], failed)  # of all, whose repeats tell of noise
    points = points.filter(points["deployment"].is_in(found.own["deployment"].unique()))
    if points.height != 1:
        curves = ", ".join(f"{row['deployment']} with {row['workload']}" for row in points.iter_rows(named=True))
        raise BenchError(
            f"one curve is sized at a time; name it as RESULTS:DEPLOYMENT and with --workload. There are: {curves or 'none'}."
        )
    row = points.row(0, named=True)
    run = found.runs.filter(found.runs["deployment"] == row["deployment"]).row(0, named=True)
    point, curve = OperatingPoint.of(row, run), f"{row['deployment']} with {row['workload']}"
    if point is None and row["basis"] == "burst" and row["c_max"] is not None:
        raise BenchError(
            f"{curve}: a burst does not show what an instance sustains in the long run. Measure a closed or an open loop "
            "(`arrival: closed`, `poisson`), and size that."
        )
    if point is None:
        raise BenchError(f"{curve}: {no_point(row)}. {next_step(row)}".rstrip())
    if asked.gpus is not None and point.gpus not in (None, asked.gpus):
        raise BenchError(
            f"--gpus {asked.gpus}: an instance of {row['deployment']} has {point.gpus}, as the results say; leave --gpus out."
        )
    _print(asked, slos, replace(point, gpus=point.gpus or asked.gpus), row, run)


def _print(
    asked: Fleet, slos: Sequence[Slo], point: OperatingPoint, measured: Mapping[str, Any], run: Mapping[str, Any]
) -> None:
    """Args: measured: row of `operating_points`, empty of numbers. run: a row of its curve."""
    if asked.api_price is not None and asked.price_per_hour is None:
        raise BenchError("--api-price needs what our own GPUs cost: --price-per-hour.")
    prices = {"gpu_hour": asked.price_per_hour, "token_price": asked.api_price}
    found = {**sized(point, asked.peak_rps or 0.0, safety=asked.safety or 1.3, slos=slos, **prices), "device": run["device"]}
    if asked.json:
        said = {"sustains": sustains(measured), "limit": limit(measured)} if measured else {}
        evidence = {"source": "measured" if measured else "given", **said, **measured}
        print_json({**found, "evidence": evidence})
        return
    if measured:
        print(f"{meets(measured)}\n")
    print_table(sized_rows(found, measured, "machines" if is_machine(run) else "GPUs"))
    if found["gpus"] is None:
        print(f"\n{UNKNOWN_GPUS}")
    if found["consistent"] is False:
        print(f"\n{little(found['little'])}")
