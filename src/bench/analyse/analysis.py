"""The analysis of a study: made of its summary table, written as tables, and read again."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from bench.analyse.causes import causes_table, read_causes
from bench.analyse.comparisons import effects_table, read_comparisons, sides
from bench.analyse.findings import Findings, Server, find
from bench.analysis import Bottleneck, Comparison, bottleneck, compare_with_baseline, operating_points, saturation
from bench.axes import HELD
from bench.errors import BenchError
from bench.models.accelerators import Accelerator
from bench.predict.relief_record import CurveRelief
from bench.runs.columns import schema_of
from bench.runs.files import UNREADABLE, plain, read_object, typed, write_object
from bench.servers.settings import settings_in
from bench.study import questions
from bench.study.decision import Decision

_COMPARED, _FINDINGS = "comparisons.json", "findings.json"
_CURVE = ["deployment", "workload"]
R = TypeVar("R")


class Analysis(ABC):
    """What the runs of a study show. Each part is worked out, or read, when it is asked for."""

    @property
    @abstractmethod
    def capacity(self) -> pl.DataFrame:
        """What each curve sustains; columns: docs/reference/analysis.md, as for the other tables."""

    @property
    @abstractmethod
    def saturation(self) -> pl.DataFrame:
        """Where each curve's KV cache is full, and where its throughput turns."""

    @property
    @abstractmethod
    def comparisons(self) -> dict[str, Comparison]:
        """Each deployment that shares a load with the study's baseline, compared with it, in the study's order."""

    @property
    @abstractmethod
    def causes(self) -> dict[tuple[str, str], Bottleneck]:
        """Why each curve with a capacity by SLOs sustains no more, by deployment and workload."""

    @property
    @abstractmethod
    def findings(self) -> Findings:
        """What the report says beyond these tables."""


@dataclass(frozen=True, eq=False)
class _Made(Analysis):
    runs: pl.DataFrame
    decision: Decision
    device: Accelerator | None
    servers: Mapping[str, Server]
    reliefs: Mapping[tuple[str, str], CurveRelief]

    @cached_property
    def curves(self) -> pl.DataFrame:
        return curves_of(self.runs)

    @cached_property
    def capacity(self) -> pl.DataFrame:
        judged = self.runs if self.decision.slo else self.runs.filter(~pl.col("axis").is_in(HELD))
        return operating_points(judged, self.decision.slos, self.decision.failed_share)

    @cached_property
    def saturation(self) -> pl.DataFrame:
        return saturation(self.runs)

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        return compare_with_baseline(self.runs)

    @cached_property
    def causes(self) -> dict[tuple[str, str], Bottleneck]:
        return causes_of(self, self.runs, self.decision, self.reliefs)

    @cached_property
    def findings(self) -> Findings:
        return findings_of(self, self.runs, self.decision, self.device, self.servers)


@dataclass(frozen=True, eq=False)
class _Read(Analysis):
    """The analysis that `write_analysis` wrote into `folder`."""

    folder: Path

    @cached_property
    def capacity(self) -> pl.DataFrame:
        return _table(self.folder, "capacity")

    @cached_property
    def saturation(self) -> pl.DataFrame:
        return _table(self.folder, "saturation")

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        effects = _table(self.folder, "comparisons")
        return _read(self.folder / _COMPARED, lambda content: read_comparisons(effects, content))

    @cached_property
    def causes(self) -> dict[tuple[str, str], Bottleneck]:
        return read_causes(_table(self.folder, "causes"))

    @cached_property
    def findings(self) -> Findings:
        return _read(self.folder / _FINDINGS, lambda content: typed(Findings, content, most=math.inf))


def analyse(
    runs: pl.DataFrame,
    decision: Decision,
    device: Accelerator | None = None,
    servers: Mapping[str, Server] | None = None,
    reliefs: Mapping[tuple[str, str], CurveRelief] | None = None,
) -> Analysis:
    """What the runs show, all of it that figures and the report draw and write.

    Args:
        runs: rows of the summary table, of steady windows where loads go on (`of_windows`). decision: what is to be decided.
        device: that they ran on; None where it is not known. servers: by deployment, for the ceilings of speed.
        reliefs: of curves that were replayed, by deployment and workload.
    """
    return _Made(runs, decision, device, servers or {}, reliefs or {})


def causes_of(
    tables: Analysis, runs: pl.DataFrame, decision: Decision, reliefs: Mapping[tuple[str, str], CurveRelief]
) -> dict[tuple[str, str], Bottleneck]:
    """Why each curve with a capacity by SLOs sustains no more, by deployment and workload."""
    curves = curves_of(runs)
    of_curve = {(str(name), str(workload)): rows for (name, workload), rows in curves.group_by(*_CURVE)}
    known = _points(tables.capacity, curves, decision)
    points = {(point["deployment"], point["workload"]): point for point in known.iter_rows(named=True)}
    return {curve: bottleneck(of_curve[curve], point, decision.slos, reliefs.get(curve)) for curve, point in points.items()}


def findings_of(
    tables: Analysis,
    runs: pl.DataFrame,
    decision: Decision,
    device: Accelerator | None = None,
    servers: Mapping[str, Server] | None = None,
) -> Findings:
    """What the report says beyond the tables of the same runs, which are made for the same SLOs.

    The other arguments are as of `analyse`.
    """
    curves = curves_of(runs)
    return find(
        *(runs, decision, device, servers or {}),
        plain=plain_of(runs),
        curves=curves,
        points=_points(tables.capacity, curves, decision),
        saturation=tables.saturation,
        causes=tables.causes,
    )


def _points(capacity: pl.DataFrame, curves: pl.DataFrame, decision: Decision) -> pl.DataFrame:
    """The capacities by SLOs of the curves from which one may be read."""
    known = capacity.filter(pl.col("slos").list.len() > 0) if decision.slo else capacity.clear()
    return known.join(curves, on=_CURVE, how="semi", maintain_order="left")


def read_analysis(folder: Path) -> Analysis:
    """The tables in `folder`. Each is read when it is asked for; a BenchError tells one that is missing, or of another version."""
    return _Read(folder)


def write_analysis(found: Analysis, folder: Path) -> None:
    """Write the tables, the causes and the findings into `folder`."""
    write_tables(found, folder)
    write_causes(found.causes, folder)
    write_findings(found.findings, folder)


def write_findings(found: Findings, folder: Path) -> None:
    """Write `findings.json` into `folder`."""
    write_object(plain(found), folder / _FINDINGS)


def write_causes(found: Mapping[tuple[str, str], Bottleneck], folder: Path) -> None:
    """Write `causes.parquet` into `folder`."""
    causes_table(found).write_parquet(folder / "causes.parquet")


def write_tables(found: Analysis, folder: Path) -> None:
    """Write the tables into `folder`: what figures are drawn from."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = {
        "capacity": found.capacity,
        "saturation": found.saturation,
        "comparisons": effects_table(found.comparisons),
    }
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    write_object(sides(found.comparisons), folder / _COMPARED)


def plain_of(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs that ask about load, as `bench.study.questions.plain` has them."""
    asked = dict.fromkeys((*_CURVE, "family", "arrival", *questions.CROSSED, "model", *settings_in(runs.columns)))
    rows = questions.plain(runs.select(*asked).to_dicts())
    kept = {tuple(row[key] for key in _CURVE) for row in rows}
    return runs.filter([at in kept for at in runs.select(_CURVE).iter_rows()])


def curves_of(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs from which an instance's capacity may be read: those of `plain_of` at two loads or more."""
    return plain_of(runs).filter(pl.col("level").n_unique().over(*_CURVE) > 1)


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
    try:
        return of(read_object(path, constants=True))
    except (*UNREADABLE, KeyError) as error:
        raise BenchError(f"{path}: not a valid {path.name} ({error}). {_REMEDY}") from None
