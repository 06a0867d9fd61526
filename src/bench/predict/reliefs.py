"""What relieving a resource would bring to each curve of a study whose limit was measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError
from bench.parse.server import pinned
from bench.predict.calibrate import Calibrated, Given, MeasuredRun, as_shown, calibrate
from bench.predict.predict import misfits
from bench.predict.relief import MEMBERS, agreed, relief_of
from bench.predict.relief_record import CurveRelief, Relief, Reliefs
from bench.predict.sources import measured_runs, read_limits, why_none
from bench.predict.state import Limits
from bench.runs.files import digest
from bench.runs.latencies import LATENCIES
from bench.study.slo import Slo

Row = Mapping[str, Any]
_MISFIT = "steps stray too far from the calibrated model"
_NO_LIMIT = "the replays do not find the limit near the measured one"
# tokens of a step that vLLM, llama.cpp and others have where nobody says another number; source: their defaults, by version and device
_BUDGETS = (512, 2048, 8192)
_QUEUED = 0.5  # least share of scrapes with waiting requests where a bound on sequences shows; convention


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
    limited = pl.col("kind").is_in(["found", "below"]) & (pl.col("basis") == "steady") & (pl.col("slos").list.len() > 0)
    missing = capacity.filter(limited)
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
    """A deployment: its runs, and its models, which are fitted when they are first asked for."""

    def __init__(self, name: str, table: pl.DataFrame, results: Path) -> None:
        self.name = name
        self._table = table
        self.why_not: str | None = None
        self._runs: dict[Limits, list[MeasuredRun]] = {}
        self._models: dict[Limits, Calibrated | None] = {}
        try:
            for limits in _possible(results, name, table.filter((pl.col("deployment") == name) & pl.col("valid"))):
                self._runs[limits] = measured_runs(table, results, name, limits)
        except BenchError as error:
            self.why_not = str(error).removeprefix(f"{name}: ").rstrip(".")
        runs = next(iter(self._runs.values()), [])
        self._digests = {run.name: hashlib.sha256(run.requests.write_ipc(None).getvalue()).hexdigest() for run in runs}

    def digest_of(self, point: Row, slos: Sequence[Slo], code: str) -> str:
        """A digest of all that decides a curve's relief."""
        return digest(
            {
                "code": code,
                "limits": repr(list(self._runs)),
                "why_not": self.why_not,
                "runs": self._digests,
                "slos": [str(slo) for slo in slos],
                "missed": sorted(_metrics(point)),
                "missed_at": point["missed_at"],
                "measured": point["limit"],
            }
        )

    @cached_property
    def _likely(self) -> dict[Limits, list[MeasuredRun]]:
        return likely(self._runs)

    def relieved(self, point: Row, slos: Sequence[Slo], of: str) -> CurveRelief:
        found, why_not = [], self.why_not
        for limits, runs in self._runs.items():
            curve = [run for run in runs if (run.row["workload"], run.row["axis"]) == (point["workload"], point["axis"])]
            try:
                if limits not in self._likely:
                    continue
                relief, why_not = self._relieved(limits, curve, point, slos)
            except (ArithmeticError, ValueError) as error:  # a server without a model must not cost the study its report
                relief, why_not = None, f"replaying it failed ({error})"
            if relief is not None:  # else it is no model of this server
                found.append(relief)
        relief = agreed(found) if found else None
        return CurveRelief(
            deployment=self.name, workload=point["workload"], digest=of, relief=relief, why_not=None if relief else why_not
        )

    def _relieved(
        self, limits: Limits, curve: Sequence[MeasuredRun], point: Row, slos: Sequence[Slo]
    ) -> tuple[Relief | None, str | None]:
        if unknown := [slo for slo in slos if not LATENCIES[slo.metric].replayed]:
            return None, f"how long answers reason is not replayed, and {unknown[0]} limits that"
        if not curve:
            return None, why_none(self._table.filter(pl.col("workload") == point["workload"]), self.name, curve)
        if limits not in self._models:
            self._models[limits] = calibrate(self._runs[limits], limits, draws=MEMBERS)
        model = self._models[limits]
        if model is None or any(misfits(model)):
            return None, _MISFIT if model else why_none(self._table, self.name, self._runs[limits])
        return relief_of(model, curve, slos, _metrics(point), point["missed_at"], point["limit"]), _NO_LIMIT


def _possible(results: Path, name: str, runs: pl.DataFrame) -> list[Limits]:
    """What a scheduler may obey. Of a server that was started elsewhere no more is assumed than nobody names: sequences as runs show
    them, each usual budget of a step, or both.

    Raises:
        BenchError: even with these a limit is not known.
    """
    running = _running(runs)
    assumed = (
        [Given()],
        [Given(tokens=tokens) for tokens in _BUDGETS],
        [Given(sequences=running or max(_BUDGETS))],
        [Given(tokens=tokens, sequences=running or tokens) for tokens in _BUDGETS],
    )
    for given in assumed[:-1]:
        try:
            return [read_limits(results, name, each) for each in given]
        except BenchError:
            continue
    return [read_limits(results, name, each) for each in assumed[-1]]


def likely(runs: dict[Limits, list[MeasuredRun]]) -> dict[Limits, list[MeasuredRun]]:
    """The limits that a scheduler may obey, less those that others are significantly better than by the steps of prompts."""
    if len(runs) < 2:
        return runs
    against = {limits: as_shown(each, limits)[1] for limits, each in runs.items()}
    return {
        limits: each for limits, each in runs.items() if not any(one.fewer_than(against[limits]) for one in against.values())
    }


def _running(runs: pl.DataFrame) -> int | None:
    """The most requests that run at once while others wait; None where nothing shows a bound on them."""
    queued = runs.filter((pl.col("steady_queued_share") >= _QUEUED) & pl.col("telemetry_valid"))
    most, mean = queued["steady_running_high"].max(), queued["steady_running"].max()
    if most is None or mean is None or not pinned(float(mean), float(most)):  # type: ignore[arg-type]
        return None
    return round(float(most))  # type: ignore[arg-type]


def _metrics(point: Row) -> set[str]:
    """The latencies that a curve misses, of all requests or of a class."""
    missed = {miss["by"] for miss in point["missed"] or ()}
    return {Slo.of_column(by, 0.0).metric if by.endswith("_s") else by for by in missed}
