"""The sessions of this folder while they measure, from the small file that each of them writes between runs."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from bench.errors import BenchError
from bench.measure.progress import session_line
from bench.measure.progress_file import SessionProgress
from bench.runs.files import read
from bench.runs.paths import Paths
from bench.terminal import fitted

_EVERY_S = 1.0  # between two looks; convention


def follow() -> None:
    """Show a line for each session, once a second until Ctrl-C: again in its place on a terminal, else where it changed."""
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
    records = []
    for pattern in (Paths.PROGRESS, Paths.SESSION_PROGRESS):
        for path in Path().glob(pattern.format(deployment="*", session="*")):
            with suppress(BenchError):  # another program's
                records.append(read(SessionProgress, path))
    records.sort(key=lambda record: record.written)
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
    return record.host == socket.gethostname() and not psutil.pid_exists(record.pid)
