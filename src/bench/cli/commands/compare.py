"""`bench compare`: is one set of results better or worse than another, and could it have been seen?"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.entry import command
from bench.cli.options import Json, at_least_one, flag, option, percent
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, count_text, two_digits
from bench.shipped import BENCH

if TYPE_CHECKING:
    import polars as pl

    from bench.findings.comparison.compare import Comparison

_GATE = "As a gate"
_PLAN = "Before anything is measured"
_BETWEEN = 10.0  # percent: convention
_SIGHT = 5.0  # percent: the regression that a gate without a percentage has to be able to see
_SIDES = ("baseline", "candidate")
_NAMED = 5  # runs without a counterpart that are named
_LADDER = (4, 6, 8, 12, 16)  # sessions of each side that are shown beside the number that it takes


@command(
    "bench compare results:baseline results:candidate",
    "bench compare last-week results --metric throughput_tokens_per_s --fail-on-regression 5",
    "bench compare --difference 5 --noise 3 --between 5",
    after="Exit status: with --fail-on-regression 0 if nothing is worse by more than that, and it would have been seen; 1 for a "
    "regression; 3 where a metric is worse without proof, or a regression could have been overlooked; 2 for what you can fix. What a "
    "verdict means, and how often it is wrong: docs/explanation/comparing.md.",
)
@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compares the runs of B, the candidate, with those of A, the baseline, that have the same workload, load, session and repeat: the
    difference in each metric, its interval, and a verdict over all levels and by level.

    A and B are each a folder with results or with parsed runs (results, runs/today), a table (old/summary.parquet), either of them with
    one of its deployments (results:tiny-mha), or a deployment of the study in this folder (tiny-mha).

    Deployments are matched by name; where A and B are one each, whatever they are called. Invalid runs are left out; failed requests
    are compared by themselves.
    """

    baseline: Annotated[
        str | None,
        typer.Argument(metavar="[A]", help="The baseline.", show_default=False),
    ] = None
    candidate: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="The candidate.", show_default=False),
    ] = None
    metric: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Only this column of the summary table: one that is compared, or any percentile that an SLO may limit, such as ttft_p95_s. "
            "Repeatable; the fewer, the narrower their intervals.",
            default="all that are there",
        ),
    ] = None
    between: Annotated[
        float | None,
        option(
            "PERCENT",
            "By how much two sessions of one server differ (standard deviation of their ratio), where fewer than four were "
            "measured, or one side after the other, and before anything is.",
            parser=percent,
            default="10",
        ),
    ] = None
    difference: Annotated[
        float | None,
        option("PERCENT", "Without A and B: how many sessions find such a difference over all levels.", _PLAN, parser=percent),
    ] = None
    runs: Annotated[bool, flag("--runs", "Show each level too.")] = False
    json: Json = False
    fail_on_regression: Annotated[
        float | None,
        option(
            "PERCENT",
            "Exit 1 where the interval of a metric is worse by more than PERCENT, over all levels or at a level, or where more "
            "requests fail. Exit 3 where one is worse by more than PERCENT without proof, or could have been overlooked. "
            "With 0, any regression exits 1, and one of 5 % has to be visible.",
            _GATE,
            parser=percent,
        ),
    ] = None
    allow_blind: Annotated[
        bool,
        flag("--allow-blind", "Exit 0 if a regression could only have been overlooked, but not if a metric is worse.", _GATE),
    ] = False
    noise: Annotated[float, option("PERCENT", "Standard deviation of a run.", _PLAN, parser=percent)] = 4.0
    levels: Annotated[int, option("N", "Levels of load.", _PLAN, parser=at_least_one)] = 6

    def run(self) -> None:
        """Print the comparison, or what one would take; end with the status of the gate."""
        if not self.baseline and self.difference is not None:
            self._plan_sessions(self.difference)
            return
        if not self.baseline or not self.candidate:
            raise BenchError(
                "give A (the baseline) and B (the candidate), or --difference alone for what a comparison would take."
            )
        from bench.findings.comparison.words import blind_spots, regression_lines, unproven_lines

        sources, limit = (self.baseline, self.candidate), self.fail_on_regression or _SIGHT
        found = self._compared(*sources)
        told = {
            "regressions": regression_lines(found, self.fail_on_regression or 0.0),
            "unproven": unproven_lines(found, limit),
            "cannot_see": blind_spots(found, limit),
        }
        if self.json:
            print_json(_content(found, sources) | told)
        else:
            _print(found, sources, parts=self.runs)
        if self.fail_on_regression is not None:
            self._decide(*told.values())

    def _compared(self, baseline: str, candidate: str) -> Comparison:
        from bench.findings.comparison.compare import compare
        from bench.findings.comparison.effects import ASSUMED_SPREAD
        from bench.results import Results
        from bench.runs.columns import METRICS

        self._refuse_unknown()
        sides = [Results.open(source) for source in (baseline, candidate)]
        first, second = (side.own for side in sides)
        metrics = list(dict.fromkeys(self.metric or METRICS))
        spread = ASSUMED_SPREAD if self.between is None else self.between / 100
        two_jobs = sides[0].folder.resolve() != sides[1].folder.resolve()
        found = compare(first, second, metrics, spread=spread, two_jobs=two_jobs)
        _refuse_nothing(found, {baseline: first, candidate: second})
        return found

    def _refuse_unknown(self) -> None:
        from bench.findings.comparison.effects import metric_of

        for name in self.metric or ():
            try:
                metric_of(name)
            except BenchError as error:
                raise BenchError(f"--metric {error}") from None

    def _decide(self, worse: list[str], unproven: list[str], missed: list[str]) -> None:
        more = f" by more than {self.fail_on_regression:g} %" if self.fail_on_regression else ""
        for line in worse:
            print(f"regression: {line}{more if 'failed' not in line else ''}", file=sys.stderr)
        for line in unproven:
            print(f"not proven: {line}", file=sys.stderr)
        for line in missed:
            print(f"cannot see: {line}", file=sys.stderr)
        if worse:
            sys.exit(1)
        if unproven or (missed and not self.allow_blind):
            say = "a metric is worse" if unproven else "one could have been overlooked"
            print(
                f"No regression is proven, and {say}: this is no pass. Measure more sessions in turns, name fewer metrics (--metric), "
                f"or ask for a larger PERCENT{'' if unproven else '; --allow-blind passes it'}.",
                file=sys.stderr,
            )
            sys.exit(3)

    def _plan_sessions(self, difference: float) -> None:
        from bench.findings.comparison.effects import EXPECTED, Noise, sessions_for, visible

        if not 0 < self.noise < 100:
            raise BenchError(f"--noise is {self.noise:g}: a percentage above 0 and below 100.")
        if not difference:
            raise BenchError(
                "--difference is 0: no number of sessions can show it. Give the smallest difference that would change a decision."
            )
        between = _BETWEEN if self.between is None else self.between
        noise = Noise(self.noise / 100, between / 100)
        self._refuse_unknown()
        metrics = len(self.metric) if self.metric else EXPECTED
        takes = sessions_for(difference / 100, noise, self.levels, 1, metrics)
        sees = {k: 100 * visible(noise, k, self.levels, 1, metrics) for k in sorted({*_LADDER, takes or 4})}
        runs = None if takes is None else 2 * takes * self.levels
        if self.json:
            print_json(
                {
                    "difference": difference,
                    "noise": self.noise,
                    "between": between,
                    "levels": self.levels,
                    "metrics": metrics,
                    "sessions": takes,
                    "runs": runs,
                    "could_see": sees,
                }
            )
            return
        number = "more than 100 sessions" if takes is None else count_text(takes, "session")
        print(
            f"{difference:g} % over {count_text(self.levels, 'level')} takes {number} of each deployment, interleaved (A B B A …)"
            f"{f': {runs} runs' if runs else ''}."
        )
        print(
            f"Runs differ by {self.noise:g} %, sessions next to each other by {between:g} % (standard deviations; --noise, --between); "
            f"metrics: {metrics}."
        )
        print()
        rows = [[str(sessions), f"{two_digits(seen)} %"] for sessions, seen in sees.items()]
        print_table([["sessions", "could see, in 8 of 10 cases"], *rows], ">>")


def _refuse_nothing(found: Comparison, sources: Mapping[str, pl.DataFrame]) -> None:
    """Raises BenchError where no pair has a value of any metric.

    Args:
        sources: the runs of the baseline and of the candidate, by what they were read from.
    """
    from bench.findings.trust import first_line

    if found.matched or found.failures:
        return
    for side, runs in sources.items():
        if not runs["valid"].any():
            raise BenchError(
                f"{side}: {first_line(runs)} Nothing has to be measured again to judge by other limits: a study's `thresholds`, or "
                f"for folders of runs `{BENCH} parse` of each, with --threshold."
            )
    raise BenchError(
        f"no valid run of {' has the workload, load and repeat of one of '.join(sources)}, and a value to compare."
    )


def _content(found: Comparison, sources: tuple[str, str]) -> dict[str, Any]:
    """The comparison as plain data; ratios are candidate / baseline.

    Args:
        sources: of the baseline and of the candidate, as the user names them.
    """
    from bench.findings.comparison import words

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


def _print(found: Comparison, sources: tuple[str, str], *, parts: bool) -> None:
    """What was compared, every metric over all levels, what that means, and on request each part of it."""
    from bench.findings.comparison import words

    for side, source, runs, invalid in zip(_SIDES, sources, found.runs, found.invalid, strict=True):
        print(
            f"{side:<10} {source}: {count_text(runs, 'run')}" + (f", {invalid} of them invalid and left out" if invalid else "")
        )
    levels, sessions = (max(found.overall[key], default=0) for key in ("levels", "sessions"))
    sizes = f"{count_text(levels, 'level')}, {count_text(sessions, 'session')}"
    print(f"{'compared':<10} {count_text(found.matched, 'pair')} of runs at {sizes}")
    for row in found.alone[:_NAMED]:
        session = f", session {row['session']}" if sessions > 1 else ""
        print(f"{'alone':<10} {words.place_text(found, row)}{session}, repeat {row['repeat']}: {row['side']} only")
    if len(found.alone) > _NAMED:
        print(f"{'':<10} and {count_text(len(found.alone) - _NAMED, 'more run')} without a counterpart")
    for head, text in words.beside(found):
        print(f"{head:<10} {text}")
    if found.overall.height:
        print()
        rows = [
            [*_cells(found, _metric(found, row), row), "–" if row["could_see"] is None else words.size_text(row["could_see"])]
            for row in found.overall.iter_rows(named=True)
        ]
        print_table([["metric", "difference", "interval", "verdict", "could see"], *rows], "<><<<")
    shown = [
        f"{row['deployment'] + ' · ' if words.several(found) else ''}{text}"
        for row, text in zip(found.overall.iter_rows(named=True), words.sentences(found), strict=True)
        if row["verdict"] != "no evidence"
    ]
    print("".join(f"{line}\n" for line in (["", *shown] if shown else [])), end="")
    print(
        "\nBetter and worse: the interval lies on one side of 0. Without any difference, 95 comparisons in 100 have no such verdict."
    )
    if found.estimates:
        print(words.ESTIMATED)
    whole = found.overall
    if whole.height and whole["spread_assumed"].any():
        print(words.assumed_text(max(whole["sessions"]), max(whole["spread"])))
    if not parts:
        return
    for (deployment, metric), per_level in found.configurations.group_by("deployment", "metric", maintain_order=True):
        lines = [
            [*_cells(found, f"{row['workload']} at {row['level']:g}", row), str(row["pairs"])]
            for row in per_level.iter_rows(named=True)
        ]
        heading = f"{deployment} · {metric}" if words.several(found) else str(metric)
        print()
        print_table([[heading, "difference", "interval", "verdict", "pairs"], *lines], "<><<>")


def _metric(found: Comparison, row: dict[str, Any]) -> str:
    from bench.findings.comparison import words

    return f"{row['deployment']} · {row['metric']}" if words.several(found) else str(row["metric"])


def _cells(found: Comparison, name: str, row: dict[str, Any]) -> list[str]:
    from bench.findings.comparison import words

    return [name, words.estimated_percent(found, row), words.interval_text(row["low"], row["high"]), row["verdict"]]
