"""The analysis of a study: made of its summary table, written as tables, and read again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.analyse.comparisons import effects_table, read_comparisons, sides
from bench.analysis import Comparison, compare_with_baseline, operating_points, regions, saturation
from bench.errors import BenchError
from bench.records.columns import schema_of
from bench.records.files import UNREADABLE, read_object
from bench.study import Decision
from bench.study.curves import CROSSED, plain

__all__ = ["Analysis", "analyse", "curves_of", "plain_of", "read_analysis", "write_analysis"]

_PARQUET = ("capacity", "saturation", "regions", "comparisons")
_COMPARED = "comparisons.json"
MEAN = "throughput_tokens_per_s"  # the throughput by which saturation is told
_THROUGHPUTS = ("throughput_peak_tokens_per_s", MEAN)
_CURVE = ["deployment", "workload"]


@dataclass(frozen=True)
class Analysis:
    """What the runs of a study show.

    Attributes:
        capacity, saturation, regions: tables, whose columns docs/reference/analysis.md lists.
        comparisons: of each deployment that shares a load with the study's baseline, in the study's order.
    """

    capacity: pl.DataFrame
    saturation: pl.DataFrame
    regions: pl.DataFrame
    comparisons: dict[str, Comparison]
    baseline: str | None = None

    @property
    def saturates(self) -> pl.DataFrame:
        """`saturation` with the turning points of the mean throughput."""
        return self.saturation.join(
            self.regions.filter(metric=MEAN).drop("metric"), on=_CURVE, how="left", maintain_order="left"
        )


def analyse(runs: pl.DataFrame, decision: Decision) -> Analysis:
    """What the runs show, all of it that figures and the report draw and write.

    Args:
        runs: rows of the summary table, of steady windows where loads go on (`of_windows`). decision: what is to be decided.
    """
    curves, slos = curves_of(runs), decision.slos
    judged = curves if slos else curves.filter(pl.col("axis") != "concurrency")
    found = {column: regions(runs, column) for column in _THROUGHPUTS}
    return Analysis(
        capacity=operating_points(judged, slos, decision.failed_share),
        saturation=saturation(runs, found[MEAN]).select(*schema_of("saturation")),
        regions=pl.concat(list(found.values())),
        comparisons=compare_with_baseline(runs),
        baseline=next(iter(runs.filter("baseline")["deployment"]), None),
    )


def plain_of(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs whose load is what is asked about, as `bench.study.curves.plain` has them."""
    rows = plain(runs.select(*_CURVE, "family", "arrival", *CROSSED, "model", "tensor_parallel").to_dicts())
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
    }
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    _write(folder / _COMPARED, {"baseline": found.baseline, "deployments": sides(found.comparisons)})


def read_analysis(folder: Path) -> Analysis:
    """The tables in `folder`.

    Raises:
        BenchError: one is missing, or not what `write_analysis` writes now.
    """
    frames = {name: _table(folder, name) for name in _PARQUET}
    try:
        compared = read_object(folder / _COMPARED, constants=True)
        comparisons = read_comparisons(frames.pop("comparisons"), compared["deployments"])
        return Analysis(**frames, comparisons=comparisons, baseline=compared["baseline"])
    except (*UNREADABLE, KeyError) as error:
        raise BenchError(f"{folder}: not a valid {_COMPARED} ({error}). {_REMEDY}") from None


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


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
