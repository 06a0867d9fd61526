"""A request on a connection that the server closes at that moment: sent again where, and only where, it got no byte of an answer."""

import json
import select
import time

import pytest

from bench.load import loop
from bench.load.client import Load, run_load
from bench.load.exchange import Exchange
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.runs.request_table import read_requests
from bench.workloads.workload import Workload
from tests.support import records as made
from tests.support.cases import cases
from tests.support.fake_server import STREAM_HEAD, TOKEN, chunk, raw_server, read_request
from tests.support.wire import drive, request, reset

# As llama.cpp's: it says that it keeps the connection, and closes it.
KEPT = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=5, max=100\r\n\r\n")
USAGE = {"choices": [], "usage": {"prompt_tokens": 16, "completion_tokens": 2}}
ANSWER = KEPT + chunk(TOKEN) + chunk(TOKEN) + chunk(USAGE) + chunk(b"[DONE]") + b"0\r\n\r\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A machine that stands still for a second decides nothing here."""
    monkeypatch.setattr(loop, "_CROSSED_S", 30.0)


def answers_once(then):
    """A handler that answers a connection's first request; when the next one is there, `then` and a close are all that it gets."""

    def handle(connection):
        if read_request(connection):
            connection.sendall(ANSWER)
            if select.select([connection], [], [], 5)[0]:
                then(connection)

    return handle


@cases("then", [lambda _: None, read_request, lambda c: (read_request(c), reset(c)), reset])
def test_a_request_that_crosses_the_close_is_sent_again(then):
    with raw_server(answers_once(then)) as port:
        records = drive(port, 48, connections=4, in_flight=4)
    assert [(r.outcome, r.error) for r in records] == [("ok", None)] * 48
    # All but the first on each of the four connections follow an answer on theirs, and go on to a new one.
    assert sorted(r.resent for r in records) == [0] * 4 + [1] * 44


def test_a_request_of_which_a_part_has_gone_is_sent_again():
    """It is longer than the sockets' buffers, so the reset meets the write."""
    with raw_server(answers_once(reset)) as port:
        records = drive(port, [Exchange(i, request(16 << 20)) for i in range(3)])
    assert [(r.outcome, r.error, r.resent) for r in records] == [("ok", None, 0), ("ok", None, 1), ("ok", None, 1)]


def test_the_time_before_is_no_latency_of_the_answer():
    """The server takes a second to hang up, and another to answer on the new connection."""

    def slow(connection):
        read_request(connection)
        time.sleep(1.0)

    def handle(connection):
        if read_request(connection):
            time.sleep(1.0)
            connection.sendall(ANSWER)
            if select.select([connection], [], [], 5)[0]:
                slow(connection)

    with raw_server(handle) as port:
        first, second = drive(port, 2, timeout_s=1.9)  # which counts anew: the second takes longer in all
    assert (first.outcome, first.resent, second.outcome, second.resent) == ("ok", 0, "ok", 1)
    assert second.scheduled_s == pytest.approx(first.end_s, abs=1e-5)
    assert second.sent_s - second.scheduled_s >= 1.0
    assert 1.0 <= second.ttft_s < 1.9
    assert second.first_token_s - second.scheduled_s >= 2.0


@cases("then", [None, reset])
def test_a_new_connection_that_is_closed_is_a_disconnect(then):
    """And so is every request to a server that answers none: the load ends, nothing is sent twice."""
    requests = []

    def handle(connection):
        if read_request(connection):
            requests.append(connection)
            if then:
                then(connection)

    with raw_server(handle) as port:
        records = drive(port, 12, connections=3, in_flight=3)
    assert [(r.outcome, r.resent) for r in records] == [("disconnect", 0)] * 12
    assert len(requests) == 12


def test_a_request_is_sent_again_once():
    """The first answer is all that this server ever gives."""
    requests = []

    def handle(connection):
        while read_request(connection):
            requests.append(connection)
            if len(requests) > 1:
                return
            connection.sendall(ANSWER)

    with raw_server(handle) as port:
        records = drive(port, 3)
    assert [(r.outcome, r.resent) for r in records] == [("ok", 0), ("disconnect", 1), ("disconnect", 0)]
    assert len(requests) == 4


@cases("piece", [b"H", KEPT, KEPT + chunk(TOKEN), b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_who_has_begun_to_answer_is_not_asked_again(piece):
    def then(connection):
        read_request(connection)
        connection.sendall(piece)

    with raw_server(answers_once(then)) as port:
        records = drive(port, 4)
    assert [(r.outcome, r.resent) for r in records] == [("ok", 0), ("disconnect", 0)] * 2


def test_who_hangs_up_late_has_had_the_request(monkeypatch):
    monkeypatch.setattr(loop, "_CROSSED_S", 0.1)

    def late(connection):
        read_request(connection)
        time.sleep(0.2)

    with raw_server(answers_once(late)) as port:
        records = drive(port, 2)
    assert [(r.outcome, r.resent) for r in records] == [("ok", 0), ("disconnect", 0)]


def test_processes_conversations_and_the_run_s_count(tmp_path):
    """Each process counts its own, each turn follows the end of the one before, and nobody is called late for it."""
    content = {"arrival": "burst", "prompt_tokens": 16, "output_tokens": 2, "turns": {"count": 3, "new_tokens": 4}}

    def slow(connection):
        read_request(connection)
        time.sleep(0.6)

    with raw_server(answers_once(slow)) as port:
        target = Target(f"http://127.0.0.1:{port}", "m")
        load = Load(Workload.model_validate(content), 4, "s", vocabulary=500, timeout_s=20.0, processes=2)
        records = run_load(target, load).records
        header = made.header(definition={**content, "workload": "w", "axis": "users", "level": 4})
        record_run(target, load, tmp_path, header=header, scrape_interval_s=None)
    assert [r.outcome for r in records] == ["ok"] * 12
    assert sum(r.resent for r in records) == 8
    assert all(r.sent_s >= records[r.after].end_s for r in records if r.after is not None)
    result = json.loads((tmp_path / "run.json").read_text())["client"]
    assert result["resent"] == sum(r.resent for r in read_requests(tmp_path / "requests.jsonl")) == 8
    assert result["schedule_delay_max_s"] < 0.6  # not the time until the server hangs up
