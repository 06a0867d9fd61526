"""What lies between clients and engines: made studies of known truth, and a real HAProxy that lets one request in at a time."""

import socket
import subprocess
from contextlib import contextmanager

import pytest
from benchmarks.fronts import PLANTED, judge

from bench.aggregate import summary_frame
from bench.analysis.front import front, unknown_fronts
from bench.engine import resolve_launch
from bench.engine.fleet import router_program
from bench.measure.session import measure
from bench.parse import parse_run
from bench.records.files import write_record
from bench.store import Store
from bench.study import Plan, load_config
from bench.study.config import Thresholds
from bench.words.workers import between
from tests.support import records
from tests.support.fake_server import fake_server
from tests.support.server import eventually, has_haproxy
from tests.support.study import METRICS

COUNTED = ("honest", "queues", "an API server that is too slow", "a busy API server")  # of which everything is known


def named(what):
    _, found, unknown, errors = judge((what, 0))
    assert found == set(PLANTED[what]), what
    assert unknown == (what not in COUNTED), what
    assert all(-0.5 < error < 0.1 for error in errors), what


def test_what_was_planted_is_named_and_nothing_else():
    for what in ("honest", "queues", "buffers"):
        named(what)


@pytest.mark.long(part="truth")
def test_all_that_was_planted_is_named_and_nothing_else():
    for what in PLANTED:
        named(what)


ROW = {"ok": 100, "requests": 100, "failed": 0, "server_requests": 110.0, "server_prompt_tokens": 11_000.0, "counted_prompt_tokens": 100.0,
       "server_e2e_mean_s": 0.9, "e2e_mean_s": 1.0, "front_wait_s": 0.0, "ttft_mean_s": 0.2}  # fmt: skip


def test_what_a_row_shows_of_what_stands_in_front():

    for change, kinds, known in (
        ({}, ["repeats"], True),
        ({"server_requests": 101.0}, [], True),  # one more may be a health check
        ({"server_requests": 100.0, "preemptions": 1.0}, [], True),
        ({"server_requests": 100.0, "server_prompt_tokens": None}, [], True),
        ({"server_requests": 100.0, "failed": 1, "ok": 99}, [], True),
        ({"server_requests": 100.0, "failed": 9, "ok": 91}, [], False),  # nine may be tries of others
        ({"client_resent": 10}, [], False),
        ({"preemptions": 1.0}, [], False),  # some engines count such prompts twice
        ({"failed": 1, "ok": 99}, [], False),  # nobody knows what failed ones cost
        ({"server_prompt_tokens": 10_100.0}, [], True),  # ten prompts of ten tokens
        ({"server_prompt_tokens": None}, [], False),
        ({"scraped_after": False}, [], False),
        ({"server_e2e_mean_s": 1.0}, ["repeats_or_others"], True),  # together longer than the client waited
        ({"server_e2e_mean_s": None}, ["repeats_or_others"], True),
        ({"front_wait_s": 0.06}, ["queues", "repeats"], True),
        ({"front_wait_s": 0.06, "ttft_mean_s": 0.3}, ["repeats"], True),  # a fifth of TTFT
        ({"front_wait_s": 0.04, "ttft_mean_s": 0.04}, ["repeats"], True),
    ):
        assert [each.kind for each in front({**ROW, **change})] == kinds, change
        assert ("repeats" not in unknown_fronts({**ROW, **change})) == known, change


def test_a_fleet_says_what_stands_in_front_of_it():
    honest = {**ROW, "server_requests": 100.0}
    (said,) = between({"f": [honest]})
    assert "in front of f adds no more than 25 % of TTFT, or 0.05 s, beyond" in said
    assert "no more than 0.5 % of the requests sent again" in said
    killed = {**honest, "lost_at_s": 20.0, "server_requests": None, "front_wait_s": None}
    (said,) = between({"f": [honest, killed], "g": [killed]})
    assert "f (in 1 of 2 runs) and g queues requests or sends some again is not known, as a worker was killed" in said
    failed, well = between({"f": [{**ROW, "failed": 1, "ok": 99}], "g": [honest]})
    assert failed.startswith("Whether what stands in front of f sends requests again is not known: that")
    assert failed.endswith("Workers that prefill for others count each request once more.")
    assert well.startswith("What stands in front of g adds no more than 25 %")
    queue, blind = between({"f": [{**honest, "front_wait_s": 2.0, "ttft_mean_s": 3.0}, {**honest, "front_wait_s": None}]})
    assert queue.startswith("f, 1 of 2 runs: requests waited up to 2 s on average before the engine had them")
    assert "a gateway, or the API server, queues them" in queue  # as the notes on each run say
    assert "in front of f (in 1 of 2 runs) queues requests is not known: that" in blind


@contextmanager
def one_at_a_time(server, folder):
    """The address of a real HAProxy that lets the server have one request at once."""
    if not has_haproxy():
        pytest.fail("HAProxy is not installed: apt-get install haproxy")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "haproxy.cfg").write_text(
        "defaults\n mode http\n option http-no-delay\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n timeout queue 60s\n"
        f"listen all\n bind 127.0.0.1:{port}\n server one 127.0.0.1:{server.port} maxconn 1\n"
    )
    proxy = subprocess.Popen([router_program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")])

    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert eventually(listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        proxy.terminate()
        proxy.wait()


def exposition(server):
    """The engine's own account: TTFT from a request's arrival to its first write."""
    done = [(arrival, writes[0]) for arrival, writes in zip(server.arrivals, server.writes, strict=False) if writes]
    values = {
        "server_ttft_count": len(done), "server_ttft_sum": sum(first - arrival for arrival, first in done), "running": server.in_flight,
        "server_prompt_tokens": server.prompted, "server_generation_tokens": server.generated,
    }  # fmt: skip
    return "\n".join(f"{name} {values.get(ours, 0)}" for ours, name in METRICS.items()) + "\n"


@pytest.mark.long(part="fleets")
def test_a_real_proxy_that_queues_is_named(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    told = {"exposition": exposition, "first_s": 0.05, "gap_s": 0.01, "pages": {"/version": '{"version": "0.32.0"}'}}
    with fake_server(**told) as server, one_at_a_time(server, tmp_path) as address:
        rows = measured(content, {"base_url": address, "metrics": f"{server.base_url}/metrics"}, tmp_path)
        taken = [writes[-1] - arrival for arrival, writes in zip(server.arrivals, server.writes, strict=False) if writes][-4:]
    found = [each for row in rows for each in front(row)]
    assert [each.kind for each in found] == ["queues"]
    # Of four that come at once, each waits for those before it: for 0, 1, 2 and 3 answers, of 0.05 + 7 × 0.01 s or what they took.
    assert found[0].wait_s == pytest.approx(sum(sum(taken[:i]) for i in range(4)) / 4, rel=0.5)


def measured(content, where, folder):
    """Rows of bursts of one and of four."""
    content["engines"]["e"] = {"source": "external", **where}
    content["study"]["ladders"][0]["concurrency"] = [1, 4]
    content["workloads"]["short"] |= {"prompt_tokens": 8, "output_tokens": 8}
    content["measurement"] = {"warmup_requests": 1}
    plan = Plan.of(load_config(content, source="test"))
    launch, facts = folder / "launch.json", folder / "a/deployment.json"
    write_record(resolve_launch(plan.deployments["a"], records.engine(source="external", command=None), None), launch)
    measure(plan, "a", plan.runs, launch=launch, facts=facts, store=Store(), say=print)
    runs = [
        parse_run(run.record.parent, **{key: folder / run.digest / key for key in ("requests", "telemetry", "wide", "summary")})
        for run in plan.runs
    ]
    return summary_frame(runs, {}, {}, Thresholds()).to_dicts()
