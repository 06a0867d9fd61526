"""`bench compare`: is one set of results better or worse than another?"""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING, Any

from bench.cli.common import Commands, print_json
from bench.cli.sources import read_source
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.analysis import Comparison

__all__ = ["add"]

_TOLD = 5  # runs without a counterpart that are named


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "compare",
        help="say whether one set of results is better or worse than another",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Compare the runs of B, the candidate, with those of A, the baseline, that have the same workload, load and repeat: the difference in
each metric, its interval, and a verdict. A and B are each

  results, runs/today      a folder with summary.parquet or results/summary.parquet, or one of parsed runs, at any depth
  old/summary.parquet      a table
  results:tiny-mha         either of them and one of its deployments
  tiny-mha                 a deployment of the study in this folder (results/summary.parquet)

Deployments are matched by name; where A and B are one each, whatever they are called. Invalid runs are left out.""",
        epilog="Exit status: 0; 1 for a regression, with --fail-on-regression; 2 for what you can mend.\n"
        "What a verdict means, and how often it is wrong: docs/metrics.md, Comparison.",
    )
    parser.add_argument("baseline", metavar="A", help="what is compared with")
    parser.add_argument("candidate", metavar="B", help="what is compared")
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
        help="A measured once more, in another session; repeatable. Better and worse then lie outside of what one more session of A "
        "would show; of two sessions in all that is wide, of four it is a third",
    )
    parser.add_argument("--runs", action="store_true", help="each level too, with the interval of its repeats")
    parser.add_argument(
        "--fail-on-regression",
        nargs="?",
        const=0.0,
        type=_percent,
        metavar="PERCENT",
        help="exit 1 where a metric is worse; with PERCENT, where its whole interval is worse by more than that. Put it behind A and B",
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
    from bench.analysis import METRICS, beyond, compare, regressions  # noqa: PLC0415 - --help must not pay for it

    for name in options.metric or []:
        if name not in METRICS:
            raise BenchError(f"--metric {name}: not among those that are compared: {', '.join(METRICS)}.")
    baseline, candidate = read_source(options.baseline), read_source(options.candidate)
    metrics = list(dict.fromkeys(options.metric or METRICS))
    found = compare(baseline, candidate, metrics)
    _refuse_nothing(found, options)
    again = [compare(baseline, read_source(source), metrics) for source in options.again]
    for source, other in zip(options.again, again, strict=True):
        if not other.matched:
            raise BenchError(
                f"--again {source}: has no valid run with the workload, load and repeat of one in {options.baseline}."
            )
    found = beyond(found, again)
    limit = options.fail_on_regression
    if limit is not None and found.overall["low"].null_count() == found.overall.height:
        raise BenchError(
            "--fail-on-regression: a single pair of runs has no interval, so no regression could be found. Measure two levels or more, "
            "better six, or repeat one."
        )
    worse = regressions(found.overall, limit or 0.0)["metric"].to_list()
    if options.json:
        print_json(_content(found, options, worse))
    else:
        _print(found, options)
    if limit is not None and worse:
        more = f" by more than {limit:g} %" if limit else ""
        print(f"regression: {', '.join(worse)} {'is' if len(worse) == 1 else 'are'} worse{more}", file=sys.stderr)
        sys.exit(1)


def _refuse_nothing(found: Comparison, options: argparse.Namespace) -> None:
    """Say why nothing can be compared.

    Raises:
        BenchError: there is no pair with a value of any metric.
    """
    from bench.analysis import METRICS  # noqa: PLC0415 - as above

    if found.matched:
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


def _content(found: Comparison, options: argparse.Namespace, worse: list[str]) -> dict[str, Any]:
    """The whole result as plain data; ratios are candidate / baseline."""
    sides = zip(("baseline", "candidate"), (options.baseline, options.candidate), found.runs, found.invalid, strict=True)
    return {
        **{side: {"source": source, "runs": runs, "invalid": invalid} for side, source, runs, invalid in sides},
        "pairs": found.matched,
        "alone": found.alone.drop("nth").to_dicts(),
        "absent": found.absent,
        "differences": found.differences,
        "overall": found.overall.to_dicts(),
        "configurations": found.configurations.to_dicts(),
        "regressions": worse,
    }


def _print(found: Comparison, options: argparse.Namespace) -> None:
    for side, source, runs, invalid in zip(
        ("baseline", "candidate"), (options.baseline, options.candidate), found.runs, found.invalid, strict=True
    ):
        print(f"{side:<10} {source}: {runs} runs" + (f", {invalid} of them invalid and left out" if invalid else ""))
    levels = found.overall["levels"].max()
    print(f"{'compared':<10} {_count(found.matched, 'pair')} of runs at {_count(levels, 'level')}")
    for row in found.alone.head(_TOLD).iter_rows(named=True):
        print(f"{'alone':<10} {_configuration(found, row)}, repeat {row['repeat']}: {row['side']} only")
    if found.alone.height > _TOLD:
        print(f"{'':<10} and {found.alone.height - _TOLD} more runs without a counterpart")
    for name in found.absent:
        print(f"{'absent':<10} {name}: no pair has a value of it on both sides")
    for line in found.differences:
        print(f"{'differs':<10} {line}")
    print(f"\n{'metric':<28}{'difference':>12}   {'interval':<22}verdict")
    for row in found.overall.iter_rows(named=True):
        print(_line(row["metric"], row))
    _print_levels(found)
    _print_meaning(found)
    if options.runs:
        for metric, rows in found.configurations.group_by("metric", maintain_order=True):
            print(f"\n{metric[0]!s:<28}{'difference':>12}   {'interval (95 % each)':<22}verdict       pairs")
            for row in rows.iter_rows(named=True):
                print(f"{_line(_configuration(found, row), row):<77}{row['pairs']:>7}")


def _print_levels(found: Comparison) -> None:
    """Levels with a verdict of their own in metrics that have none over all: an effect that changes with the load is no single one."""
    quiet = found.overall.filter(verdict="no evidence").select("metric")
    own = found.configurations.join(quiet, on="metric", how="semi", maintain_order="left")
    own = own.filter(own["verdict"] != "no evidence")
    for (metric, verdict), rows in own.group_by("metric", "verdict", maintain_order=True):
        levels = ", ".join(_configuration(found, row) for row in rows.iter_rows(named=True))
        print(f"{'look at':<10} {metric}: {verdict} by itself at {levels} (--runs)")


def _print_meaning(found: Comparison) -> None:
    """What the verdicts above rest on."""
    widened = ", widened for the number of metrics (Holm)" if found.overall.height > 1 else ""
    print(f"\nBetter and worse: the interval lies on one side of 0. It is of 95 % confidence{widened}.")
    if found.overall["levels"].max() == 1:
        print("A single level: the interval knows its repeats alone, not whether other levels agree.")
    if found.overall["same_low"].null_count() < found.overall.height:
        print("They also lie outside of what one more session of the baseline would show:")
        for row in found.overall.drop_nulls("same_low").iter_rows(named=True):
            print(f"  {row['metric']:<28}{_percents(row['same_low'])} to {_percents(row['same_high'])} %")
    else:
        print("What differs between one start of a server and the next is in the difference, and in no interval (see --again).")


def _configuration(found: Comparison, row: dict[str, Any]) -> str:
    several = found.pairs["deployment"].n_unique() > 1
    return f"{row['deployment'] + ' · ' if several else ''}{row['workload']} at {row['level']:g}"


def _line(name: str, row: dict[str, Any]) -> str:
    interval = f"{_percents(row['low'])} to {_percents(row['high'])} %" if row["low"] is not None else "– (a single one)"
    return f"{name:<28}{_percents(row['ratio']) + ' %':>12}   {interval:<22}{row['verdict']}"


def _percents(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}".replace("-", "−")


def _count(number: Any, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
