"""What a look found, in plain words: for a terminal's panel, for a log, and as JSON."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from bench.errors import count_text, throughput_text
from bench.measure.progress import duration_text
from bench.records.progress import FinishedRun, RunUnderWay
from bench.study.config import Thresholds
from bench.watch.sessions import SILENT_S, Build, Session, Snapshot
from bench.watch.tail import Live
from bench.words.trust import changed_thresholds

NO_FAULT = "no fault so far"


def state_text(session: Session) -> str:
    """What a session is doing, and since when."""
    record, run = session.record, session.record.run
    since = f"for {duration_text(session.state_s)}"
    if session.state == "stale":
        why = "its process is gone" if session.here else "its files do not grow"
        return f"no sign of life since {_moment(session.silent_s)} ({why}); it was {_doing(session)}"
    if record.over:
        ended = {"finished": "finished", "failed": "failed", "ended": "ended by a signal"}[session.state]
        reason = f": {record.detail.splitlines()[0].rstrip('.')}" if session.state == "failed" and record.detail else ""
        return f"{ended} {duration_text(session.state_s)} ago, {_runs(record.finished)}{reason}"
    silence = f"; nothing new for {duration_text(session.silent_s)}" if session.silent_s > SILENT_S else ""
    expected = f" of about {duration_text(run.expected_s)}" if run is not None and run.expected_s is not None else ""
    return f"{_doing(session)} {since}{expected}{silence}"


def _doing(session: Session) -> str:
    record, run = session.record, session.record.run
    if run is not None:
        of = "" if record.search else f" of {record.runs}"
        return f"measuring run {run.number}{of} ({load_text(run)}, {count_text(run.requests, 'request')})"
    return {
        "starting": f"starting {record.engine}",
        "warming up": "warming up",
        "reference load": "measuring the reference load",
        "between runs": f"between runs ({_runs(record.finished)}{'' if record.search else f' of {record.runs}'})",
    }.get(record.state, record.state)


def load_text(run: RunUnderWay | FinishedRun) -> str:
    """What is sent."""
    return f"{run.workload}, {run.axis.replace('_', ' ')} {run.level:g}"


def live_cells(live: Live) -> list[tuple[str, str | None]]:
    """What the server reported last, as pairs of a title and a value; None where it does not report that."""
    return [
        ("running", _number(live.running)),
        ("queued", _number(live.waiting)),
        ("KV cache", _number(live.kv_usage and 100 * live.kv_usage, ".0f", " %")),
        ("output tokens/s", _number(live.tokens_per_s)),
        ("TTFT mean", _number(live.ttft_s, ".3f", " s")),
        ("requests done", _number(live.requests_done)),
    ]


def _number(value: float | None, form: str = ",.0f", unit: str = "") -> str | None:
    return None if value is None else f"{value:{form}}{unit}"


def finished_text(run: FinishedRun) -> str:
    """How a finished run went."""
    ttft = f"TTFT P50 {run.ttft_p50_s:.3f} s" if run.ttft_p50_s is not None else "no first token"
    return f"{load_text(run)}: {throughput_text(run.tokens_per_s)}, {ttft}, {run.duration_s:.1f} s"


def verdict_text(run: FinishedRun, reasons: tuple[str, ...] | None) -> str:
    """What speaks against a finished run so far; parsing it, with its requests and scrapes, may find more."""
    failed = [f"{count_text(run.failed, 'request', of=run.requests)} failed"] if run.failed else []
    if reasons is None:
        return "; ".join([*failed, "its record is not there"])
    return "; ".join([*failed, *(f"invalid: {reason}" for reason in reasons)]) or NO_FAULT


def limits_text(session: Session) -> str:
    """Which limits of validity the study changed; empty where it has the defaults."""
    try:
        return changed_thresholds(Thresholds(**session.record.thresholds))
    except ValueError:  # of another version
        return ""


def left_text(session: Session) -> str:
    """About how long the rest takes, and the most that searches may take beside it; empty where nothing is known."""
    if session.record.over or session.state == "stale":
        return ""
    searches_s = session.record.searches_s
    searches = f"searches of at most {duration_text(searches_s)}" if searches_s else ""
    if session.record.search:
        return f"time left: {searches}" if searches else ""
    if session.left_s is None:
        return "time left: known after the first run of a closed loop or burst" if session.record.state != "starting" else ""
    whole = session.study_left_s
    of_study = f", the study's about {duration_text(whole)}" if whole is not None and whole > session.left_s + 1 else ""
    return f"time left: about {duration_text(session.left_s)}{of_study}{f', and {searches}' if searches else ''}"


def build_text(build: Build) -> str:
    """How far an engine's environment is."""
    silent = f"; no line for {duration_text(build.silent_s)}" if build.silent_s > 60 else ""
    line = build.last_line.removeprefix(f"engine {build.engine}: ")
    return f"building {build.engine}'s environment for {duration_text(build.since_s)}: {line}{silent}"


def idle_text(snapshot: Snapshot) -> str:
    """That nothing is measured, and what was last."""
    last = snapshot.last
    if last is None:
        return "No session runs here, and none has; `make figures` starts them."
    return f"No session runs. The last one: {last.record.deployment}, session {last.record.session}, {state_text(last)}."


def news(before: Snapshot | None, now: Snapshot) -> list[str]:
    """What changed between two looks, one line each: for a log. Numbers that always change are no news."""
    lines = [build_text(build) for build in now.builds if before is None or build.last_line not in _last_lines(before)]
    known = {session.key: session for session in (*before.ended, *before.sessions)} if before else {}
    for session in (*now.ended, *now.sessions):
        old = known.get(session.key)
        name = session.record.deployment
        done = {run for run, _ in old.verdicts} if old else set()
        for run, reasons in session.verdicts if before else ():
            if run not in done:
                lines.append(f"{name}: {finished_text(run)}: {verdict_text(run, reasons)}")
        if old is None and (changed := limits_text(session)):
            lines.append(f"{name}: {changed}")
        if old is None or (old.state, old.record.run) != (session.state, session.record.run):
            left = left_text(session)
            lines.append(f"{name}: {state_text(session)}" + (f"; {left}" if left and session.record.run else ""))
    gone = before is None or before.sessions or before.builds
    if not now.sessions and not now.builds and gone:
        lines.append("No session runs." if now.last in now.ended else idle_text(now))
    return lines


def _last_lines(snapshot: Snapshot) -> set[str]:
    return {build.last_line for build in snapshot.builds}


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """A look for another program."""
    return {
        "sessions": [_session(session) for session in snapshot.sessions],
        "ended": [_session(session) for session in snapshot.ended],
        "builds": [asdict(build) for build in snapshot.builds],
        "last": _session(snapshot.last) if snapshot.last else None,
    }


def _session(session: Session) -> dict[str, Any]:
    content = asdict(session)
    record = content.pop("record")
    for key in ("thresholds", "finished", "state", "left_s", "study_left_s"):
        record.pop(key)
    verdicts = [{**asdict(run), "reasons": reasons} for run, reasons in session.verdicts]
    return {**record, **content, "verdicts": verdicts}


def _runs(finished: tuple[FinishedRun, ...]) -> str:
    return f"{count_text(len(finished), 'run')} done"


def _moment(ago_s: float) -> str:
    """A moment of the past by our clock; with the date where it was not today."""
    at, today = time.localtime(time.time() - ago_s), time.localtime()
    return time.strftime("%H:%M:%S" if at.tm_yday == today.tm_yday and at.tm_year == today.tm_year else "%F %H:%M", at)
