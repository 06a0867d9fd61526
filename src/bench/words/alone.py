"""Workloads that were measured at one load alone, in words: they show that load, and no limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.axes import AXES
from bench.errors import count_text
from bench.study.slo import Slo
from bench.words.answer import AGAIN, Answer, shortened
from bench.words.loads import latency_text, load_text, time_text
from bench.work import unit_of

Row = Mapping[str, Any]


def answer(levels: Sequence[Row], shown: Sequence[Slo]) -> Answer:
    """What workloads with a single load show, by the numbers of the report's table of levels.

    Args:
        levels: rows of `bench.report.levels.level_rows`. shown: whose percentiles their `latencies` are.
    """
    invalid = [level for level in levels if level["valid"] < level["runs"]]
    return Answer(
        name="alone",
        question="What do workloads that were measured at one load show?",
        lines=shortened([_line(level, shown) for level in levels]),
        sure=("One load shows neither a limit nor what more load would bring.",),
        do=(*([AGAIN] if invalid else []), "Measure two levels or more of a workload to learn what an instance sustains."),
    )


def _line(level: Row, shown: Sequence[Slo]) -> str:
    name = f"{level['deployment']} · {level['workload']}, {load_text(level['level'], AXES[level['axis']].unit)}"
    if not level["valid"]:
        return f"{name}: not known, {'the run is' if level['runs'] == 1 else 'all runs are'} invalid."
    found = [] if level["tokens_per_s"] is None else [f"{level['tokens_per_s']:,.3g} {unit_of([level['work']])}/s"]
    found += [
        f"{slo.metric.upper()} {slo.percentile.upper()} {latency_text(value)}{_beside_limit(slo, within=within)}"
        for slo, (value, within) in zip(shown, level["latencies"], strict=True)
        if value is not None
    ]
    if level["runs"] > 1:
        name += f" ({level['valid']} of {count_text(level['runs'], 'run')})"
    return f"{name}: {', '.join(found) or 'nothing was measured'}."


def _beside_limit(slo: Slo, *, within: bool) -> str:
    return "" if math.isinf(slo.limit_s) else f" ({'within' if within else 'misses'} its limit, {time_text(slo.limit_s)})"
