"""A search as a study asks for it, and as it is recorded: its targets, and a record of each answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.analysis.observation import FAILED, GROWTH
from bench.axes import AXES
from bench.records.searches import SearchedRun, SearchRecord
from bench.search.equilibrium import EquilibriumTarget
from bench.search.placing import Aim
from bench.search.search import Found, Measured
from bench.search.targets import KvCacheTarget, SloTarget, Target
from bench.search.throughput import RateTarget, ThroughputTarget
from bench.study import RunSpec
from bench.study.search import EQUILIBRIUM, KV_CACHE, SLO, THROUGHPUT
from bench.study.searches import SearchSpec


def targets_of(asked: SearchSpec) -> tuple[Target, ...]:
    """What a search looks for, in the order of its settings."""
    held = AXES[asked.workload.axis].held
    kinds: dict[str, Target] = {
        SLO: SloTarget(),
        KV_CACHE: KvCacheTarget(),
        THROUGHPUT: ThroughputTarget() if held else RateTarget(),
        EQUILIBRIUM: EquilibriumTarget(),
    }
    return tuple(kinds[name] for name in asked.settings.targets)


def answer_records(
    asked: SearchSpec, aim: Aim, found: Found, runs: Sequence[RunSpec], measured: Sequence[Measured]
) -> list[SearchRecord]:
    """What a search found, one record a target.

    Args:
        runs, measured: behind it, in the order in which the search took them into account.
    """
    return [_record(asked, aim, target, found, runs, measured) for target in targets_of(asked)]


def _record(
    asked: SearchSpec, aim: Aim, target: Target, found: Found, runs: Sequence[RunSpec], measured: Sequence[Measured]
) -> SearchRecord:
    answer = found.answers[target.name]
    return SearchRecord(
        name=asked.name,
        workload=asked.workload_name,
        digest=asked.digest,
        axis=asked.workload.axis,
        slos=tuple(map(str, asked.slos)) if target.name == SLO else (),
        precision=asked.settings.precision,
        why=answer.why,
        limit=answer.limit if answer.known else None,
        low=answer.low,
        high=answer.high if math.isfinite(answer.high) else None,
        seconds=round(found.seconds, 1),
        runs=tuple(
            SearchedRun(
                level=run.level,
                requests=each.row["requests"],
                repeat=run.repeat,
                digest=run.digest,
                excess={
                    key: round(excess.value, 4)
                    for key, excess in (seen.excesses if seen else {}).items()
                    if key not in (FAILED, GROWTH)
                },
            )
            for run, each, seen in zip(runs, measured, target.shown(found.looks, aim), strict=True)
        ),
        turns=aim.turns,
        target=target.name,
        top=answer.top,
    )
