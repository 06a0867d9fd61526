"""`bench compare`."""

from types import SimpleNamespace
from typing import Annotated

import typer

from bench.cli import completion
from bench.cli.commands.shared import STUDY, Json, at_least_one, command, percent

_GATE = "As a gate"
_PLAN = "Before anything is measured"


@command(
    STUDY,
    "bench compare results:baseline results:candidate",
    "bench compare last-week results --metric throughput_tokens_per_s --fail-on-regression 5",
    "bench compare --plan --noise 3 --between 5 --difference 5",
    after="Exit status: with --fail-on-regression 1 for a regression, and 3 where one could have been overlooked. "
    "What a verdict means, and how often it is wrong: docs/explanation/comparing.md.",
)
def compare(
    baseline: Annotated[
        str | None,
        typer.Argument(metavar="[A]", help="The baseline.", show_default=False, autocompletion=completion.deployments),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="The candidate.", show_default=False, autocompletion=completion.deployments),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this column of the summary table, such as ttft_p50_s. Repeatable; the fewer, the narrower their intervals.",
            show_default="all that are there",
            autocompletion=completion.metrics,
        ),
    ] = None,
    again: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A2",
            help="A measured once more, in another session. Repeatable; shows how far sessions differ if there are fewer than four.",
        ),
    ] = None,
    between: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            parser=percent,
            help="By how much two sessions of one server differ (standard deviation of their ratio), where fewer than four were "
            "measured, and for --plan.",
            show_default="10",
        ),
    ] = None,
    difference: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", parser=percent, help="Show how many sessions find such a difference over all levels."),
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="Show each level, region and trend too.")] = False,
    json: Json = False,
    fail_on_regression: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            parser=percent,
            rich_help_panel=_GATE,
            help="Exit 1 where the interval of a metric is worse by more than PERCENT, over all levels, in a region or at a level, "
            "or where more requests fail. Exit 3 where a regression of PERCENT over all levels could have been overlooked. With 0, any "
            "regression exits 1, and one of 5 % has to be visible.",
        ),
    ] = None,
    allow_blind: Annotated[
        bool, typer.Option("--allow-blind", rich_help_panel=_GATE, help="Exit 0 where --fail-on-regression would exit 3.")
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", rich_help_panel=_PLAN, help="Without A and B: how many sessions find --difference (by default 5 %)."
        ),
    ] = False,
    noise: Annotated[
        float, typer.Option(metavar="PERCENT", parser=percent, rich_help_panel=_PLAN, help="Standard deviation of a run.")
    ] = 4.0,
    levels: Annotated[int, typer.Option(metavar="N", parser=at_least_one, rich_help_panel=_PLAN, help="Levels of load.")] = 6,
    repeats: Annotated[
        int, typer.Option(metavar="N", parser=at_least_one, rich_help_panel=_PLAN, help="Of a level in a session.")
    ] = 1,
) -> None:
    """Compare two sets of results: is one better or worse, and could it have been seen?

    Compares the runs of B, the candidate, with those of A, the baseline, that have the same workload, load, session and repeat: the
    difference in each metric, its interval, and a verdict over all levels, by region and by level.

    A and B are each a folder with results or with parsed runs (results, runs/today), a table (old/summary.parquet), either of them with
    one of its deployments (results:tiny-mha), or a deployment of the study in this folder (tiny-mha).

    Deployments are matched by name; where A and B are one each, whatever they are called. Invalid runs are left out; failed requests
    are compared by themselves.
    """
    options = SimpleNamespace(**locals())
    options.again = again or []
    from bench.cli.compare import run

    run(options)
