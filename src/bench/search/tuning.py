"""A study's tuning on real servers: visits to candidates, each ended early once it has lost, which are kept; the race over them,
and the record of what it found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.axes import AXES
from bench.measure.session import measure
from bench.runs.files import write_record
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.runs.searches import TuningRecord, Visit, Visits, read_visits
from bench.runs.store import Store
from bench.search.laddered import LadderSearches, Terms
from bench.search.placing import Ends
from bench.search.race import Ask, Outcome, Rival, race
from bench.servers.server import ServerDied
from bench.servers.settings import varying_settings
from bench.statistics.limit import BEYOND, Belief, believe
from bench.statistics.textbook import CONFIDENCE
from bench.study.config import Config
from bench.study.plan import Plan
from bench.study.search import competing
from bench.study.searches import found_runs

if TYPE_CHECKING:
    from bench.search.search import Found

_ONE_SIGMA = 0.841  # share of a normal distribution below one standard deviation; derived


def ends_of(ask: Ask) -> Ends:
    """When the search of a visit ends early: once its limit lies below a rival's (95 %)."""
    if (rival := ask.rival) is None:
        return lambda *_: None
    return lambda _, belief: "lost" if _beaten(belief, rival) >= CONFIDENCE else None


def visit_of(ask: Ask, found: Found, began: float, seconds: float) -> Visit:
    """What a search on one start showed. Args: began, seconds: as `Visit` has them."""
    answer, seen = found.answer, found.observations
    shows = seen and answer.why not in ("below", "alone")
    middle, error = _normal(believe(seen), [each.load for each in seen]) if shows else (None, None)
    return Visit(
        deployment=ask.candidate,
        phase=ask.phase,
        round=ask.round,
        middle=middle,
        error=error,
        low=answer.low,
        high=answer.high if math.isfinite(answer.high) else None,
        why=answer.why,
        runs=len(found.looks),
        load_s=round(found.seconds, 1),
        began=began,
        seconds=round(seconds, 1),
    )


def _beaten(belief: Belief, rival: Rival) -> float:
    """The probability that a limit lies below a rival's."""
    from scipy.special import ndtr  # noqa: PLC0415

    with np.errstate(divide="ignore"):
        behind = (math.log(rival.rate) - np.log(belief.limits)) / rival.error
    return float(np.mean(ndtr(behind)))


def _normal(belief: Belief, loads: Sequence[float]) -> tuple[float, float]:
    """Median of a limit's logarithm, and half of what holds the middle 68 %. Args: loads: that were measured.

    Limits beyond them count as twice the highest, or half the lowest: that much is known of one that no run brackets.
    """
    least, most = min(loads) / BEYOND, max(loads) * BEYOND
    low, middle, high = (min(most, max(least, belief.quantile(share))) for share in (1 - _ONE_SIGMA, 0.5, _ONE_SIGMA))
    error = math.log(high / low) / 2
    return math.log(middle), error if least < middle < most else max(error, math.log(BEYOND) / 2)


@dataclass
class _Servers:
    """Makes visits to the candidates, and keeps them in a file.

    Attributes:
        kept: those that were made, of earlier calls too.
    """

    config: Config
    digest: str
    kept: list[Visit]
    say: Callable[[str], None]

    def visit(self, ask: Ask) -> Visit:
        """What the visit showed when it was made, or a new one."""
        asked = (ask.candidate, ask.phase, ask.round)
        before = next((each for each in self.kept if (each.deployment, each.phase, each.round) == asked), None)
        if before is not None:
            return before
        self.say(f"{ask.candidate}: {ask.phase}" + (f", round {ask.round}" if ask.phase != "first look" else ""))
        self.kept.append(self._visited(ask))
        write_record(Visits(digest=self.digest, visits=tuple(self.kept)), Path(Paths.VISITS))
        return self.kept[-1]

    def _visited(self, ask: Ask) -> Visit:
        name, began, since = ask.candidate, time.time(), time.monotonic()
        plan = Plan.of(competing(self.config, [name]))
        spec, store = plan.deployments[name], Store(owner=name)
        (asked,) = plan.searches
        before = found_runs([asked], store.root.glob(f"{name}/*/{RECORD}"))
        terms = Terms(frozenset(run.digest for run in before), ask.start, ends_of(ask))
        searches = LadderSearches(plan, spec, store, self.say, terms)
        try:
            launch = Path(Paths.LAUNCH.format(deployment=name))
            measure(plan, name, (), launch=launch, facts=Paths.facts(name), store=store, say=self.say, search=searches)
        except ServerDied as error:
            if not self.kept:  # the default's: nothing could be held against it
                raise
            self.say(f"{name}: {error}")
            return Visit(deployment=name, phase=ask.phase, round=ask.round, middle=None, error=None, low=0.0, high=None,
                         why="died", runs=0, load_s=0.0, began=began, seconds=time.monotonic() - since,
                         said=str(error))  # fmt: skip
        found = searches.found(asked)
        assert found is not None
        return visit_of(ask, found, began, time.monotonic() - since)


def tune(config: Config, say: Callable[[str], None]) -> TuningRecord:
    """Find the best candidate of a study's `tune`.

    Visits of an earlier call with other minutes count. What is found is written by the caller.

    Raises:
        BenchError: the default's server cannot be measured.
    """
    asked = config.tune
    assert asked is not None
    names = asked.deployments
    plan = Plan.of(competing(config, names))
    settings = _settings(plan, names)
    units = {name: float(plan.deployments[name].gpus or 1) if asked.objective == "cost" else 1.0 for name in names}
    of = Plan.of(config).tuning_digest
    before = read_visits(Path(Paths.VISITS), of)
    load = config.workloads[asked.workload]
    servers = _Servers(config, of, list(before.visits), say)
    found = race(settings, units, 60 * asked.minutes, servers.visit)
    return TuningRecord(
        digest=of,
        objective=asked.objective,
        workload=asked.workload,
        slos=tuple(str(slo) for slo in plan.searches[0].slos),
        default=names[0],
        candidates=tuple(names),
        settings=settings,
        units=units,
        visits=tuple(found.visits),
        dropped=found.dropped,
        untried=tuple(found.untried),
        settled=found.settled,
        leader=found.leader,
        confirmed=found.confirmed,
        winner=_winner(found, names[0]),
        minutes=asked.minutes,
        seconds=round(found.seconds, 1),
        unit=AXES[load.axis].counted(conversations=bool(load.turns)),
    )


def _winner(found: Outcome, default: str) -> str | None:
    """The server to use: the leader where it is shown to be better, else the default, where that meets the SLOs at some rate."""
    confirmed = found.confirmed
    if confirmed and (confirmed.low is None or confirmed.low > 1):
        return found.leader
    return default if found.visits[0].middle is not None else None


def _settings(plan: Plan, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What differs between the candidates, by candidate and column; of settings that always change together the first."""
    rows = [
        {
            "model": plan.deployments[name].model_name,
            "engine": plan.deployments[name].deployment.engine,
            **plan.deployments[name].settings,
        }
        for name in names
    ]
    columns = varying_settings(rows, before=("model", "engine"))
    return {name: {column: row.get(column) for column in columns} for name, row in zip(names, rows, strict=True)}
