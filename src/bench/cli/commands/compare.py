"""`bench compare`: is one set of results better or worse than another, and could it have been seen?"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import Json, at_least_one, flag, option, percent
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, count_text
from bench.shipped import BENCH

if TYPE_CHECKING:
    import polars as pl

    from bench.findings.comparison.compare import Comparison

_GATE = "As a gate"
_PLAN = "Before anything is measured"
_DIFFERENCE = 5.0  # percent: convention
_BETWEEN = 10.0  # percent: convention
_LADDER = (4, 6, 8, 12, 16)  # sessions of each side that are shown beside the number that it takes


@command(
    "bench compare results:baseline results:candidate",
    "bench compare last-week results --metric throughput_tokens_per_s --fail-on-regression 5",
    "bench compare --plan --noise 3 --between 5 --difference 5",
    after="Exit status: with --fail-on-regression 1 for a regression, and 3 where one could have been overlooked. "
    "What a verdict means, and how often it is wrong: docs/explanation/comparing.md.",
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
        typer.Argument(metavar="[A]", help="The baseline.", show_default=False, autocompletion=completion.deployments),
    ] = None
    candidate: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="The candidate.", show_default=False, autocompletion=completion.deployments),
    ] = None
    metric: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Only this column of the summary table, such as ttft_p50_s. Repeatable; the fewer, the narrower their intervals.",
            default="all that are there",
            complete=completion.metrics,
        ),
    ] = None
    between: Annotated[
        float | None,
        option(
            "PERCENT",
            "By how much two sessions of one server differ (standard deviation of their ratio), where fewer than four were "
            "measured, and for --plan.",
            parser=percent,
            default="10",
        ),
    ] = None
    difference: Annotated[
        float | None,
        option("PERCENT", "Show how many sessions find such a difference over all levels.", parser=percent),
    ] = None
    runs: Annotated[bool, flag("--runs", "Show each level too.")] = False
    json: Json = False
    fail_on_regression: Annotated[
        float | None,
        option(
            "PERCENT",
            "Exit 1 where the interval of a metric is worse by more than PERCENT, over all levels or at a level, or where more "
            "requests fail. Exit 3 where a regression of PERCENT over all levels could have been overlooked. With 0, any "
            "regression exits 1, and one of 5 % has to be visible.",
            _GATE,
            parser=percent,
        ),
    ] = None
    allow_blind: Annotated[bool, flag("--allow-blind", "Exit 0 where --fail-on-regression would exit 3.", _GATE)] = False
    plan: Annotated[bool, flag("--plan", "Without A and B: how many sessions find --difference (by default 5 %).", _PLAN)] = (
        False
    )
    noise: Annotated[float, option("PERCENT", "Standard deviation of a run.", _PLAN, parser=percent)] = 4.0
    levels: Annotated[int, option("N", "Levels of load.", _PLAN, parser=at_least_one)] = 6
    repeats: Annotated[int, option("N", "Of a level in a session.", _PLAN, parser=at_least_one)] = 1

    def run(self) -> None:
        """Print the comparison, or what one would take; end with the status of the gate."""
        if self.plan:
            self._plan_sessions()
            return
        if not self.baseline or not self.candidate:
            raise BenchError("give A, the baseline, and B, the candidate; or --plan, for what a comparison would take.")
        from bench.cli.compared import SIGHT, content, print_comparison
        from bench.findings.comparison.words import blind_spots, regression_lines

        sources = (self.baseline, self.candidate)
        found = self._compared(*sources)
        worse = regression_lines(found, self.fail_on_regression or 0.0)
        missed = blind_spots(found, self.fail_on_regression or SIGHT)
        if self.json:
            print_json(content(found, sources, self.difference, worse, missed))
        else:
            print_comparison(found, sources, self.difference, parts=self.runs)
        if self.fail_on_regression is not None:
            self._decide(worse, missed, self.fail_on_regression)

    def _compared(self, baseline: str, candidate: str) -> Comparison:
        from bench.findings.comparison.compare import compare
        from bench.findings.comparison.effects import ASSUMED_SPREAD
        from bench.results import Results
        from bench.runs.columns import METRICS

        for name in self.metric or []:
            if name not in METRICS:
                raise BenchError(f"--metric {name}: not among those that are compared: {', '.join(METRICS)}.")
        first, second = (Results.open(source).own for source in (baseline, candidate))
        metrics = list(dict.fromkeys(self.metric or METRICS))
        spread = ASSUMED_SPREAD if self.between is None else self.between / 100
        found = compare(first, second, metrics, spread=spread)
        _refuse_nothing(found, {baseline: first, candidate: second}, self.metric or METRICS)
        return found

    def _decide(self, worse: list[str], missed: list[str], limit: float) -> None:
        more = f" by more than {limit:g} %" if limit else ""
        for line in worse:
            print(f"regression: {line}{more if 'failed' not in line else ''}", file=sys.stderr)
        if worse:
            sys.exit(1)
        for line in missed:
            print(f"cannot see: {line}", file=sys.stderr)
        if missed and not self.allow_blind:
            print(
                "No regression was found, and one could have been overlooked: this is no pass. Measure more, look at fewer metrics "
                "(--metric), ask for a larger PERCENT, or give --allow-blind.",
                file=sys.stderr,
            )
            sys.exit(3)

    def _plan_sessions(self) -> None:
        from bench.errors import two_digits
        from bench.findings.comparison import power
        from bench.findings.comparison.power import Noise, sessions_for, visible

        if not 0 < self.noise < 100:
            raise BenchError(f"--noise is {self.noise:g}: a percentage above 0 and below 100.")
        difference = _DIFFERENCE if self.difference is None else self.difference
        if not difference:
            raise BenchError(
                "--difference is 0: no number of sessions shows that. Give the smallest that would change a decision."
            )
        between = _BETWEEN if self.between is None else self.between
        noise = Noise(self.noise / 100, between / 100)
        metrics = len(self.metric) if self.metric else power.EXPECTED
        takes = sessions_for(difference / 100, noise, self.levels, self.repeats, metrics)
        sees = {k: 100 * visible(noise, k, self.levels, self.repeats, metrics) for k in sorted({*_LADDER, takes or 4})}
        if self.json:
            print_json(
                {
                    "difference": difference,
                    "noise": self.noise,
                    "between": between,
                    "levels": self.levels,
                    "repeats": self.repeats,
                    "metrics": metrics,
                    "sessions": takes,
                    "could_see": sees,
                }
            )
            return
        number = "more than 100 sessions" if takes is None else count_text(takes, "session")
        print(
            f"{difference:g} % over {count_text(self.levels, 'level')} takes {number} of each deployment, interleaved (A B B A …)."
        )
        print(
            f"Runs differ by {self.noise:g} %, sessions next to each other by {between:g} % (standard deviations; --noise, --between); "
            f"repeats: {self.repeats}; metrics: {metrics}."
        )
        print()
        rows = [[str(sessions), f"{two_digits(seen)} %"] for sessions, seen in sees.items()]
        print_table([["sessions", "could see, in 8 of 10 cases"], *rows], ">>")


def _refuse_nothing(found: Comparison, sources: Mapping[str, pl.DataFrame], metrics: Iterable[str]) -> None:
    """Raises BenchError where no pair has a value of any metric.

    Args:
        sources: the runs of the baseline and of the candidate, by what they were read from.
    """
    from bench.findings.trust import first_line

    if found.matched or found.failures or found.answers:
        return
    for side, runs in sources.items():
        if not runs["valid"].any():
            raise BenchError(
                f"{side}: {first_line(runs)} Nothing has to be measured again to judge by other limits: a study's `thresholds`, or "
                f"`{BENCH} figures` with --threshold for folders of runs."
            )
    baseline, *_, candidate = *sources, *sources
    if len(found.alone) == sum(found.runs) - sum(found.invalid):
        raise BenchError(
            f"{candidate} has no run with the workload, load and repeat of one in {baseline}: "
            f"{_loads(found, 'baseline')}; {_loads(found, 'candidate')}."
        )
    raise BenchError(f"{', '.join(metrics)}: no pair of runs has a value on both sides.")


def _loads(found: Comparison, side: str) -> str:
    """What one side measured, such as `the baseline has short at 1, 2, 4`."""
    levels: dict[tuple[str, str], set[float]] = {}
    for row in found.alone:
        if row["side"] == side:
            levels.setdefault((row["deployment"], row["workload"]), set()).add(row["level"])
    loads = [f"{workload} at {', '.join(f'{x:g}' for x in sorted(each))}" for (_, workload), each in levels.items()]
    return f"the {side} has {'; '.join(dict.fromkeys(loads))}"
