"""The comparison of two sides as a gate and a reader want it, and what one would take."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.cli.commands.compare import Compare
from bench.cli.output import note, print_json, print_table
from bench.errors import BenchError, count_text, two_digits
from bench.findings.comparison import compare as comparison
from bench.findings.comparison import words
from bench.findings.comparison.effects import ASSUMED_SPREAD, EXPECTED, Noise, metric_of, sessions_for, visible
from bench.findings.trust import first_line
from bench.results import Results
from bench.runs.columns import METRICS
from bench.shipped import BENCH

_SIGHT = 5.0  # percent: the regression that a gate without a percentage has to be able to see
_SIDES = ("baseline", "candidate")
_NAMED = 5  # runs without a counterpart that are named
_LADDER = (4, 6, 8, 12, 16)  # sessions of each side that are shown beside the number that it takes


def compare(asked: Compare) -> None:
    """Compare the two sides; the process ends with the status of the gate."""
    if not asked.baseline or not asked.candidate:
        raise BenchError("give A (the baseline) and B (the candidate), or --difference alone for what a comparison would take.")
    sources = asked.baseline, asked.candidate
    metrics = _metrics(asked) or list(METRICS)
    first, second = (Results.open(source) for source in sources)
    two_jobs = first.folder.resolve() != second.folder.resolve()
    found = comparison.compare(first.own, second.own, metrics, spread=_between(asked), two_jobs=two_jobs)
    _refuse_nothing(found, {sources[0]: first.own, sources[1]: second.own})
    limit = asked.fail_on_regression or _SIGHT
    told = {
        "regressions": words.regression_lines(found, asked.fail_on_regression or 0.0),
        "unproven": words.unproven_lines(found, limit),
        "cannot_see": words.blind_spots(found, limit),
    }
    if asked.json:
        print_json(_plain(found, sources) | told)
    else:
        _print(found, sources, parts=asked.runs)
    if asked.fail_on_regression is not None:
        _decide(asked, *told.values())


def _between(asked: Compare) -> float:
    """By how much two sessions of one server differ (share)."""
    return ASSUMED_SPREAD if asked.between is None else asked.between / 100


def _metrics(asked: Compare) -> list[str]:
    """The metrics that are named, each once. Raises: BenchError: one is none."""
    for name in asked.metric or ():
        try:
            metric_of(name)
        except BenchError as error:
            raise BenchError(f"--metric {error}") from None
    return list(dict.fromkeys(asked.metric or ()))


def _decide(asked: Compare, worse: list[str], unproven: list[str], missed: list[str]) -> None:
    more = f" by more than {asked.fail_on_regression:g} %" if asked.fail_on_regression else ""
    for line in worse:
        note(f"regression: {line}{more if 'failed' not in line else ''}")
    for line in unproven:
        note(f"not proven: {line}")
    for line in missed:
        note(f"cannot see: {line}")
    if worse:
        sys.exit(1)
    if unproven or (missed and not asked.allow_blind):
        say = "a metric is worse" if unproven else "one could have been overlooked"
        note(
            f"No regression is proven, and {say}: this is no pass. Measure more sessions in turns, name fewer metrics (--metric), "
            f"or ask for a larger PERCENT{'' if unproven else '; --allow-blind passes it'}."
        )
        sys.exit(3)


def sessions(asked: Compare, difference: float) -> None:
    """Print how many sessions find a difference (percent) over all levels."""
    if not 0 < asked.noise < 100:
        raise BenchError(f"--noise is {asked.noise:g}: a percentage above 0 and below 100.")
    if not difference:
        raise BenchError(
            "--difference is 0: no number of sessions can show it. Give the smallest difference that would change a decision."
        )
    noise, metrics = Noise(asked.noise / 100, _between(asked)), len(_metrics(asked)) or EXPECTED
    takes = sessions_for(difference / 100, noise, asked.levels, 1, metrics)
    sees = {k: 100 * visible(noise, k, asked.levels, 1, metrics) for k in sorted({*_LADDER, takes or 4})}
    runs, between = takes and 2 * takes * asked.levels, 100 * _between(asked)
    if asked.json:
        print_json(
            {
                "difference": difference,
                "noise": asked.noise,
                "between": between,
                "levels": asked.levels,
                "metrics": metrics,
                "sessions": takes,
                "runs": runs,
                "could_see": sees,
            }
        )
        return
    number = "more than 100 sessions" if takes is None else count_text(takes, "session")
    print(
        f"{difference:g} % over {count_text(asked.levels, 'level')} takes {number} of each deployment, interleaved (A B B A …)"
        f"{f': {runs} runs' if runs else ''}."
    )
    print(
        f"Runs differ by {asked.noise:g} %, sessions next to each other by {between:g} % (standard deviations; --noise, --between); "
        f"metrics: {metrics}.\n"
    )
    rows = [[str(count), f"{two_digits(seen)} %"] for count, seen in sees.items()]
    print_table([["sessions", "could see, in 8 of 10 cases"], *rows], ">>")


def _refuse_nothing(found: comparison.Comparison, sides: Mapping[str, pl.DataFrame]) -> None:
    """Raises BenchError where no pair has a value of any metric. Args: sides: runs by what they were read from."""
    if found.matched or found.failures:
        return
    for source, runs in sides.items():
        if not runs["valid"].any():
            raise BenchError(
                f"{source}: {first_line(runs)} Nothing has to be measured again to judge by other limits: a study's `thresholds`, "
                f"or for a folder of runs `{BENCH} figures` with --threshold, and the summary table that it writes."
            )
    raise BenchError(f"no valid run of {' has the workload, load and repeat of one of '.join(sides)}, and a value to compare.")


def _plain(found: comparison.Comparison, sources: tuple[str, str]) -> dict[str, Any]:
    """The comparison as plain data; ratios are candidate / baseline. Args: sources: of both sides, as the user names them."""
    sides = zip(_SIDES, sources, found.runs, found.invalid, strict=True)
    texts = zip(found.overall.iter_rows(named=True), words.sentences(found), strict=True)
    return {
        **{side: {"source": source, "runs": runs, "invalid": invalid} for side, source, runs, invalid in sides},
        "pairs": found.matched,
        "stored": found.stored,
        "machine": found.machine and vars(found.machine),
        "alone": found.alone,
        "absent": found.absent,
        "differences": [words.difference_text(each) for each in found.differences],
        "failures": found.failures,
        "overall": [{**row, "sentence": text} for row, text in texts],
        "configurations": found.configurations.rows(named=True),
    }


def _print(found: comparison.Comparison, sources: tuple[str, str], *, parts: bool) -> None:
    """What was compared, every metric over all levels, what that means, and on request each part of it."""
    for side, source, runs, invalid in zip(_SIDES, sources, found.runs, found.invalid, strict=True):
        print(
            f"{side:<10} {source}: {count_text(runs, 'run')}" + (f", {invalid} of them invalid and left out" if invalid else "")
        )
    overall = found.overall.rows(named=True)
    levels, times = (max((row[key] for row in overall), default=0) for key in ("levels", "sessions"))
    sizes = f"{count_text(levels, 'level')}, {count_text(times, 'session')}"
    print(f"{'compared':<10} {count_text(found.matched, 'pair')} of runs at {sizes}")
    for row in found.alone[:_NAMED]:
        session = f", session {row['session']}" if times > 1 else ""
        print(f"{'alone':<10} {words.place_text(found, row)}{session}, repeat {row['repeat']}: {row['side']} only")
    if len(found.alone) > _NAMED:
        print(f"{'':<10} and {count_text(len(found.alone) - _NAMED, 'more run')} without a counterpart")
    for head, text in words.beside(found):
        print(f"{head:<10} {text}")
    several = words.several(found)
    if overall:
        rows = [
            [
                *_cells(found, f"{row['deployment']} · {row['metric']}" if several else row["metric"], row),
                "–" if row["could_see"] is None else words.size_text(row["could_see"]),
            ]
            for row in overall
        ]
        print()
        print_table([["metric", "difference", "interval", "verdict", "could see"], *rows], "<><<<")
    shown = [
        f"{row['deployment'] + ' · ' if several else ''}{text}"
        for row, text in zip(overall, words.sentences(found), strict=True)
        if row["verdict"] != "no evidence"
    ]
    if shown:
        print("", *shown, sep="\n")
    print(
        "\nBetter and worse: the interval lies on one side of 0. Without any difference, 95 comparisons in 100 have no such verdict."
    )
    if found.estimates:
        print(words.ESTIMATED)
    if any(row["spread_assumed"] for row in overall):
        print(words.assumed_text(times, max(row["spread"] for row in overall)))
    if not parts:
        return
    for (deployment, metric), per_level in found.configurations.group_by("deployment", "metric", maintain_order=True):
        lines = [
            [*_cells(found, f"{row['workload']} at {row['level']:g}", row), str(row["pairs"])]
            for row in per_level.iter_rows(named=True)
        ]
        heading = f"{deployment} · {metric}" if several else str(metric)
        print()
        print_table([[heading, "difference", "interval", "verdict", "pairs"], *lines], "<><<>")


def _cells(found: comparison.Comparison, name: str, row: dict[str, Any]) -> list[str]:
    return [name, words.estimated_percent(found, row), words.interval_text(row["low"], row["high"]), row["verdict"]]
