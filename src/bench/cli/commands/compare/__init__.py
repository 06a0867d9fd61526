"""`bench compare`: is one set of results better or worse than another, and could it have been seen?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from bench.cli.entry import command
from bench.cli.options import Json, at_least_one, flag, option, percent

_GATE = "As a gate"
_PLAN = "Before anything is measured"


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
        from bench.cli.commands.compare.compared import compare, sessions

        if not self.baseline and self.difference is not None:
            sessions(self, self.difference)
        else:
            compare(self)
