"""`bench compare`: is one set of results better or worse than another, and could it have been seen?"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from bench.analysis import Comparison, compare, with_replicas
from bench.analysis.blocks import ASSUMED_SPREAD
from bench.cli.compared import SIGHT, content, print_comparison
from bench.cli.needed import plan_sessions
from bench.cli.output import print_json
from bench.cli.sources import read_source
from bench.errors import BenchError
from bench.records.columns import METRICS
from bench.words.comparison import blind_spots, regression_lines

__all__ = ["run"]


def run(options: SimpleNamespace) -> None:
    if options.plan:
        plan_sessions(options)
        return
    if not options.candidate:
        raise BenchError("give A, the baseline, and B, the candidate; or --plan, for what a comparison would take.")

    found = _compared(options)
    worse = regression_lines(found, options.fail_on_regression or 0.0)
    missed = blind_spots(found, options.fail_on_regression or SIGHT)
    if options.json:
        print_json(content(found, options, worse, missed))
    else:
        print_comparison(found, options)
    if options.fail_on_regression is not None:
        _decide(worse, missed, options)


def _compared(options: SimpleNamespace) -> Comparison:
    """The comparison that the options ask for.

    Raises:
        BenchError: there is nothing to compare.
    """
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


def _decide(worse: list[str], missed: list[str], options: SimpleNamespace) -> None:
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


def _refuse_nothing(found: Comparison, options: SimpleNamespace) -> None:
    """Say why nothing can be compared.

    Raises:
        BenchError: there is no pair with a value of any metric.
    """
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
