"""Scrape Prometheus endpoints on an absolute schedule and keep the raw text.

A process of its own, so that it shares nothing with the client but the machine. Nothing is parsed here.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import requests

from bench.http import direct_session

__all__ = ["main", "scrape", "scraping"]


def scrape(
    urls: Sequence[str], interval_s: float, output: Path, *, stop: Callable[[float], bool], ready: Callable[[], None]
) -> int:
    """Scrape every endpoint at start + k × interval until told to stop; a slot that has passed is left out, never shifted.

    Each scrape is one JSON line of the gzip file `output`: `slot`, `endpoint`, `due`, `sent` and `received` (s, CLOCK_MONOTONIC), and
    `text` or `error`.

    Args:
        stop: waits for so many seconds, and says whether to end. ready: called after the first round.

    Returns:
        The number of scrapes kept.
    """
    session = direct_session()
    kept = slot = 0
    with gzip.open(output, "wt", compresslevel=1, encoding="utf-8") as file:
        start = time.monotonic()
        while True:
            due = start + slot * interval_s
            for url in urls:
                line = {"slot": slot, "endpoint": url, "due": due, "sent": time.monotonic()}
                try:
                    answer = session.get(url, timeout=(1, 5))
                    line["received"] = time.monotonic()
                    answer.raise_for_status()
                    line["text"] = answer.text
                    kept += 1
                except requests.RequestException as error:
                    line["received"] = time.monotonic()
                    line["error"] = str(error)[:300]
                file.write(json.dumps(line) + "\n")
            if slot == 0:
                ready()
            slot = max(slot + 1, int((time.monotonic() - start) / interval_s) + 1)
            if stop(start + slot * interval_s - time.monotonic()):
                return kept


@contextlib.contextmanager
def scraping(url: str, interval_s: float, output: Path) -> Iterator[None]:
    """Scrape `url` in another process while the context is open; entered after the first scrape, left after a last one."""
    command = [sys.executable, "-m", "bench.telemetry", url, str(interval_s), str(output)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    try:
        if not process.stdout.readline():
            raise RuntimeError(f"the scraper ended before its first scrape: {' '.join(command)}")
        yield
    finally:
        process.stdin.close()  # what ends it; were this process killed, the pipe would close all the same
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main(url: str, interval: str, output: str) -> None:
    """The process that `scraping` starts."""
    ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the session's to handle; it closes the pipe

    def stop(wait_s: float) -> bool:
        """Wait until the next slot or the end of standard input; one more scrape follows that end, so that nothing is missed."""
        nonlocal ending
        if ending:
            return True
        ending = bool(select.select([sys.stdin], [], [], max(0.0, wait_s))[0])
        return False

    scrape([url], float(interval), Path(output), stop=stop, ready=lambda: print("ready", flush=True))
