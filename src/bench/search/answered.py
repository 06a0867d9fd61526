"""What a search of a study found, as it is recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.runs.searches import SearchedRun, SearchRecord
from bench.search.placing import Aim
from bench.search.search import Found, Measured
from bench.statistics.observation import FAILED, GROWTH
from bench.study.searches import SearchSpec
from bench.study.specs import RunSpec


def answer_record(
    asked: SearchSpec, aim: Aim, found: Found, runs: Sequence[RunSpec], measured: Sequence[Measured]
) -> SearchRecord:
    """What a search found.

    Args:
        runs, measured: behind it, in the order in which the search took them into account.
    """
    answer = found.answer
    return SearchRecord(
        name=asked.name,
        workload=asked.workload_name,
        digest=asked.digest,
        axis=asked.workload.axis,
        slos=tuple(map(str, asked.slos)),
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
                    for key, excess in (look.observation.excesses if look.observation else {}).items()
                    if key not in (FAILED, GROWTH)
                },
            )
            for run, each, look in zip(runs, measured, found.looks, strict=True)
        ),
        turns=aim.turns,
    )
