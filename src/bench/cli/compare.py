"""`bench compare`: is one set of results better or worse than another, and could it have been seen?"""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from bench.cli.common import Commands, print_json
from bench.cli.compared import SIGHT, content, print_comparison
from bench.cli.needed import add_plan, plan_sessions
from bench.cli.sources import read_source
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.analysis import Comparison

__all__ = ["add"]


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "compare",
        help="say whether one set of results is better or worse than another",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Compare the runs of B, the candidate, with those of A, the baseline, that have the same workload, load, session and repeat: the
difference in each metric, its interval, and a verdict over all levels, by region and by level. A and B are each

  results, runs/today      a folder with summary.parquet or results/summary.parquet, or one of parsed runs, at any depth
  old/summary.parquet      a table
  results:tiny-mha         either of them and one of its deployments
  tiny-mha                 a deployment of the study in this folder (results/summary.parquet)

Deployments are matched by name; where A and B are one each, whatever they are called. Invalid runs are left out; failed requests are
compared by themselves.""",
        epilog="Exit status: 0; 2 for what you can fix; with --fail-on-regression 1 for a regression, and 3 where one could\n"
        "have been overlooked. What a verdict means, and how often it is wrong: docs/explanation/comparing.md.",
    )
    parser.add_argument("baseline", metavar="A", nargs="?", help="what is compared with")
    parser.add_argument("candidate", metavar="B", nargs="?", help="what is compared")
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="only this column of the summary table, such as ttft_p50_s; repeatable. The fewer, the narrower their intervals "
        "(default: all that are there)",
    )
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="A2",
        help="A measured once more, in another session; repeatable. It tells how far sessions differ, where there are fewer than four",
    )
    parser.add_argument(
        "--between",
        type=_percent,
        metavar="PERCENT",
        help="how far the ratio of two sessions of one server is off (standard deviation), where fewer than four were measured, and "
        "for --plan (default: 10)",
    )
    parser.add_argument("--runs", action="store_true", help="each level, region and trend too")
    parser.add_argument(
        "--difference",
        type=_percent,
        metavar="PERCENT",
        help="say how many sessions find such a difference over all levels",
    )
    add_plan(parser)
    parser.add_argument(
        "--fail-on-regression",
        nargs="?",
        const=0.0,
        type=_percent,
        metavar="PERCENT",
        help="exit 1 where a metric is worse, over all levels, in a region or at a level, or more requests fail; with "
        "PERCENT, where the whole interval is worse by more than that. Exit 3 where a regression of PERCENT (else of 5) over all "
        "levels could be overlooked. Put it behind A and B",
    )
    parser.add_argument(
        "--allow-blind",
        action="store_true",
        help="with --fail-on-regression: exit 0 where a regression could have been overlooked",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no percentage of 0 or more. Put the option behind A and B, or write --fail-on-regression=5"
        )
    return value


def _run(options: argparse.Namespace) -> None:
    if options.plan:
        plan_sessions(options)
        return
    if not options.candidate:
        raise BenchError("give A, the baseline, and B, the candidate; or --plan, for what a comparison would take.")
    from bench.words.comparison import blind_spots, regression_lines  # noqa: PLC0415 - --help must not pay for it

    found = _compared(options)
    worse = regression_lines(found, options.fail_on_regression or 0.0)
    missed = blind_spots(found, options.fail_on_regression or SIGHT)
    if options.json:
        print_json(content(found, options, worse, missed))
    else:
        print_comparison(found, options)
    if options.fail_on_regression is not None:
        _decide(worse, missed, options)


def _compared(options: argparse.Namespace) -> Comparison:
    """The comparison that the options ask for.

    Raises:
        BenchError: there is nothing to compare.
    """
    from bench.analysis import compare, with_replicas  # noqa: PLC0415 - --help must not pay for it
    from bench.analysis.blocks import ASSUMED_SPREAD  # noqa: PLC0415 - as above
    from bench.records.columns import METRICS  # noqa: PLC0415 - as above

    for name in options.metric or []:
        if name not in METRICS:
            raise BenchError(f"--metric {name}: not among those that are compared: {', '.join(METRICS)}.")
    baseline, candidate = read_source(options.baseline), read_source(options.candidate)
    metrics = list(dict.fromkeys(options.metric or METRICS))
    spread = ASSUMED_SPREAD if options.between is None else options.between / 100
    found = compare(baseline, candidate, metrics, spread=spread)
    _refuse_nothing(found, options)
    again = [compare(baseline, read_source(source), metrics) for source in options.again]
    for source, other in zip(options.again, again, strict=True):
        if not other.matched:
            raise BenchError(
                f"--again {source}: has no valid run with the workload, load and repeat of one in {options.baseline}."
            )
    return with_replicas(found, again, spread=spread)


def _decide(worse: list[str], missed: list[str], options: argparse.Namespace) -> None:
    """End with the status of the gate, and why."""
    limit = options.fail_on_regression
    more = f" by more than {limit:g} %" if limit else ""
    for line in worse:
        print(f"regression: {line}{more if 'failed' not in line else ''}", file=sys.stderr)
    if worse:
        sys.exit(1)
    for line in missed:
        print(f"cannot see: {line}", file=sys.stderr)
    if missed and not options.allow_blind:
        print(
            "No regression was found, and one could have been overlooked: this is no pass. Measure more, look at fewer metrics "
            "(--metric), ask for a larger PERCENT, or give --allow-blind.",
            file=sys.stderr,
        )
        sys.exit(3)


def _refuse_nothing(found: Comparison, options: argparse.Namespace) -> None:
    """Say why nothing can be compared.

    Raises:
        BenchError: there is no pair with a value of any metric.
    """
    from bench.records.columns import METRICS  # noqa: PLC0415 - as above

    if found.matched or found.failures.height:
        return
    for side, runs, invalid in zip((options.baseline, options.candidate), found.runs, found.invalid, strict=True):
        if runs == invalid:
            raise BenchError(
                f"{side}: each of its {runs} runs is invalid; `bench runs` says why, or the column reasons in summary.csv."
            )
    if found.alone.height == sum(found.runs) - sum(found.invalid):
        raise BenchError(
            f"{options.candidate} has no run with the workload, load and repeat of one in {options.baseline}: "
            f"{_loads(found, 'baseline')}; {_loads(found, 'candidate')}."
        )
    raise BenchError(f"{', '.join(options.metric or METRICS)}: no pair of runs has a value on both sides.")


def _loads(found: Comparison, side: str) -> str:
    """What one side measured, such as `the baseline has short at 1, 2, 4`."""
    mine = found.alone.filter(side=side).group_by("deployment", "workload", maintain_order=True).agg("level")
    loads = [f"{workload} at {', '.join(f'{x:g}' for x in sorted(set(levels)))}" for _, workload, levels in mine.iter_rows()]
    return f"the {side} has {'; '.join(dict.fromkeys(loads))}"
