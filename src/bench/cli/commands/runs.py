"""`bench runs`: what a study consists of, how far it is, and what of it is to be measured again."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from bench.cli.entry import command
from bench.cli.options import Configfile, Json, Scale, Select, flag, option
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, count_text
from bench.runs.paths import Paths

if TYPE_CHECKING:
    from bench.measure.progress import SessionProgress
    from bench.study.plan import Plan
    from bench.study.searches import SearchSpec
    from bench.study.specs import RunSpec

_EVERY_S = 1.0  # between two looks at what measures; convention
_INVALID = "invalid"  # in place of a pattern of `--discard`


@command(
    "bench runs",
    "bench runs --configfile config/studies/quick.yaml",
    "bench runs --configfile config/studies/h200.yaml --scale cpu",
    "bench runs --select 'tiny-mha/*' --json",
    "bench runs --watch",
    "bench runs --discard 'tiny-mha/*_c0020_*'",
    "bench runs --discard invalid",
)
def runs(
    configfile: Configfile = None,
    select: Select = None,
    scale: Scale = None,
    watch: Annotated[
        bool, flag("--watch", "Show the sessions that measure now, a line each, once a second until Ctrl-C.")
    ] = False,
    discard: Annotated[
        list[str] | None,
        option(
            "PATTERN",
            "Forget the runs whose deployment/run or run matches, so that the next workflow measures them again; `invalid`: those of "
            "which some part cannot be trusted. Repeatable.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """missing: not measured. measured. stale: something that defines the run has changed since. invalid: measured, and some part of it
    cannot be trusted; the part and the reasons follow. Failed requests are the server's answer to its load: they do not make a run
    invalid. --discard also forgets the indexes of the runs' sessions; deleting a run's folder is not enough, as its session
    would still count as measured. --select with the same pattern shows what would go.
    """
    if watch:
        if configfile or select or scale or discard or json:
            raise BenchError("--watch shows every session of this folder. Leave the other options out.")
        _follow()
        return
    from bench.cli.study import load_plan

    _, plan = load_plan(configfile, select, scale, json=json)
    if discard:
        _discard(plan, discard, json=json)
    else:
        _list(plan, json=json)


def _discard(plan: Plan, patterns: Sequence[str], *, json: bool) -> None:
    from bench.runs.store import Store
    from bench.shipped import BENCH
    from bench.study.state import forget, run_states

    store, judged = Store(), judged_runs() if _INVALID in patterns else {}
    rejected = {digest for digest, verdict in judged.items() if verdict["faults"]}
    if _INVALID in patterns and (unjudged := _unjudged_text(run_states(plan, store, rejected), judged)):
        raise BenchError(unjudged)
    named = [pattern for pattern in patterns if pattern != _INVALID]
    wanted = [
        run
        for run in plan.runs
        if run.digest in rejected or any(fnmatchcase(run.key, each) or fnmatchcase(run.name, each) for each in named)
    ]
    if named and not wanted:
        raise BenchError(f"no run matches {' or '.join(patterns)}; `{BENCH} runs` lists them.")
    for run in wanted:
        forget(plan, store, run)
    if json:
        print_json([run.key for run in wanted])
        return
    for run in wanted:
        print(f"forgot {run.key}")
    if not wanted:
        print("No measured run of this study is invalid: nothing to forget.")


def _list(plan: Plan, *, json: bool) -> None:
    from bench.report.measuring import jobs_line
    from bench.runs.store import Store
    from bench.study.precision import auto_lines, prompt_lines, thin_levels
    from bench.study.state import run_states, unended_searches

    judged = judged_runs()
    rejected = {digest for digest, verdict in judged.items() if verdict["faults"]}
    states = run_states(plan, Store(), rejected)
    if json:
        unknown: Verdict = {"faults": [], "reasons": [], "host_other_share": None, "failures": None, "stopped": None}
        print_json(
            [
                {
                    **run.definition,
                    **asdict(plan.place_of(run)),
                    "digest": run.digest,
                    "state": state,
                    **_in_words(judged.get(run.digest, unknown)),
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
    print_table(rows, "<<<")
    counts = Counter(state for _, state in states)
    if states or not plan.searches:
        print(
            ": ".join(filter(None, (count_text(len(states), "run"), ", ".join(f"{n} {state}" for state, n in counts.items()))))
        )
    if left := _left_text(plan, unended):
        print(left)
    if jobs := jobs_line(plan, Store().holds, unended):
        print(jobs)
    if plan.tuned:
        print(_tuning_text(plan))
    if unjudged := _unjudged_text(states, judged):
        print(f"Note: {unjudged}")
    if rejected:
        from bench.findings.trust import accept_others

        if allowed := accept_others(verdict for verdict in verdicts if verdict):
            print(f"Note: {allowed}")
    for line in (*prompt_lines(plan), *auto_lines(plan), *thin_levels(plan.listed, plan.config.decision.slos)):
        print(f"Note: {line}")


def _tuning_text(plan: Plan) -> str:
    from bench.runs.files import read
    from bench.runs.searches import TuningRecord, read_visits
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
    """What is left to measure; empty where nothing is. Args: searches: those that have not ended."""
    from bench.report.measuring import runs_and_searches, starts
    from bench.runs.store import Store

    holds = Store().holds
    missing = sum(not holds(run) for run in plan.listed)
    if not missing and not searches:
        return ""
    begun = starts(plan, holds, searches)
    of = f", in {count_text(begun, 'start')} of a server" if begun else ""
    return f"To measure: {runs_and_searches(missing, len(searches))}{of}."


def _searches(plan: Plan, unended: Sequence[SearchSpec], rejected: Collection[str]) -> list[tuple[SearchSpec, str, str]]:
    """Each search with its state and its answer. Args: rejected: digests of invalid runs."""
    from bench.search.words import search_ended, search_limit
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


# What the last aggregate says of runs


class Verdict(TypedDict):
    """What the summary table says of a run: parts at fault, the reasons, others' work, failed requests, and an early end (None if
    none).
    """

    faults: list[str]
    reasons: list[str]
    host_other_share: float | None
    failures: str | None
    stopped: str | None


def judged_runs() -> dict[str, Verdict]:
    """The verdict on each run, by digest, from the last aggregate; none where there was none."""
    if not Path(Paths.SUMMARY).exists():
        return {}
    import polars as pl

    from bench.parse.validity import failures, stopped  # with polars, which a list of runs without a table must not cost

    needed = ["digest", "faults", "reasons", "host_other_share", "failed", "requests"]
    further = pl.col("^(stopped_at_s|num_requests|failure_said|outcome_.*)$")
    try:
        rows = pl.scan_parquet(Paths.SUMMARY).select(*needed, further).collect().to_dicts()
    except pl.exceptions.PolarsError as error:
        raise BenchError(
            f"{Paths.SUMMARY}: damaged ({str(error).splitlines()[0]}). Remove it and {Paths.MANIFEST}; the study's command makes both "
            "again."
        ) from None
    return {
        row["digest"]: {
            "faults": row["faults"],
            "reasons": row["reasons"],
            "host_other_share": row["host_other_share"],
            "failures": failures(row),
            "stopped": stopped(row),
        }
        for row in rows
    }


def _in_words(verdict: Verdict) -> Verdict:
    """The verdict with its reasons in words."""
    if not verdict["reasons"]:
        return verdict
    from bench.parse.validity import reason_texts

    return {**verdict, "reasons": reason_texts(verdict["reasons"])}


def verdict_text(verdict: Verdict) -> str:
    """The parts at fault with the reasons, the requests that failed, and that it ended early; empty where there is nothing to say."""
    faults = [f"{', '.join(verdict['faults'])}: {'; '.join(_in_words(verdict)['reasons'])}"] if verdict["faults"] else []
    return "  ".join((*faults, *filter(None, (verdict["failures"], verdict["stopped"]))))


def _unjudged_text(states: Sequence[tuple[RunSpec, str]], judged: Mapping[str, Verdict]) -> str:
    """That measured runs have no verdict here, and what gives them one; empty where all have."""
    count = sum(state in ("measured", "invalid") and run.digest not in judged for run, state in states)
    return (
        f"{count} of the measured runs {'has' if count == 1 else 'have'} no verdict: {Paths.SUMMARY} is missing, or belongs to "
        "another study. Run the command that measured this study: it judges them, and measures none again."
        if count
        else ""
    )


# Sessions while they measure, from the small file that each of them writes between runs


def _follow() -> None:
    """Show a line for each session, once a second until Ctrl-C: again in its place on a terminal, else where it changed."""
    from bench.terminal import fitted

    with suppress(OSError):
        os.nice(19)  # no measurement may wait for who watches it
    told: list[str] = []
    with suppress(KeyboardInterrupt):
        while True:
            if sys.stdout.isatty():
                lines = list(map(fitted, watched_lines(time.time())))  # one that is wrapped would be two to go back
                print(f"\033[{len(told)}A" * bool(told) + "\033[J" + "\n".join(lines), flush=True)
            else:
                lines = watched_lines()
                print(*(f"{line}\n" for line in lines if line not in told), sep="", end="", flush=True)
            told = lines
            time.sleep(_EVERY_S)


def watched_lines(now: float | None = None) -> list[str]:
    """A line for each session of this folder that measures, else for the last one. Args: now: as of `session_line`."""
    from bench.measure.progress import SessionProgress, session_line
    from bench.runs.files import read

    records = []
    for pattern in (Paths.PROGRESS, Paths.SESSION_PROGRESS):
        for path in Path().glob(pattern.format(deployment="*", session="*")):
            with suppress(BenchError):  # another program's
                records.append(read(SessionProgress, path))
    records.sort(key=lambda record: record.since)
    running = [record for record in records if not record.over and not _gone(record)]
    if running:
        return [session_line(record, now) for record in running]
    if not records:
        return ["No session runs here, and none has; `make figures` starts them."]
    last = records[-1]
    lost = "its process is gone; it was at: " if not last.over else ""
    return [f"No session runs. The last one: {lost}{session_line(last)}"]


def _gone(record: SessionProgress) -> bool:
    """Whether its process has ended without a word; of one on another machine nobody knows."""
    import psutil

    return record.host == socket.gethostname() and not psutil.pid_exists(record.pid)
