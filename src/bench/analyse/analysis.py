"""The analysis of a study: made of its summary table, written as tables, and read again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from bench.analyse.causes import causes_table, read_causes
from bench.analyse.comparisons import effects_table, read_comparisons, sides
from bench.analyse.findings import Findings, Server, find
from bench.analysis import Bottleneck, Comparison, bottleneck, compare_with_baseline, operating_points, regions, saturation
from bench.errors import BenchError
from bench.published import Accelerator
from bench.records.columns import schema_of
from bench.records.files import UNREADABLE, plain, read_object, typed
from bench.study import Decision, questions

__all__ = ["Analysis", "analyse", "curves_of", "plain_of", "read_analysis", "write_analysis"]

_PARQUET = ("capacity", "saturation", "regions", "comparisons", "causes")
_COMPARED, _FINDINGS = "comparisons.json", "findings.json"
MEAN = "throughput_tokens_per_s"  # the throughput by which saturation is told
_THROUGHPUTS = ("throughput_peak_tokens_per_s", MEAN)
_CURVE = ["deployment", "workload"]
R = TypeVar("R")


@dataclass(frozen=True)
class Analysis:
    """What the runs of a study show.

    Attributes:
        capacity, saturation, regions: tables, whose columns docs/reference/analysis.md lists.
        comparisons: of each deployment that shares a load with the study's baseline, in the study's order.
        causes: of each curve with a capacity by SLOs, by deployment and workload. findings: what the report says beyond that.
    """

    capacity: pl.DataFrame
    saturation: pl.DataFrame
    regions: pl.DataFrame
    comparisons: dict[str, Comparison]
    causes: dict[tuple[str, str], Bottleneck]
    findings: Findings
    baseline: str | None = None

    @property
    def saturates(self) -> pl.DataFrame:
        """`saturation` with the turning points of the mean throughput."""
        return self.saturation.join(
            self.regions.filter(metric=MEAN).drop("metric"), on=_CURVE, how="left", maintain_order="left"
        )


def analyse(
    runs: pl.DataFrame,
    decision: Decision,
    device: Accelerator | None = None,
    servers: Mapping[str, Server] | None = None,
) -> Analysis:
    """What the runs show, all of it that figures and the report draw and write.

    Args:
        runs: rows of the summary table, of steady windows where loads go on (`of_windows`). decision: what is to be decided.
        device: that they ran on; None where it is not known. servers: by deployment, for the ceilings of speed.
    """
    curves, slos = curves_of(runs), decision.slos
    judged = curves if slos else curves.filter(pl.col("axis") != "concurrency")
    capacity = operating_points(judged, slos, decision.failed_share)
    points = capacity if slos else capacity.clear()
    turns = {column: regions(runs, column) for column in _THROUGHPUTS}
    saturates = saturation(runs, turns[MEAN])
    of_curve = {(str(name), str(workload)): rows for (name, workload), rows in curves.group_by(*_CURVE)}
    causes = {
        (point["deployment"], point["workload"]): bottleneck(of_curve[point["deployment"], point["workload"]], point, slos)
        for point in points.iter_rows(named=True)
    }
    return Analysis(
        capacity=capacity,
        saturation=saturates.select(*schema_of("saturation")),
        regions=pl.concat(list(turns.values())),
        comparisons=compare_with_baseline(runs),
        causes=causes,
        findings=find(
            *(runs, decision, device, servers or {}),
            plain=plain_of(runs),
            curves=curves,
            points=points,
            saturation=saturates,
            causes=causes,
        ),
        baseline=next(iter(runs.filter("baseline")["deployment"]), None),
    )


def plain_of(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs whose load is what is asked about, as `bench.study.questions.plain` has them."""
    rows = questions.plain(runs.select(*_CURVE, "family", "arrival", *questions.CROSSED, "model", "tensor_parallel").to_dicts())
    kept = {tuple(row[key] for key in _CURVE) for row in rows}
    return runs.filter([at in kept for at in runs.select(_CURVE).iter_rows()])


def curves_of(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs from which an instance's capacity may be read: those of `plain_of` at two loads or more."""
    return plain_of(runs).filter(pl.col("level").n_unique().over(*_CURVE) > 1)


def write_analysis(found: Analysis, folder: Path) -> None:
    """Write the tables into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = {
        "capacity": found.capacity,
        "saturation": found.saturation,
        "regions": found.regions,
        "comparisons": effects_table(found.comparisons, found.baseline),
        "causes": causes_table(found.causes),
    }
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    _write(folder / _COMPARED, {"baseline": found.baseline, "deployments": sides(found.comparisons)})
    _write(folder / _FINDINGS, plain(found.findings))


def read_analysis(folder: Path) -> Analysis:
    """The tables in `folder`.

    Raises:
        BenchError: one is missing, or not what `write_analysis` writes now.
    """
    frames = {name: _table(folder, name) for name in _PARQUET}
    compared = _read(folder / _COMPARED, dict)
    return Analysis(
        capacity=frames["capacity"],
        saturation=frames["saturation"],
        regions=frames["regions"],
        comparisons=_read(folder / _COMPARED, lambda content: read_comparisons(frames["comparisons"], content["deployments"])),
        causes=read_causes(frames["causes"]),
        findings=_read(folder / _FINDINGS, lambda content: typed(Findings, content, most=math.inf)),
        baseline=compared["baseline"],
    )


_REMEDY = "Make it again from the summary: `make figures`."


def _table(folder: Path, name: str) -> pl.DataFrame:
    path = folder / f"{name}.parquet"
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BenchError(f"{path}: is no table ({str(error).splitlines()[0]}). {_REMEDY}") from None
    if frame.schema != (schema := schema_of(name)):
        other = ", ".join(sorted({*frame.columns} ^ {*schema})) or "types"
        raise BenchError(f"{path}: another version wrote it, with other columns ({other}). {_REMEDY}")
    return frame


def _read(path: Path, of: Callable[[dict[str, Any]], R]) -> R:
    """What `of` makes of the object in a file."""
    try:
        return of(read_object(path, constants=True))
    except (*UNREADABLE, KeyError) as error:
        raise BenchError(f"{path}: not a valid {path.name} ({error}). {_REMEDY}") from None


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
