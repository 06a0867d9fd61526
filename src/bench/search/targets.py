"""Targets of a search, and what each run shows of them: the SLOs, or the KV cache."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import polars as pl

from bench.analysis.observation import Excess, Observation
from bench.analysis.saturation import SATURATED_KV_USAGE, saturated
from bench.search.curve import NOISE
from bench.search.placing import FEWEST_RUNS, LEAST_CLIMB, Aim, Answer, Step, Why, answer_so_far, place
from bench.study.search import KV_CACHE, SLO

if TYPE_CHECKING:
    from bench.search.search import Look

T = TypeVar("T", Answer, Answer | Step)
_SURE_SIDE = 0.1  # excess of a sign that the cache was full or had room; tuned: benchmarks.targets, seed 31
_FARTHEST = 64.0  # largest step up that one run's usage may suggest; convention
# requests in flight ÷ running ones above which a cache with room will not fill; tuned: benchmarks.targets, seed 31
_WAITING = 1.5
_UNMEASURED = 3  # runs without KV-cache metrics that end a search; convention
_COLUMNS = (
    "kv_usage_peak",
    "kv_usage_queued",
    "waiting_standing",
    "running_peak",
    "max_num_seqs",
    "preemptions",
    "kv_tokens",
    "kv_blocks",
    "engines",
    "prompt_tokens_p90",
)


class Target(ABC):
    """A target: the load at which a rising curve crosses 0."""

    name: ClassVar[str]  # as configurations have it

    @abstractmethod
    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:
        """What each run shows of it; None where it shows nothing."""

    def observations(self, looks: Sequence[Look], aim: Aim) -> list[Observation]:
        """What the runs show of it."""
        return [seen for seen in self.shown(looks, aim) if seen is not None]

    @abstractmethod
    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        """The next run, or the answer. It depends on the runs alone."""

    @abstractmethod
    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        """What is known when a search ends early."""


class SloTarget(Target):
    """The highest load within the SLOs."""

    name = SLO

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:  # noqa: ARG002
        return [look.observation for look in looks]

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        return place(self.observations(looks, aim), aim)

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        seen = self.observations(looks, aim)
        found = answer_so_far(seen, aim, why)
        return found if len(seen) >= FEWEST_RUNS else replace(found, low=0.0, high=math.inf)


class KvCacheTarget(Target):
    """The lowest load of a closed loop that fills the KV cache, by the report's signs that it was full (`saturated`).

    Below it the excess is the logarithm of peak usage ÷ 99 %; above it, that of what is in flight ÷ what runs.
    """

    name = KV_CACHE

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:  # noqa: ARG002
        return [self._seen(look) for look in looks]

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        judged = [look for look in looks if _counted(look)]
        seen = self.observations(looks, aim)
        if not seen and len(judged) >= _UNMEASURED:
            return Answer(0.0, 0.0, math.inf, "unmeasured")
        if not seen:
            return Step(aim.first, near=False)
        if never := _never_full(judged):
            return never
        return first_with(place(seen, aim, climb=_promised(judged)), aim)

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        seen = self.observations(looks, aim)
        return first_with(answer_so_far(seen, aim, why), aim)

    def _seen(self, look: Look) -> Observation | None:
        full = full_cache(look.row) if _counted(look) else None
        if full is None:
            return None
        row = look.row
        if full:
            running, flying = row.get("steady_running"), row.get("steady_in_flight")
            value = _SURE_SIDE + max(0.0, math.log(flying / running) if running and flying else 0.0)
        else:
            value = math.log(max(1e-3, row["kv_usage_peak"]) / SATURATED_KV_USAGE) - _SURE_SIDE
        return Observation(look.load, {self.name: Excess(value, NOISE)}, row["requests"])


def _counted(look: Look) -> bool:
    """Whether the run was long enough and its server counters are valid (a late client does not invalidate them)."""
    return look.observation is not None or bool(
        look.reasons and look.row.get("counts_valid") and look.row.get("steady_why") != "short"
    )


def first_with(found: T, aim: Aim) -> T:
    """The answer with the crossing rounded up to the next whole number of requests; a lower end that nothing bounds stays 0."""
    if isinstance(found, Step) or not aim.held or found.why in ("above", "below") or not math.isfinite(found.high):
        return found
    return replace(found, limit=found.limit + 1, low=found.low and found.low + 1, high=found.high + 1)


def full_cache(row: Mapping[str, Any]) -> bool | None:
    """Whether a run filled the KV cache; None where its telemetry does not show it."""
    frame = pl.DataFrame({name: [row.get(name)] for name in _COLUMNS}, schema=dict.fromkeys(_COLUMNS, pl.Float64), strict=False)
    known: bool | None = frame.select(saturated()).item()
    return known


def _never_full(judged: Sequence[Look]) -> Answer | None:
    """That no load fills the cache: at the highest, requests wait for something else."""
    top = max(judged, key=lambda look: look.load)
    running, flying = (top.row.get(f"steady_{name}") for name in ("running", "in_flight"))
    if full_cache(top.row) is False and running and flying and flying > _WAITING * running and top.row.get("steady_waiting"):
        return Answer(top.load, top.load, math.inf, "never")
    return None


def _promised(judged: Sequence[Look]) -> float:
    """How many times the highest load fills the cache if usage grows in proportion; no farther than all that may run at once."""
    top: dict[str, Any] = dict(max(judged, key=lambda look: look.load).row)
    usage, slots = top.get("kv_usage_peak"), top.get("max_num_seqs")
    farthest = min(_FARTHEST, _WAITING * slots * (top.get("engines") or 1) / top["level"]) if slots else _FARTHEST
    return max(LEAST_CLIMB, min(farthest, SATURATED_KV_USAGE / usage if usage else 2.0))
