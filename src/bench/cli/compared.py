"""What `bench compare` prints."""

from __future__ import annotations

from typing import Any

from bench.cli.output import print_table
from bench.errors import count_text, two_digits
from bench.findings.comparison.compare import Comparison
from bench.findings.comparison.gate import needed
from bench.findings.comparison.words import (
    ESTIMATED,
    assumed_text,
    difference_text,
    estimated_percent,
    failed_requests,
    interval_text,
    place_text,
    sentences,
    several,
    size_text,
)
from bench.findings.identical import same_answers

SIGHT = 5.0  # percent: the regression that a gate without a percentage has to be able to see
_SIDES = ("baseline", "candidate")
_NAMED = 5  # runs without a counterpart that are named


def content(
    found: Comparison, sources: tuple[str, str], difference: float | None, worse: list[str], missed: list[str]
) -> dict[str, Any]:
    """The whole result as plain data; ratios are candidate / baseline.

    Args:
        sources: of the baseline and of the candidate, as the user names them. difference: percent to plan sessions for.
    """
    overall = zip(found.overall.iter_rows(named=True), sentences(found), strict=True)
    sides = zip(_SIDES, sources, found.runs, found.invalid, strict=True)
    return {
        **{side: {"source": source, "runs": runs, "invalid": invalid} for side, source, runs, invalid in sides},
        "pairs": found.matched,
        "alone": [{key: value for key, value in row.items() if key != "nth"} for row in found.alone],
        "absent": found.absent,
        "differences": [difference_text(each) for each in found.differences],
        "failures": found.failures,
        "answers": [{**row, "sentence": same_answers(found, row)} for row in found.answers],
        "overall": [_with_sentence(row, text) for row, text in overall],
        "configurations": [
            {key: value for key, value in row.items() if key not in _WHOLE}
            for row in found.configurations.iter_rows(named=True)
        ],
        "regressions": worse,
        "cannot_see": missed,
        "plan": _plan(found, difference) if difference else None,
    }


_PART = ("scope", "workload", "axis", "level")
_WHOLE = ("scope", "pooled", "sessions", "repeats", "noise", "spread", "spread_assumed")


def _with_sentence(row: dict[str, Any], text: str) -> dict[str, Any]:
    """A row of all levels without what distinguishes parts, and with what it shows in words, as `sentence`."""
    kept = {key: value for key, value in row.items() if key not in _PART}
    at = list(kept).index("pooled") + 1
    return dict([*list(kept.items())[:at], ("sentence", text), *list(kept.items())[at:]])


def _plan(found: Comparison, percent: float) -> list[dict[str, Any]]:
    """Of each metric, the sessions that a difference of `percent` takes at the noise of these results."""
    metrics = found.overall["metric"].n_unique()
    keys = ("deployment", "metric", "noise", "spread", "spread_assumed")
    return [
        {**{key: row[key] for key in keys}, "difference": percent, "sessions": needed(row, percent, metrics)}
        for row in found.overall.iter_rows(named=True)
    ]


def print_comparison(found: Comparison, sources: tuple[str, str], difference: float | None, *, parts: bool) -> None:
    """What was compared, every metric over all levels, what that means, and on request each part of it."""
    for side, source, runs, invalid in zip(_SIDES, sources, found.runs, found.invalid, strict=True):
        print(
            f"{side:<10} {source}: {count_text(runs, 'run')}" + (f", {invalid} of them invalid and left out" if invalid else "")
        )
    levels, sessions = (max(found.overall[key], default=0) for key in ("levels", "sessions"))
    sizes = f"{count_text(levels, 'level')}, {count_text(sessions, 'session')}"
    print(f"{'compared':<10} {count_text(found.matched, 'pair')} of runs at {sizes}")
    for row in found.alone[:_NAMED]:
        session = f", session {row['session']}" if sessions > 1 else ""
        print(f"{'alone':<10} {place_text(found, row)}{session}, repeat {row['repeat']}: {row['side']} only")
    if len(found.alone) > _NAMED:
        print(f"{'':<10} and {count_text(len(found.alone) - _NAMED, 'more run')} without a counterpart")
    for name in found.absent:
        print(f"{'absent':<10} {name}: no pair has a value of it on both sides")
    for each in found.differences:
        print(f"{'differs':<10} {difference_text(each)}")
    for row in found.failures:
        print(f"{'failures':<10} {failed_requests(found, row)}")
    for row in found.answers:
        print(f"{'answers':<10} {same_answers(found, row)}")
    if found.overall.height:
        print()
        rows = [[*_cells(found, _metric(found, row), row), _seen(row)] for row in found.overall.iter_rows(named=True)]
        print_table([["metric", "difference", "interval", "verdict", "could see"], *rows], "<><<<")
    _print_sentences(found)
    if difference:
        _print_plan(found, difference)
    _print_meaning(found)
    if parts:
        _print_parts(found)


def _print_sentences(found: Comparison) -> None:
    rows = zip(found.overall.iter_rows(named=True), sentences(found), strict=True)
    lines = [
        f"{row['deployment'] + ' · ' if several(found) else ''}{text}" for row, text in rows if row["verdict"] != "no evidence"
    ]
    if lines:
        print()
    for line in lines:
        print(line)


def _print_plan(found: Comparison, percent: float) -> None:
    print(f"\nsessions of each side that find {percent:g} % over all levels in 8 of 10 cases, at the noise of these results:")
    rows = [["metric", "sessions", "runs differ by", "sessions differ by"]]
    for row in _plan(found, percent):
        takes = "not known" if row["noise"] is None else row["sessions"] or "more than 100"
        spread = f"{two_digits(100 * row['spread'])} %{' (assumed)' if row['spread_assumed'] else ''}"
        noise = "not known" if row["noise"] is None else f"{two_digits(100 * row['noise'])} %"
        rows.append([_metric(found, row), str(takes), noise, spread])
    print_table(rows)


def _print_meaning(found: Comparison) -> None:
    print(
        "\nBetter and worse: the interval lies on one side of 0. Without any difference, 95 comparisons in 100 have no such verdict."
    )
    if found.estimates:
        print(ESTIMATED)
    whole = found.overall
    if whole.height and whole["spread_assumed"].any():
        print(assumed_text(max(whole["sessions"]), max(whole["spread"])))


def _print_parts(found: Comparison) -> None:
    for (deployment, metric), rows in found.configurations.group_by("deployment", "metric", maintain_order=True):
        heading = f"{deployment} · {metric}" if several(found) else str(metric)
        print()
        lines = [
            [*_cells(found, f"{row['workload']} at {row['level']:g}", row), str(row["pairs"])]
            for row in rows.iter_rows(named=True)
        ]
        print_table([[heading, "difference", "interval", "verdict", "pairs"], *lines], "<><<>")


def _metric(found: Comparison, row: dict[str, Any]) -> str:
    return f"{row['deployment']} · {row['metric']}" if several(found) else str(row["metric"])


def _cells(found: Comparison, name: str, row: dict[str, Any]) -> list[str]:
    return [name, estimated_percent(found, row), interval_text(row["low"], row["high"]), row["verdict"]]


def _seen(row: dict[str, Any]) -> str:
    return "–" if row["could_see"] is None else size_text(row["could_see"])
