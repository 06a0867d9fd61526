"""`bench runs`: what a study consists of, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from bench.cli.entry import command
from bench.cli.options import Configfile, Json, Select, flag
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, count_text

if TYPE_CHECKING:
    from bench.cli.verdicts import Verdict
    from bench.study.plan import Plan
    from bench.study.searches import SearchSpec


@command(
    "bench runs",
    "bench runs --configfile config/studies/quick.yaml",
    "bench runs --select 'tiny-mha/*' --json",
    "bench runs --watch",
)
def runs(
    configfile: Configfile = None,
    select: Select = None,
    watch: Annotated[
        bool, flag("--watch", "Show the sessions that measure now, a line each, once a second until Ctrl-C.")
    ] = False,
    json: Json = False,
) -> None:
    """missing: not measured. measured. stale: something that defines the run has changed since. invalid: measured, and some part of it
    cannot be trusted; the part and the reasons follow. Failed requests are the server's answer to its load: they do not make a run
    invalid.
    """
    if watch:
        from bench.cli.watching import follow

        if configfile or select or json:
            raise BenchError("--watch shows every session of this folder. Leave the other options out.")
        follow()
        return
    from bench.cli.study import load_plan
    from bench.cli.verdicts import in_words, judged_runs, unjudged_text, verdict_text
    from bench.measure.preflight import misfits
    from bench.runs.store import Store
    from bench.study.precision import auto_lines, prompt_lines, thin_levels
    from bench.study.state import run_states, unended_searches

    _, plan = load_plan(configfile, select, json=json)
    judged = judged_runs()
    rejected = {digest for digest, verdict in judged.items() if verdict["faults"]}
    states = run_states(plan, Store(), rejected)
    if json:
        unknown: Verdict = {"faults": [], "reasons": [], "failures": None, "stopped": None}
        print_json(
            [
                {
                    **run.definition,
                    **asdict(plan.place_of(run)),
                    "digest": run.digest,
                    "state": state,
                    **in_words(judged.get(run.digest, unknown)),
                }
                for run, state in states
            ]
        )
        return
    verdicts = [judged.get(run.digest) if state in ("measured", "invalid") else None for run, state in states]
    rows = [
        [state, run.key, verdict_text(verdict) if verdict else ""]
        for (run, state), verdict in zip(states, verdicts, strict=True)
    ]
    unended = unended_searches(plan, Store())
    rows += [[state, search.key, text] for search, state, text in _searches(plan, unended, rejected)]
    print_table(rows, "<<<", head=False)
    counts = Counter(state for _, state in states)
    if states or not plan.searches:
        print(
            ": ".join(filter(None, (count_text(len(states), "run"), ", ".join(f"{n} {state}" for state, n in counts.items()))))
        )
    if left := _left_text(plan, unended):
        print(left)
    for fault in misfits(plan, Store()):
        print(f"Cannot be measured here: {fault}")
    if plan.tuned:
        print(_tuning_text(plan))
    if unjudged := unjudged_text(states, judged):
        print(f"Note: {unjudged}")
    if rejected:
        from bench.findings.trust import accept_others

        if allowed := accept_others(verdict["reasons"] for verdict in verdicts if verdict):
            print(f"Note: {allowed}")
    for line in (*prompt_lines(plan), *auto_lines(plan), *thin_levels(plan.listed, plan.config.decision.slos)):
        print(f"Note: {line}")


def _tuning_text(plan: Plan) -> str:
    from pathlib import Path

    from bench.runs.files import read
    from bench.runs.paths import Paths
    from bench.runs.tuning import TuningRecord, read_visits
    from bench.search.tuning_words import state_line

    assert plan.tuned is not None
    assert plan.config.tune is not None
    minutes, file = plan.config.tune.minutes, Path(Paths.TUNING)
    try:
        found = read(TuningRecord, file) if file.exists() else None
    except BenchError:  # of another version: the next tuning writes it again
        found = None
    ended = found is not None and found.digest == plan.tuning_digest and found.minutes >= minutes
    visits = read_visits(Path(Paths.VISITS), plan.tuning_digest).visits
    return state_line(visits, found if ended else None, len(plan.tuned.deployments), minutes)


def _left_text(plan: Plan, searches: Sequence[SearchSpec]) -> str:
    """What is left to measure: the starts of servers, and the time at the speed of what is measured; empty where nothing is.

    Args:
        searches: those that have not ended.
    """
    from bench.cli.verdicts import durations
    from bench.measure.progress import Clock, duration_text
    from bench.report.measuring import runs_and_searches, starts
    from bench.runs.store import Store

    holds = Store().holds
    missing = [run for run in plan.listed if not holds(run)]
    if not missing and not searches:
        return ""
    clock, known = Clock(), durations()
    clock.add([*missing, *(run for run in plan.runs if run.digest in known)])
    for run in plan.runs:
        if run.digest in known:
            clock.finish(run, known[run.digest])
    begun = starts(plan, holds, searches)
    takes = (
        f"about {duration_text(clock.left_s)} of load" if clock.left_s is not None else "a time that the first runs will tell"
    )
    parts = [
        runs_and_searches(len(missing), len(searches)),
        *([f"{count_text(begun, 'start')} of a server"] if begun else []),
        *([takes] if missing else []),
    ]
    unknown = f" How long a search takes is not known ahead{', and not in this' if missing else ''}." if searches else ""
    return f"To measure: {', '.join(parts)}.{unknown}"


def _searches(plan: Plan, unended: Sequence[SearchSpec], rejected: Collection[str]) -> list[tuple[SearchSpec, str, str]]:
    """Each search with its state and its answer. Args: rejected: digests of invalid runs."""
    from bench.search.answer import search_ended, search_limit
    from bench.study.searches import search_record

    found = []
    for search in plan.searches:
        answer = None if search in unended else search_record(search)
        if answer is None:
            found.append((search, "missing", ""))
            continue
        invalid = bool(answer.runs) and all(run.digest in rejected for run in answer.runs)
        found.append((search, "invalid" if invalid else "measured", f"{search_limit(answer)}; {search_ended(answer)}"))
    return found
