"""`bench runs` and `bench discard`: what a study consists of, and what of it is to be measured again."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from bench.cli.common import Commands, add_config, load_plan, print_json
from bench.errors import BenchError
from bench.measure.state import run_states
from bench.measure.store import Store
from bench.study import Paths

__all__ = ["add"]


def add(commands: Commands) -> None:
    runs = commands.add_parser(
        "runs",
        help="list a study's runs with the state of each",
        description="List a study's runs, one a line: state, deployment/run. States: missing, measured, stale (something that "
        "defines it changed), invalid (measured, and a check refuses it).",
    )
    add_config(runs)
    runs.add_argument("--json", action="store_true", help="a JSON list, with each run's definition, digest and reasons")
    runs.set_defaults(run=_runs)
    discard = commands.add_parser(
        "discard",
        help="forget runs, so that they are measured again",
        description="Forget the measurements of the runs that match, and the summary and manifest made from them; the next workflow "
        "measures them again. (Deleting a run's folder is not enough: Snakemake would not look for it behind newer results.)",
    )
    add_config(discard)
    discard.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="deployment/run or run, or a shell pattern of one, such as '*_c0020_*'"
    )
    discard.add_argument("--invalid", action="store_true", help="the runs that a check refused")
    discard.add_argument("--dry-run", action="store_true", help="only say what would be forgotten")
    discard.add_argument("--json", action="store_true", help="a JSON list of the runs forgotten")
    discard.set_defaults(run=_discard)


def _runs(options: argparse.Namespace) -> None:
    plan = load_plan(options)
    reasons = _reasons()
    states = run_states(plan, Store(Path(Paths.STORE)), reasons)
    if options.json:
        print_json(
            [
                {**run.definition, "digest": run.digest, "state": state, "reasons": reasons.get(run.digest, [])}
                for run, state in states
            ]
        )
        return
    for run, state in states:
        why = f"  {'; '.join(reasons[run.digest])}" if state == "invalid" else ""
        print(f"{state:<9} {run.key}{why}")
    counts = Counter(state for _, state in states)
    print(f"{len(states)} runs: " + ", ".join(f"{count} {state}" for state, count in counts.items()))


def _reasons() -> dict[str, list[str]]:
    """Reasons of invalid runs, by digest, from the last aggregate; none where there was none."""
    path = Path(Paths.SUMMARY)
    if not path.exists():
        return {}
    import polars as pl  # noqa: PLC0415 - a list of runs must not cost half a second

    invalid = pl.scan_parquet(path).filter(~pl.col("valid")).select("digest", "reasons").collect()
    return {digest: list(reasons) for digest, reasons in invalid.iter_rows()}


def _discard(options: argparse.Namespace) -> None:
    if not options.patterns and not options.invalid:
        raise BenchError("name the runs to forget: a pattern, such as '*_c0020_*', or --invalid.")
    plan = load_plan(options)
    reasons = _reasons() if options.invalid else {}
    wanted = [
        run
        for run in plan.runs
        if run.digest in reasons
        or any(fnmatchcase(run.key, pattern) or fnmatchcase(run.name, pattern) for pattern in options.patterns)
    ]
    if not wanted and options.invalid and not options.patterns:
        print("no run is invalid: nothing to forget")
        return
    if not wanted:
        what = " or ".join([*options.patterns, *(["invalid"] if options.invalid else [])])
        raise BenchError(f"no run matches {what}; `bench runs` lists them.")
    store = Store(Path(Paths.STORE))
    if not options.dry_run:
        for run in wanted:
            shutil.rmtree(run.record.parent, ignore_errors=True)
            store.discard(run.digest)
        # Snakemake does not look for a file that is missing behind results that are there: what was made of the runs goes too.
        for made in (Paths.SUMMARY, Paths.SUMMARY_CSV, Paths.TIMESERIES, Paths.MANIFEST):
            Path(made).unlink(missing_ok=True)
    if options.json:
        print_json([run.key for run in wanted])
        return
    for run in wanted:
        print(("would forget " if options.dry_run else "forgot ") + run.key)
