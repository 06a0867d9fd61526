"""Scrape Prometheus endpoints, and this machine's GPUs, on an absolute schedule and keep the raw text.

A process of its own, so that it shares nothing with the client but the machine, with a thread an endpoint, so that one that is slow or
dead delays no other. Nothing is parsed here. It has real-time priority where it may: its share of a core is small, and its samples
matter most when the machine is busiest, which is when they would be late.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

import requests

from bench.bounds import LOOK_S, SOON_S
from bench.errors import BenchError, disk_error, shown
from bench.http import bounded, direct_session, leads_away
from bench.load.timer import ahead_of_the_server
from bench.measure.nvml import GpuReader
from bench.runs.environment import hidden, secret_parts, secrets_in, without_user
from bench.servers.gpu_metrics import is_nvml
from bench.servers.gpus import NvmlError

_SCRAPE_S = LOOK_S + SOON_S + 1  # longest scrape (s): a connection, and an answer; derived
_END_S = 2 * _SCRAPE_S  # longest wait at the end (s), for a scrape under way and the last one; derived

# Of a server that has several forms, the one that is read here: others round numbers or add what no number needs.
_ACCEPTED = "text/plain;version=0.0.4, */*;q=0.1"
_HEADERS = "BENCH_SCRAPE_HEADERS"  # variable of the process that `scraping` starts

_Line = dict[str, Any]


def scrape(
    urls: Sequence[str],
    interval_s: float,
    output: Path,
    *,
    ended: threading.Event,
    ready: Callable[[], None],
    headers: Mapping[str, Mapping[str, str]] | None = None,
) -> int:
    """Scrape every endpoint at start + k × interval until `ended` is set; a slot that has passed is left out, never shifted.

    Each scrape is one JSON line of the gzip file `output`: `slot`, `endpoint`, `due`, `sent` and `received` (s, CLOCK_MONOTONIC), and
    `text` or `error`. Endpoints share the slots and nothing else: a number that one lacks is a slot that it missed. The first
    lines are one of each endpoint, in the order of `urls`. After the end each is scraped a last time at once, under its next
    slot's number and with `last`, so that nothing is missed.

    Args:
        ended: set from elsewhere to end it. ready: called after the first scrape of every endpoint. headers: of the requests to an
            endpoint, by its URL.

    Returns:
        The number of scrapes that succeeded.
    """
    urls = list(dict.fromkeys(urls))
    lines: SimpleQueue[_Line] = SimpleQueue()
    start = time.monotonic()
    for url in urls:
        # A daemon: an answer that trickles in for ever must not keep the process.
        own = (headers or {}).get(url, {})
        threading.Thread(target=_follow, args=(url, own, start, interval_s, ended, lines), daemon=True).start()
    kept, flushed = 0, start
    with gzip.open(output, "wt", compresslevel=1, encoding="utf-8") as file:
        for line in _arrivals(lines, urls, ended, ready):
            file.write(json.dumps(line) + "\n")
            kept += "text" in line
            if (now := time.monotonic()) - flushed >= LOOK_S:  # for what is left of a killed session
                file.flush()
                flushed = now
    return kept


def _follow(
    url: str, headers: Mapping[str, str], start: float, interval_s: float, ended: threading.Event, lines: SimpleQueue[_Line]
) -> None:
    read = _looks(url) if is_nvml(url) else _requests(url, headers)
    slot, last = 0, False
    while not last:
        due = start + slot * interval_s
        last = ended.wait(max(0.0, due - time.monotonic()))
        sent = time.monotonic()
        line: _Line = {"slot": slot, "endpoint": url, "due": min(due, sent), "sent": sent}
        try:
            content = read()
            line["received"] = time.monotonic()
            # Expositions are UTF-8, whatever a header declares or omits.
            line["text"] = content.decode("utf-8", "replace")
        except Exception as error:  # bytes of somebody else's raise nearly anything; the thread must go on
            line["received"] = time.monotonic()
            line["error"] = str(error)[:300]
        if last:
            line["last"] = True
        lines.put(line)
        slot = max(slot + 1, int((time.monotonic() - start) / interval_s) + 1)


def _requests(url: str, headers: Mapping[str, str]) -> Callable[[], bytes]:
    """What asks an endpoint for its exposition, over one session."""
    session = direct_session(headers)
    # On the engine's own machine, compressing would cost the server's event loop more than the wire saves.
    session.headers.update({"Accept-Encoding": "identity", "Accept": _ACCEPTED})
    secrets = [*secrets_in(os.environ), *(part.encode() for part in secret_parts(headers.values()))]

    def read() -> bytes:
        answer = bounded(session.get(url, timeout=(LOOK_S, SOON_S), stream=True))
        answer.raise_for_status()
        if answer.status_code != requests.codes.ok:
            target = leads_away(answer)
            where = f"; it leads to another server, {shown(without_user(target), 200)}" if target else ""
            raise BenchError(f"{answer.status_code} in place of an exposition{where}")
        return hidden(answer.content, secrets)

    return read


def _looks(url: str) -> Callable[[], bytes]:
    """What reads the GPUs of an `nvml:` endpoint."""
    reader = GpuReader(url)
    with contextlib.suppress(NvmlError):  # which the first slot will report
        reader.read()  # NVML loads at the first look, and no sample's time should hold that
    return reader.read


def _arrivals(
    lines: SimpleQueue[_Line], urls: Sequence[str], ended: threading.Event, ready: Callable[[], None]
) -> Iterator[_Line]:
    """The lines as they come, until each endpoint's last; one that hangs is waited for no longer than any scrape may take."""
    first: list[_Line] = []
    limit = time.monotonic() + _SCRAPE_S
    with contextlib.suppress(Empty):
        while {line["endpoint"] for line in first} != set(urls):
            first.append(lines.get(timeout=max(0.0, limit - time.monotonic())))
    ready()
    first.sort(key=lambda line: (line["slot"], urls.index(line["endpoint"])))
    yield from first
    following = set(urls) - {line["endpoint"] for line in first if "last" in line}
    limit = math.inf
    while following:
        if ended.is_set() and limit == math.inf:
            limit = time.monotonic() + _END_S
        try:
            line = lines.get(timeout=LOOK_S)
        except Empty:
            if time.monotonic() > limit:
                return
            continue
        yield line
        if "last" in line:
            following.remove(line["endpoint"])


@contextlib.contextmanager
def scraping(
    urls: Sequence[str], interval_s: float, output: Path, *, headers: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[None]:
    """Scrape in another process while the context is open; entered after the first scrape of every endpoint, left after a last one.

    Args:
        urls: the engine's endpoint, then further ones; `nvml:` and what follows it are this machine's GPUs. headers: as in `scrape`.
    """
    # -P: nothing is imported from the working directory.
    command = [sys.executable, "-P", "-m", "bench.measure.scraper", str(interval_s), str(output), *urls]
    # Not among the arguments, which every user of the machine can list.
    environment = {**os.environ, _HEADERS: json.dumps({url: dict(own) for url, own in (headers or {}).items()})}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdin
    assert process.stdout
    try:
        if not process.stdout.readline():
            raise BenchError(
                f"the scraper ended before its first scrape; its own message, if any, is above: {' '.join(command)}"
            )
        yield
    finally:
        process.stdin.close()  # what ends it; were this process killed, the pipe would close all the same
        try:
            process.wait(timeout=_END_S + 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main(interval: str, output: str, *urls: str) -> None:
    """The process that `scraping` starts."""
    ended = threading.Event()
    ahead_of_the_server()  # before any thread starts: each inherits it

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    def wait_for_the_parent() -> None:
        os.read(sys.stdin.fileno(), 1)  # past Python's buffer, whose lock would be in the way of a daemon's end
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the session's to handle; it closes the pipe
    threading.Thread(target=wait_for_the_parent, daemon=True).start()
    headers = json.loads(os.environ.get(_HEADERS, "{}"))
    try:
        scrape(urls, float(interval), Path(output), ended=ended, ready=lambda: print("ready", flush=True), headers=headers)
    except OSError as error:
        if (message := disk_error(error)) is None:
            raise
        # What was written stays; the run is marked, as the scrapes after it are missing.
        print(f"the scraper ended: {message}", file=sys.stderr, flush=True)
        os._exit(1)  # the file's rest cannot be written either


if __name__ == "__main__":
    main(*sys.argv[1:])
