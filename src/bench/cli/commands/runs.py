"""`bench runs`: what a study consists of, how far it is, and what of it is to be measured again."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bench.bounds import LOOK_S
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

    store, judged = Store(), _judged_runs() if _INVALID in patterns else {}
    rejected = _rejected(judged)
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
    else:
        lines = [f"forgot {run.key}" for run in wanted]
        print("\n".join(lines) or "No measured run of this study is invalid: nothing to forget.")


def _list(plan: Plan, *, json: bool) -> None:
    from bench.report.measuring import jobs_line, runs_and_searches, starts
    from bench.runs.store import Store
    from bench.study.precision import auto_lines, prompt_lines, thin_levels
    from bench.study.state import run_states, unended_searches

    store, judged = Store(), _judged_runs()
    rejected = _rejected(judged)
    states = run_states(plan, store, rejected)
    if json:
        print_json(
            [
                {
                    **run.definition,
                    **asdict(plan.place_of(run)),
                    "digest": run.digest,
                    "state": state,
                    **judged.get(run.digest, Verdict()).plain,
                }
                for run, state in states
            ]
        )
        return
    verdicts = [judged.get(run.digest, Verdict()) if state in ("measured", "invalid") else Verdict() for run, state in states]
    unended = unended_searches(plan, store)
    rows = [[state, run.key, str(verdict)] for (run, state), verdict in zip(states, verdicts, strict=True)]
    print_table([*rows, *_searches(plan, unended, rejected)], "<<<")
    counts = Counter(state for _, state in states)
    if states or not plan.searches:
        print(
            ": ".join(filter(None, (count_text(len(states), "run"), ", ".join(f"{n} {state}" for state, n in counts.items()))))
        )
    missing = sum(not store.holds(run) for run in plan.listed)
    if missing or unended:
        begun = starts(plan, store.holds, unended)
        of = f", in {count_text(begun, 'start')} of a server" if begun else ""
        print(f"To measure: {runs_and_searches(missing, len(unended))}{of}.")
    if jobs := jobs_line(plan, store.holds, unended):
        print(jobs)
    if plan.tuned:
        print(_tuning_text(plan))
    notes = [_unjudged_text(states, judged)]
    if rejected:
        from bench.findings.trust import accept_others

        notes.append(accept_others({"reasons": each.codes, "host_other_share": each.others} for each in verdicts))
    notes += [*prompt_lines(plan), *auto_lines(plan), *thin_levels(plan.listed, plan.config.decision.slos)]
    for line in filter(None, notes):
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


def _searches(plan: Plan, unended: Sequence[SearchSpec], rejected: Collection[str]) -> list[list[str]]:
    """Each search with its state and its answer. Args: rejected: digests of invalid runs."""
    from bench.search.words import search_ended, search_limit
    from bench.study.searches import search_record

    found = []
    for search in plan.searches:
        answer = None if search in unended else search_record(search)
        invalid = answer and answer.runs and all(run.digest in rejected for run in answer.runs)
        state = "invalid" if invalid else "measured" if answer else "missing"
        found.append([state, search.key, f"{search_limit(answer)}; {search_ended(answer)}" if answer else ""])
    return found


@dataclass(frozen=True)
class Verdict:
    """What the last aggregate says of a run.

    Attributes:
        faults: parts at fault. codes: of the reasons. others: share of the cores that others took. failures: failed requests, in words;
            stopped: an early end. None: none.
    """

    faults: Sequence[str] = ()
    codes: Sequence[str] = ()
    others: float | None = None
    failures: str | None = None
    stopped: str | None = None

    @property
    def reasons(self) -> list[str]:
        """In words."""
        if not self.codes:
            return []
        from bench.parse.validity import reason_texts

        return reason_texts(self.codes)

    @property
    def plain(self) -> dict[str, Any]:
        """For another program."""
        return {
            "faults": list(self.faults),
            "reasons": self.reasons,
            "host_other_share": self.others,
            "failures": self.failures,
            "stopped": self.stopped,
        }

    def __str__(self) -> str:
        faults = f"{', '.join(self.faults)}: {'; '.join(self.reasons)}" if self.faults else None
        return "  ".join(filter(None, (faults, self.failures, self.stopped)))


def _judged_runs() -> dict[str, Verdict]:
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
        row["digest"]: Verdict(row["faults"], row["reasons"], row["host_other_share"], failures(row), stopped(row))
        for row in rows
    }


def _rejected(judged: Mapping[str, Verdict]) -> set[str]:
    """Digests of invalid runs."""
    return {digest for digest, verdict in judged.items() if verdict.faults}


def _unjudged_text(states: Sequence[tuple[RunSpec, str]], judged: Mapping[str, Verdict]) -> str:
    """That measured runs have no verdict here, and what gives them one; empty where all have."""
    count = sum(state in ("measured", "invalid") and run.digest not in judged for run, state in states)
    if not count:
        return ""
    return (
        f"{count} of the measured runs {'has' if count == 1 else 'have'} no verdict: {Paths.SUMMARY} is missing, or belongs to "
        "another study. Run the command that measured this study: it judges them, and measures none again."
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
                up = f"\033[{len(told)}A" if told else ""
                print(up + "\033[J" + "\n".join(lines), flush=True)
            else:
                lines = watched_lines()
                print(*(f"{line}\n" for line in lines if line not in told), sep="", end="", flush=True)
            told = lines
            time.sleep(LOOK_S)


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
