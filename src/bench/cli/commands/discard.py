"""`bench discard`: what of a study is to be measured again."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import Configfile, Json, Select, flag
from bench.cli.output import print_json
from bench.errors import BenchError


@command(
    "bench discard 'tiny-mha/*_c0020_*' --dry-run",
    "bench discard --invalid",
    "bench discard --configfile config/studies/quick.yaml '*'",
)
def discard(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATTERN]...",
            help="deployment/run or run, or a shell pattern of one, such as '*_c0020_*'.",
            autocompletion=completion.runs,
        ),
    ] = None,
    configfile: Configfile = None,
    select: Select = None,
    invalid: Annotated[bool, flag("--invalid", "The runs of which some part cannot be trusted.")] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Only print what would be forgotten.")] = False,
    json: Json = False,
) -> None:
    """Forgets the measurements of the runs that match, and the indexes of their sessions, so that the next workflow measures them
    again. (Deleting a run's folder is not enough: its session would still count as measured.)
    """
    from bench.cli.study import load_plan
    from bench.cli.verdicts import judged_runs, unjudged_text
    from bench.runs.paths import Paths
    from bench.runs.store import Store
    from bench.shipped import BENCH
    from bench.study.state import run_states

    patterns = patterns or []
    if not patterns and not invalid:
        raise BenchError("name the runs to forget: a pattern, such as '*_c0020_*', or --invalid.")
    _, plan = load_plan(configfile, select, json=json)
    judged = judged_runs() if invalid else {}
    rejected = {digest for digest, verdict in judged.items() if verdict["faults"]}
    wanted = [
        run
        for run in plan.runs
        if run.digest in rejected
        or any(fnmatchcase(run.key, pattern) or fnmatchcase(run.name, pattern) for pattern in patterns)
    ]
    if invalid and (unjudged := unjudged_text(run_states(plan, Store(), rejected), judged)):
        raise BenchError(unjudged)
    if not wanted and invalid and not patterns:
        if json:
            print_json([])
        else:
            print("No measured run of this study is invalid: nothing to forget.")
        return
    if not wanted:
        what = " or ".join([*patterns, *(["invalid"] if invalid else [])])
        raise BenchError(f"no run matches {what}; `{BENCH} runs` lists them.")
    store = Store()
    if not dry_run:
        for run in wanted:
            Paths.session(run.deployment.name, plan.place_of(run).session).unlink(missing_ok=True)
            store.discard(run)
    if json:
        print_json([run.key for run in wanted])
        return
    for run in wanted:
        print(("would forget " if dry_run else "forgot ") + run.key)
