"""Whoever controls a server, a pack or a lock can make a run fail, and neither fill this machine nor get another package onto it."""

import gzip
import resource
import threading
import time
from pathlib import Path

import pytest
import requests

from bench import http
from bench.bounds import MOST_BYTES
from bench.errors import BenchError
from bench.http import Oversized, get
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.measure.scraper import scrape
from bench.parse.scrapes import read_scrapes
from bench.servers import environment
from bench.servers.environment import install
from bench.workloads.workload import Workload
from tests.support.fake_server import STREAM_HEAD, TOKEN, chunk, fake_server, raw_server, read_request
from tests.support.scrapes import write_scrapes
from tests.support.server import eventually

HEAD = b"HTTP/1.1 200 OK\r\n"


def answering(*parts, pause_s=0.0, endless=b""):
    """A server that sends these bytes to whoever asks, then `endless` for ever."""

    def handle(connection):
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)
            time.sleep(pause_s)
        while endless:
            connection.sendall(endless)
            time.sleep(pause_s)

    return raw_server(handle)


def test_an_answer_that_is_too_large_is_given_up():
    bomb = gzip.compress(bytes(64 * 2**20))
    for name, head, endless in (
        ("length", b"content-length: 100000000000\r\n\r\n", b"x" * 65536),
        ("chunked", b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        ("until it closes", b"\r\n", b"x" * 65536),
        ("compressed", b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb) + bomb, b""),
    ):
        with answering(HEAD + head, endless=endless) as port, pytest.raises(Oversized) as caught:
            get(f"http://127.0.0.1:{port}/v1/models", timeout_s=30)
        assert "more than 8 MiB" in str(caught.value), name


def test_an_answer_that_trickles_is_given_up(monkeypatch):
    monkeypatch.setattr(http, "PATIENCE_S", 0.4)
    trickle = answering(HEAD + b"content-length: 1000000\r\n\r\n", pause_s=0.05, endless=b"x")
    with trickle as port, pytest.raises(Oversized, match="has not ended its answer"):
        get(f"http://127.0.0.1:{port}/metrics")


def stalling(part):
    """A server that sends this, and then nothing more."""

    def handle(connection):
        connection.recv(65536)
        connection.sendall(part)
        while connection.recv(65536):  # until the client goes
            pass

    return raw_server(handle)


def test_what_became_of_an_answer_is_said_as_it_is():
    """That nobody answered is another thing."""
    ten, parts = HEAD + b"content-length: 10\r\n\r\n", HEAD + b"transfer-encoding: chunked\r\n\r\n"
    broken, late, hung = requests.ConnectionError, requests.Timeout, "hung up without an answer in HTTP/1.1"
    large = {"endless": b"x" * 65536}
    for server, kind, said in (
        (answering(ten + b"abc"), broken, "its answer broke off after 3 bytes"),
        (answering(ten), broken, "its answer broke off after 0 bytes"),
        (answering(parts + b"5\r\nabc"), broken, "its answer broke off"),
        (answering(parts + b"abc"), broken, "its answer broke off"),
        (answering(HEAD + b"content-encoding: gzip\r\n\r\nabc"), broken, "(DecodeError)"),
        (stalling(HEAD), late, "no answer within 0.1 s"),
        (stalling(b""), late, "no answer within 0.1 s"),
        (answering(), broken, hung),
        (answering(b"SSH-2.0-OpenSSH_9.6\r\n"), broken, hung),
        (answering(HEAD + b"content-length: 9000000\r\n\r\n", **large), Oversized, "answers with more than 8 MiB"),
    ):
        with server as port:
            with pytest.raises(kind) as caught:
                get(f"http://127.0.0.1:{port}/metrics", timeout_s=0.1 if kind is late else 10.0)
            assert said in http.problem(caught.value), said
    with pytest.raises(requests.ConnectionError) as caught:
        get(f"http://127.0.0.1:{port}/")
    assert http.problem(caught.value).startswith("no such host, connection refused")


def test_a_scrape_that_is_too_large_is_an_error_and_others_share_a_connection(tmp_path):
    with fake_server(metrics="a 1.0\n") as server, answering(HEAD + b"\r\n", endless=b"a 1.0\n" * 10000) as port:
        urls = [f"{server.base_url}/metrics", f"http://127.0.0.1:{port}/metrics"]
        ended, ready = threading.Event(), threading.Event()
        output = tmp_path / "telemetry.jsonl.gz"
        thread = threading.Thread(target=scrape, args=(urls, 0.1, output), kwargs={"ended": ended, "ready": ready.set})
        thread.start()
        assert ready.wait(20)
        assert eventually(lambda: len(server.requests) > 5)
        ended.set()
        thread.join(30)
        scrapes = list(read_scrapes(output))
        connections = server.connections
    good, bad = ([each for each in scrapes if each["endpoint"] == url] for url in urls)
    assert len(good) > 4 and all(each["text"] == "a 1.0\n" for each in good)
    assert connections == 1
    assert bad and all("answers with more than 8 MiB" in each["error"] and "text" not in each for each in bad)
    assert output.stat().st_size < 10_000


def load(**workload):
    given = {"arrival": "burst", "prompt_tokens": 8, "output_tokens": 16, **workload}
    return Load(workload=Workload.model_validate(given), level=2, seed="s", timeout_s=20)


ENDLESS = {  # how an answer begins, what follows for ever, and whether it is streamed
    "an event without end": (STREAM_HEAD + chunk(TOKEN), b"10000\r\ndata: " + b"x" * 65530 + b"\r\n", True),
    "tokens that nobody asked for": (STREAM_HEAD, chunk(TOKEN) * 100, True),
    "comments": (STREAM_HEAD, b"2\r\n:\n\r\n" * 2000, True),
    "a body": (HEAD + b"content-length: 100000000000\r\n\r\n", b"x" * 65536, False),
    "a head": (HEAD, b"x-header: " + b"x" * 65536 + b"\r\n", True),
}


def cut_off(names):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    for name in names:
        begin, endless, stream = ENDLESS[name]

        def handle(connection, begin=begin, endless=endless):
            while read_request(connection):
                connection.sendall(begin)
                while True:
                    connection.sendall(endless)

        with raw_server(handle) as port:
            done = run_load(Target(f"http://127.0.0.1:{port}", "m"), load(stream=stream))
        # Cut off, and not ended by the timeout.
        assert {record.outcome for record in done.records}.isdisjoint({"ok", "timeout"}), name
        assert any("grew beyond 1,088 KiB and was cut off" in (record.error or "") for record in done.records), name
        assert all(len(record.error or "") <= 500 for record in done.records), name
    grown = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before
    assert grown < 1_500_000  # KiB; two streams, of which each is looked at twice a second


def test_an_answer_without_end_ends_its_request_and_fills_no_memory():
    cut_off(["an event without end"])


@pytest.mark.long(part="inputs")
def test_no_answer_without_end_fills_memory():
    cut_off(ENDLESS)


def test_a_long_answer_is_no_endless_one():
    with fake_server(first_s=0.0, gap_s=0.0) as server:
        done = run_load(Target(server.base_url, "m"), load(output_tokens=3000))
    assert [record.outcome for record in done.records] == ["ok", "ok"]
    assert [record.completion_tokens for record in done.records] == [3000, 3000]


def test_a_line_of_telemetry_that_no_scraper_wrote_is_refused(tmp_path):
    """Of a pack: compressed, it is a thousandth of its size."""
    path = tmp_path / "telemetry.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(80):
            file.write(b" " * 2**20)
    with pytest.raises(BenchError, match="a line of more than 49 MiB"):
        list(read_scrapes(path))
    scrape_line = {"slot": 0, "endpoint": "e", "sent": 0.0, "received": 0.0, "text": "\1" * MOST_BYTES}
    write_scrapes(path, [scrape_line])
    assert len(next(read_scrapes(path))["text"]) == MOST_BYTES  # the largest that a scraper writes


# --- Environments


def test_installers_are_asked_in_turn_and_told_to_check_hashes(monkeypatch, tmp_path):
    """uv and then pip; with a further index pip alone, at first without it. The index may hold a password: it is on no command line."""
    asked = []
    monkeypatch.setattr(environment, "_guarded", lambda command, variables: asked.append((command, variables)) or (1, ""))
    monkeypatch.setattr(environment, "_run_guarded", lambda command, _, variables: asked.append((command, variables)))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://own")
    lock = tmp_path / "x.lock"
    for pin in ("one==1", "torch==1+cpu"):
        lock.write_text(f"{pin}\n")
        install("e", Path("bin/python"), lock)
    assert all(command[-4:] == ["--no-deps", "--require-hashes", "-r", str(lock)] for command, _ in asked)
    assert ["uv" in command for command, _ in asked] == [True, False, False, False]
    own = "http://own"
    indexes = [variables.get("PIP_EXTRA_INDEX_URL") for _, variables in asked]
    assert indexes == [own, own, own, f"{own} https://download.pytorch.org/whl/cpu"]
