"""What differs from the baseline, in words for the first screen."""

from __future__ import annotations

from collections.abc import Mapping

from bench.analysis import Comparison, sight
from bench.errors import count_text, listed
from bench.runs.columns import METRICS
from bench.words.answer import AGAIN, Answer
from bench.words.comparison import load_of, overlooked, percent_text, sentences


def answer(baseline: str, found: Mapping[str, Comparison]) -> Answer:
    """What each deployment changes against the baseline, metric by metric."""
    others = {name: each for name, each in found.items() if not each.replica}
    replicas = [name for name, each in found.items() if each.replica]
    compared = {name: each for name, each in others.items() if each.overall.height}
    again = f"{baseline} was measured again as {listed(replicas)}, where any difference is chance."
    sights = [
        f"{name}, {METRICS[row['metric']].title}: {overlooked(row, _half(row['could_see']))}."
        for name, each in compared.items()
        if (row := sight(each))
    ]
    if assumed := [name for name, each in compared.items() if each.overall["spread_assumed"].any()]:
        of = "" if len(assumed) == len(compared) else f" of {listed(assumed)}"
        sights.append(f"How far sessions{of} differ is assumed; four sessions (study.sessions) would measure it.")
    return Answer(
        name="comparison",
        question=f"What is better or worse than {baseline}?",
        lines=tuple(line for name, each in others.items() for line in _lines(name, each)),
        sure=(*(_pairs(name, each) for name, each in others.items()), *sights, *([again] if replicas else [])),
        do=(
            *(_do(name, baseline, each) for name, each in others.items() if not _lost(each)),
            *([AGAIN] if any(map(_lost, others.values())) else []),
        ),
    )


def _half(percent: float) -> float:
    return float(f"{percent / 2:.2g}")


def _lines(name: str, found: Comparison) -> list[str]:
    lines = []
    for verdict, how_many in (("worse", "more"), ("better", "fewer")):
        if failing := [row for row in found.failures if row["verdict"] == verdict]:
            loads = [*(f"{row['level']:g}" for row in failing[:-1]), load_of(failing[-1])]
            lines.append(f"{name}: {how_many} requests fail, at {listed(loads)}.")
    if found.overall.is_empty():
        return [*lines, f"{name}: not known, no pair of runs under the same load is valid on both sides."]
    verdicts = found.overall["verdict"].to_list()
    texts = sentences(found)
    lines += [f"{name}: {text}." for text, verdict in zip(texts, verdicts, strict=True) if verdict != "no evidence"]
    rows = found.overall.to_dicts()
    silent = [row for row in rows if row["verdict"] == "no evidence" and row["low"] is not None]
    if silent:
        seen = [f"{METRICS[row['metric']].title} ({percent_text(row['ratio'])})" for row in silent]
        lines.append(f"{name}: no evidence of a difference in {listed(seen)}.")
    blind = [row for row in rows if row["verdict"] == "no evidence" and row["low"] is None]
    if blind:
        seen = [str(METRICS[row["metric"]].title) for row in blind]
        lines.append(f"{name}: not known of {listed(seen)}, because nothing shows how far runs differ by chance.")
    return lines


def _pairs(name: str, found: Comparison) -> str:
    left = sum(found.invalid)
    of = f", {count_text(left, 'invalid run')} left out" if left else ""
    return f"{name}: {count_text(found.matched, 'pair')} of valid runs{of}."


def _lost(found: Comparison) -> bool:
    """Whether invalid runs left nothing to compare."""
    return found.overall.is_empty() and sum(found.invalid) > 0


def _do(name: str, baseline: str, found: Comparison) -> str:
    verdicts = {verdict.split()[0] for verdict in found.overall["verdict"]}  # such as "worse at some loads"
    sides = (verdicts | {row["verdict"] for row in found.failures}) & {"worse", "better", "mixed"}
    match sorted(sides):
        case ["worse"]:
            return f"Keep {baseline}: {name} is worse in something and visibly better in nothing."
        case ["better"]:
            return f"{name} is better in something and visibly worse in nothing: it can replace {baseline}."
        case []:
            return f"These runs give no reason to prefer {name} or {baseline}."
    return f"{name} is better in some and worse in others: decide by the metric and the load that matter to you."
