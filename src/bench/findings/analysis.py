"""The analysis of a study: made of its summary table, written as tables, and read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl

from bench.axes import HELD
from bench.errors import BenchError
from bench.findings.advice import advice
from bench.findings.capacity.points import operating_points
from bench.findings.causes import Bottleneck, bottleneck
from bench.findings.ceilings import Ceiling, Server, ceilings
from bench.findings.comparison.compare import Comparison, compare_with_baseline
from bench.findings.factors import Decided, decided
from bench.findings.lengths import LengthCost, StreamingGain, length_costs, streaming_gains
from bench.findings.saturation import saturation
from bench.findings.settings import SettingGain, setting_gains
from bench.findings.workers import Efficiency, efficiencies
from bench.models.catalogue import Accelerator
from bench.predict.calibration import CurveRelief
from bench.runs.columns import schema_of
from bench.runs.files import read, read_as, typed, write_object, write_record
from bench.servers.settings import settings_in
from bench.study import questions
from bench.study.decision import Decision
from bench.workloads.workload import ALIKE

TABLES = ("capacity", "saturation", "comparisons")  # what figures are drawn from
FINDINGS = ("causes", "findings")  # what the report says beyond them
_CURVE = ["deployment", "workload"]
_ASKED = ("family", "workload", "model", "engine", "stream", "baseline", *ALIKE)
_REMEDY = "Make it again from the summary: `make figures`."
Curve = tuple[str, str]
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the report says beyond tables.

    Attributes:
        factors, lengths, streaming, settings: what answers those questions; empty where the runs do not ask them.
        efficiencies: of each fleet that was measured beside one of its replicas.
    """

    advice: tuple[str, ...]
    ceilings: tuple[Ceiling, ...]
    factors: tuple[Decided, ...]
    lengths: tuple[LengthCost, ...]
    streaming: tuple[StreamingGain, ...]
    settings: tuple[SettingGain, ...]
    efficiencies: tuple[Efficiency, ...] = ()


def asked_of(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """The runs by what tells which questions they ask, for the conditions in `bench.study.questions`."""
    return runs.select(*dict.fromkeys((*_ASKED, *settings_in(runs.columns)))).to_dicts()


def _part(make: Callable[[Analysis], R]) -> cached_property[R]:
    """A part of the analysis: worked out when it is first asked for, or read where it is stored."""
    name = make.__name__
    part: cached_property[R] = cached_property(lambda it: _read(it.folder, name) if name in it.stored else make(it))
    part.__doc__ = make.__doc__
    return part


@dataclass(frozen=True, eq=False)
class Analysis:
    """What the runs of a study show. The columns of its tables: docs/reference/analysis.md.

    Attributes:
        runs: rows of the summary table, of steady windows where loads go on (`of_windows`). decision: what is to be decided.
        device: that they ran on; None where it is not known. servers: by deployment, for the ceilings of speed.
        reliefs: of curves that were replayed, by deployment and workload. stored: the parts that `folder` has.
    """

    runs: pl.DataFrame
    decision: Decision
    device: Accelerator | None = None
    servers: Mapping[str, Server] = field(default_factory=dict)
    reliefs: Mapping[Curve, CurveRelief] = field(default_factory=dict)
    folder: Path = Path()
    stored: Collection[str] = ()

    @_part
    def capacity(self) -> pl.DataFrame:
        """What each curve sustains."""
        judged = self.runs if self.decision.slo else self.runs.filter(~pl.col("axis").is_in(HELD))
        return operating_points(judged, self.decision.slos, self.decision.failed_share)

    @_part
    def saturation(self) -> pl.DataFrame:
        """Where each curve's KV cache is full, and where its throughput turns."""
        return saturation(self.runs)

    @_part
    def comparisons(self) -> dict[str, Comparison]:
        """Each deployment that shares a load with the study's baseline, compared with it, in the study's order."""
        return compare_with_baseline(self.runs)

    @_part
    def causes(self) -> dict[Curve, Bottleneck]:
        """Why each curve with a capacity by SLOs sustains no more, by deployment and workload."""
        curves = curves_of(self.runs).partition_by(*_CURVE, as_dict=True)
        points = {(point["deployment"], point["workload"]): point for point in self._points.iter_rows(named=True)}
        return {at: bottleneck(curves[at], point, self.decision.slos, self.reliefs.get(at)) for at, point in points.items()}

    @_part
    def findings(self) -> Findings:
        """What the report says beyond these tables."""
        runs, asked, plain = self.runs, asked_of(self.runs), plain_of(self.runs)
        return Findings(
            advice=tuple(advice(runs, self._points)),
            ceilings=tuple(ceilings(runs, self.servers, self.device)) if self.device else (),
            factors=tuple(decided(runs)) if questions.crossed_factors(asked) else (),
            lengths=tuple(length_costs(runs)) if questions.swept_length(asked) else (),
            streaming=tuple(streaming_gains(runs)) if questions.with_and_without_streaming(asked) else (),
            settings=tuple(setting_gains(plain)) if questions.several_settings(asked) else (),
            efficiencies=tuple(efficiencies(plain, self.decision.slos, self.decision.failed_share)),
        )

    @property
    def _points(self) -> pl.DataFrame:
        """The capacities by SLOs of the curves from which one may be read."""
        known = self.capacity.filter(pl.col("slos").list.len() > 0) if self.decision.slo else self.capacity.clear()
        return known.join(curves_of(self.runs), on=_CURVE, how="semi", maintain_order="left")


def read_analysis(folder: Path) -> Analysis:
    """The tables in `folder`. Each is read when it is asked for; a BenchError tells one that is missing, or of another version."""
    return Analysis(pl.DataFrame(), Decision(), folder=folder, stored=(*TABLES, *FINDINGS))


def slos_of(folder: Path) -> list[str]:
    """The SLOs of all requests by which the stored analysis judged; none where nothing is stored."""
    if not (folder / "capacity.parquet").is_file():
        return []
    told = [text for slos in read_table(folder, "capacity")["slos"] for text in slos]
    return [text for text in dict.fromkeys(told) if " of " not in text]


def write_analysis(found: Analysis, folder: Path, parts: Collection[str] = (*TABLES, *FINDINGS)) -> None:
    """Write these parts into `folder`: a table each, and as JSON the findings and what comparisons have beside their effects."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in parts:
        part = getattr(found, name)
        if name == "findings":
            write_record(part, folder / "findings.json")
            continue
        if name == "comparisons":
            beside = {at: {key: value for key, value in vars(each).items() if key != "effects"} for at, each in part.items()}
            write_object(msgspec.to_builtins(beside), folder / "comparisons.json")
            part = pl.concat([pl.DataFrame(schema=schema_of(name)), *(each.effects for each in part.values())])
        elif name == "causes":
            rows = [{**dict(zip(_CURVE, at, strict=True)), "cause": each.cause, **asdict(each)} for at, each in part.items()]
            part = pl.DataFrame(rows, schema=schema_of(name))
        part.write_parquet(folder / f"{name}.parquet")


def _read(folder: Path, name: str) -> Any:
    if name == "findings":
        return read(Findings, folder / "findings.json", _REMEDY)
    table = read_table(folder, name)
    if name == "comparisons":
        return read_as(
            lambda content: {
                at: typed(Comparison, {**it, "effects": table.filter(deployment=at)}) for at, it in content.items()
            },
            folder / "comparisons.json",
            _REMEDY,
        )
    if name == "causes":
        rows = table.iter_rows(named=True)
        return {(row["deployment"], row["workload"]): typed(Bottleneck, row) for row in rows}
    return table


def plain_of(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs that ask about load, as `bench.study.questions.plain` has them."""
    asked = dict.fromkeys((*_CURVE, "family", "arrival", *questions.CROSSED, "model", *settings_in(runs.columns)))
    rows = questions.plain(runs.select(*asked).to_dicts())
    kept = {tuple(row[key] for key in _CURVE) for row in rows}
    return runs.filter([at in kept for at in runs.select(_CURVE).iter_rows()])


def curves_of(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs from which an instance's capacity may be read: those of `plain_of` at two loads or more."""
    return plain_of(runs).filter(pl.col("level").n_unique().over(*_CURVE) > 1)


def read_table(folder: Path, name: str) -> pl.DataFrame:
    """The table `name` in `folder`. Raises BenchError where it is missing, or of another version."""
    path = folder / f"{name}.parquet"
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BenchError(f"{path}: not a table ({str(error).splitlines()[0]}). {_REMEDY}") from None
    if frame.schema != (schema := schema_of(name)):
        other = ", ".join(sorted({*frame.columns} ^ {*schema})) or "types"
        raise BenchError(f"{path}: another version wrote it, with other columns ({other}). {_REMEDY}")
    return frame
