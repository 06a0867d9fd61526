"""The scraper against small servers: fast, slow, dead, one that drips. Tolerances are wide: the machine may be busy."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bench.measure import scraper as module
from bench.measure.scraper import scrape, scraping
from bench.parse.scrapes import read_scrapes
from tests.support.answering import answering
from tests.support.fake_server import raw_server

INTERVAL_S = 0.1
DEAD = "http://127.0.0.1:9/metrics"


@pytest.fixture
def server():
    """URL of a server that answers at /fast, and at /slow after 0.45 s."""

    def answer(path, _):
        time.sleep(0.45 if path == "/slow" else 0.0)
        return 200, {"Content-Type": "text/plain"}, "# EOF ü\na 1\n".encode()

    with answering(answer) as (url, _):
        yield url


def run(urls, tmp_path, seconds, interval_s=INTERVAL_S):
    """The lines by endpoint, and all of them, of a scrape that is told to end after so long."""
    ended = threading.Event()
    threading.Timer(seconds, ended.set).start()
    kept = scrape(urls, interval_s, tmp_path / "t.jsonl.gz", ended=ended, ready=lambda: None)
    lines = list(read_scrapes(tmp_path / "t.jsonl.gz"))
    assert kept == sum("text" in line for line in lines)
    return {url: [line for line in lines if line["endpoint"] == url] for url in urls}, lines


def test_slots_are_absolute_a_last_scrape_follows_the_end_and_a_slow_endpoint_delays_no_other(server, tmp_path):
    fast, slow = f"{server}/fast", f"{server}/slow"
    found, lines = run([slow, fast], tmp_path, 1.5)
    assert [line["endpoint"] for line in lines[:2]] == [slow, fast]  # the order of the URLs, though the fast one came first
    late = [line for line in found[slow] if "last" not in line]
    steps = [b["slot"] - a["slot"] for a, b in itertools.pairwise(late)]
    assert steps and min(steps) >= 5  # 0.45 s at 0.1 s a slot: the skipped slots' numbers are missing
    start = lines[0]["due"]
    *regular, last = found[fast]
    for line in late:
        assert line["due"] - start == pytest.approx(line["slot"] * INTERVAL_S)
    for line in regular:
        assert line["due"] - start == pytest.approx(line["slot"] * INTERVAL_S)
        assert line["due"] <= line["sent"] <= line["received"]
        assert line["text"] == "# EOF ü\na 1\n"
        assert "last" not in line
    assert (last["last"], last["slot"] > regular[-1]["slot"]) == (True, True)
    assert last["sent"] >= start + 1.5 - INTERVAL_S / 2
    slots = [line["slot"] for line in found[fast]]
    assert slots == sorted(set(slots))
    assert len(regular) >= 5  # of 15; one after the other it would have been 3


def test_an_answer_that_never_ends_keeps_neither_the_start_nor_the_end(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SCRAPE_S", 0.5)
    monkeypatch.setattr(module, "_END_S", 1.0)

    def drip(connection):
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b"a")
            time.sleep(0.05)

    with raw_server(drip) as port:
        hangs = f"http://127.0.0.1:{port}/"
        found, _ = run([hangs, f"{server}/fast"], tmp_path, 1.5)
    assert found[hangs] == []
    assert found[f"{server}/fast"][-1]["last"]


def test_the_time_for_the_last_scrape_counts_from_the_end(server, tmp_path, monkeypatch):
    """It is on its way when a wait that began long before would be over."""
    monkeypatch.setattr(module, "_END_S", 0.8)
    found, _ = run([f"{server}/slow"], tmp_path, 1.2, interval_s=60.0)
    assert [line.get("last", False) for line in found[f"{server}/slow"]] == [False, True]


def test_the_process_starts_after_a_round_and_ends_with_a_last_scrape(server, tmp_path):
    urls = [f"{server}/fast", DEAD]
    with scraping(urls, 60.0, tmp_path / "t.jsonl.gz"):
        entered = time.monotonic()
    left = time.monotonic()
    first, second = ([line for line in read_scrapes(tmp_path / "t.jsonl.gz") if line["endpoint"] == url] for url in urls)
    for lines in (first, second):
        assert [line["slot"] for line in lines] == [0, 1]  # nothing but the first and the last: the next slot is a minute away
        assert lines[0]["received"] <= entered <= lines[1]["sent"] <= lines[1]["received"] <= left


def test_what_ends_the_process(server, tmp_path):
    for how in ("SIGTERM", "closed"):
        command = [sys.executable, "-m", "bench.measure.scraper", "60", str(tmp_path / "t.jsonl.gz"), f"{server}/fast"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            os.kill(process.pid, signal.SIGINT)  # the session's to handle
            if how == "closed":
                process.stdin.close()
            else:
                process.terminate()
            assert process.wait(timeout=60) == 0, how
        lines = [("text" in line, line.get("last", False)) for line in read_scrapes(tmp_path / "t.jsonl.gz")]
        assert lines == [(True, False), (True, True)], how
