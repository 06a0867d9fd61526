"""What a look found, drawn for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bench.errors import count_text
from bench.records.progress import RunUnderWay
from bench.watch.lines import (
    NO_FAULT,
    build_text,
    idle_text,
    left_text,
    limits_text,
    live_cells,
    load_text,
    state_text,
    verdict_text,
)
from bench.watch.sessions import Session, Snapshot

_FINISHED, _MARKED = 6, 3  # finished runs that are shown, and earlier ones that something speaks against


def draw(snapshot: Snapshot) -> RenderableType:
    """Every session that runs, one panel each, or that none does; and those that did not finish since the watch began."""
    parts: list[RenderableType] = [Text(build_text(build)) for build in snapshot.builds]
    parts += [_session(session) for session in snapshot.sessions]
    if not parts:
        parts = [Text(idle_text(snapshot))]
    for session in snapshot.ended:
        if session.state != "finished" and session != snapshot.last:
            record = session.record
            parts.append(Text(f"{record.deployment}, session {record.session}: {state_text(session)}", style="red"))
    return Group(*parts)


def _session(session: Session) -> Panel:
    record = session.record
    stale = session.state == "stale"
    parts: list[RenderableType] = [
        Text(record.study, style="dim", no_wrap=True, overflow="ellipsis"),
        Text(state_text(session), style="red" if stale else "bold"),
    ]
    if record.run is not None and not stale:
        parts += [_bar(session, record.run), *_live(session)]
    if session.last_line and not stale:
        parts.append(Text(f"server's log: {session.last_line}", style="dim", no_wrap=True, overflow="ellipsis"))
    if session.verdicts:
        parts += [Text(), _finished(session), Text()]
    if changed := limits_text(session):
        parts.append(Text(changed, style="yellow"))
    if left := left_text(session):
        parts.append(Text(left))
    doubtful = sum(bool(run.failed or reasons) for run, reasons in session.verdicts)
    remarks = f", {doubtful} with remarks" if doubtful else ""
    done = f"{count_text(len(session.verdicts), 'run', of=record.runs)} done{remarks}"
    study_done = min(record.study_done + len(session.verdicts), record.study_runs)
    done += f"; of the study {study_done} of {record.study_runs}"
    if record.search:  # nobody knows how many runs follow
        done = f"runs done: {len(session.verdicts)}{remarks}{'' if stale else '; searching'}"
        parts.append(Text(record.search))
    elsewhere = "" if session.here else f" on {record.host}"
    return Panel(
        Group(*parts),
        title=f"[bold]{record.deployment}[/]  session {record.place} of {record.sessions}{elsewhere}",
        subtitle=done,
        title_align="left",
        subtitle_align="left",
        border_style="red" if stale else "blue",
    )


def _bar(session: Session, run: RunUnderWay) -> RenderableType:
    """How far a run is: by its requests where the server counts them, else by its time; empty where neither is known."""
    share = session.state_s / run.expected_s if run.expected_s else 0.0
    if session.live and session.live.requests_done is not None:
        share = session.live.requests_done / run.requests
    row = Table.grid()  # a bar alone does not end its line
    row.add_row(ProgressBar(total=1.0, completed=min(share, 1.0), width=60, complete_style="blue", finished_style="blue"))
    return row


def _live(session: Session) -> list[RenderableType]:
    """What the server reports, and what its engine does not."""
    if session.live is None:
        return [Text("No scrape yet: what the server does is known from its first one on.", style="dim")]
    table = Table(box=None, padding=(0, 2, 0, 0))
    cells = live_cells(session.live)
    known = [(title, value) for title, value in cells if value is not None]
    for title, _ in known:
        table.add_column(title, justify="right", header_style="dim")
    table.add_row(*(value for _, value in known))
    parts: list[RenderableType] = [table] if known else []
    if unknown := [title for title, value in cells if value is None]:
        parts.append(Text(f"not reported by this server: {', '.join(unknown)}", style="dim"))
    if session.live.error:
        parts.append(Text(f"last scrape failed: {session.live.error}", style="yellow"))
    return parts


def _finished(session: Session) -> Table:
    """The newest runs, and before them those that something speaks against."""
    marked = [pair for pair in session.verdicts[:-_FINISHED] if pair[0].failed or pair[1]]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("finished", "tokens/s", "TTFT P50", "took"):
        table.add_column(title, justify="left" if title == "finished" else "right", header_style="dim", no_wrap=True)
    table.add_column("remarks", header_style="dim")
    for run, reasons in [*marked[-_MARKED:], *session.verdicts[-_FINISHED:]]:
        text = verdict_text(run, reasons)
        table.add_row(
            load_text(run),
            f"{run.tokens_per_s:,.0f}" if run.tokens_per_s is not None else "–",
            f"{run.ttft_p50_s:.3f} s" if run.ttft_p50_s is not None else "–",
            f"{run.duration_s:.1f} s",
            Text(text, style="dim" if text == NO_FAULT else "yellow"),
        )
    return table
