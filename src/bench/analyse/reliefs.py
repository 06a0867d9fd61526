"""What relieving a resource would bring to each curve of a study whose limit was measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError
from bench.predict.calibrate import Calibrated, MeasuredRun, calibrate
from bench.predict.predict import misfits
from bench.predict.relief import DRAWS, relief_of
from bench.predict.sources import measured_runs, read_limits
from bench.predict.state import Limits
from bench.records.relief import CurveRelief, Relief, Reliefs
from bench.study import Slo
from bench.study.plan import digest

__all__ = ["find_reliefs"]

Row = Mapping[str, Any]
_NONE = "none of its valid runs shows the steps of the engine"
_MISFIT = "steps stray too far from the calibrated model"
_NO_LIMIT = "the replays do not find the limit near the measured one"


def find_reliefs(
    table: pl.DataFrame,
    results: Path,
    capacity: pl.DataFrame,
    slos: Sequence[Slo],
    *,
    code: str,
    known: Reliefs | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Reliefs:
    """The relief of each curve that misses an SLO under a load that goes on. One whose runs, limit and code are those of a known one
    keeps it.

    Args:
        table: the summary. results: the folder that it is of. capacity: `operating_points` of its curves. slos: that they are for.
        code: a digest of the sources that decide the result. known: from an earlier call. say: takes progress lines.
    """
    before = {(each.deployment, each.workload): each for each in known.curves} if known else {}
    missing = capacity.filter(pl.col("kind").is_in(["found", "below"]) & (pl.col("basis") == "steady"))
    found: list[CurveRelief] = []
    for (name,), points in missing.group_by("deployment", maintain_order=True):
        server = _Server(str(name), table, results)
        for point in points.iter_rows(named=True):
            limits = [slo for slo in slos if str(slo) in point["slos"]]
            of = server.digest_of(point, limits, code)
            kept = before.get((server.name, point["workload"]))
            if kept is None or kept.digest != of:
                say(f"replaying {server.name}, {point['workload']}, with one resource relieved at a time")
                kept = server.relieved(point, limits, of)
            found.append(kept)
    # Of curves that were not selected this time: they need not be replayed again when they are.
    mine = set(table.select("deployment", "workload").iter_rows())
    return Reliefs(curves=(*found, *(each for at, each in before.items() if at not in mine)))


class _Server:
    """A deployment: its runs, and its model, which is fitted when it is first asked for."""

    def __init__(self, name: str, table: pl.DataFrame, results: Path) -> None:
        self.name = name
        self.why_not: str | None = None
        self._model: Calibrated | None = None
        self._runs: list[MeasuredRun] = []
        self._limits: Limits | None = None
        try:
            self._limits = read_limits(results, name)
            self._runs = measured_runs(table, results, name, self._limits)
        except BenchError as error:
            self.why_not = str(error).removeprefix(f"{name}: ").rstrip(".")

    def digest_of(self, point: Row, slos: Sequence[Slo], code: str) -> str:
        """Of all that decides a curve's relief."""
        return digest(
            {
                "code": code,
                "limits": repr(self._limits),
                "why_not": self.why_not,
                "runs": {run.name: hashlib.sha256(run.requests.write_ipc(None).getvalue()).hexdigest() for run in self._runs},
                "slos": [str(slo) for slo in slos],
                "missed": sorted(_metrics(point)),
                "missed_at": point["missed_at"],
            }
        )

    def relieved(self, point: Row, slos: Sequence[Slo], of: str) -> CurveRelief:
        """The record of one curve."""
        relief, why_not = self._relieved(point, slos)
        return CurveRelief(
            deployment=self.name, workload=point["workload"], digest=of, relief=relief, why_not=None if relief else why_not
        )

    def _relieved(self, point: Row, slos: Sequence[Slo]) -> tuple[Relief | None, str | None]:
        curve = [run for run in self._runs if (run.row["workload"], run.row["axis"]) == (point["workload"], point["axis"])]
        if self.why_not or self._limits is None or not curve:
            return None, self.why_not or _NONE
        try:
            self._model = self._model or calibrate(self._runs, self._limits, draws=DRAWS)
            if self._model is None or any(misfits(self._model)):
                return None, _MISFIT if self._model else _NONE
            return relief_of(self._model, curve, slos, _metrics(point), point["missed_at"]), _NO_LIMIT
        except (ArithmeticError, ValueError) as error:  # a server without a model must not cost the study its report
            return None, f"replaying it failed ({error})"


def _metrics(point: Row) -> set[str]:
    """The latencies that a curve misses, of all requests or of a class."""
    missed = {miss["by"] for miss in point["missed"] or ()}
    return {Slo.of_column(by, 0.0).metric if by.endswith("_s") else by for by in missed}
