"""How long requests wait before the engines: rows of known waits, and a real HAProxy that lets one request in at a time."""

import socket
import subprocess
from contextlib import contextmanager

import polars as pl
import pytest

from bench.measure.session import measure
from bench.parse.run import parse_run
from bench.parse.stream import front_wait, long_wait
from bench.parse.table import summary_frame
from bench.runs.files import write_record
from bench.runs.store import Store
from bench.servers.fleet import router_program
from bench.servers.launch import resolve_launch
from bench.study.config import Thresholds
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.fake_server import fake_server
from tests.support.server import eventually, has_haproxy
from tests.support.study import METRICS

ROW = {"deployment": "a", "workload": "w", "arrival": "closed", "level": 1.0, "ttft_n": 100.0, "server_ttft_n": 100.0, "ttft_mean_s": 0.2,
       "server_ttft_mean_s": 0.18, "tokens_per_chunk": 1.0, "tokens_per_arrival": 1.0, "itl_mean_s": 0.02, "tpot_mean_s": 0.02,
       "server_itl_mean_s": 0.02}  # fmt: skip
LATE = {**ROW, "level": 8.0, "ttft_mean_s": 1.0, "server_ttft_mean_s": 0.2}


def test_a_wait_is_what_ttft_has_beyond_the_engine_s_and_the_shortest_way():
    for change, wait in (
        ({}, 0.78),
        ({"level": 1.0}, None),  # a single load has no other to compare with
        ({"server_ttft_n": 90.0}, None),  # of other requests
        ({"tokens_per_arrival": 4.0}, None),
        ({"server_itl_mean_s": 0.01}, None),  # the engine is ahead of its clients
    ):
        found = pl.DataFrame([ROW, {**LATE, **change}]).with_columns(wait=front_wait())["wait"][1]
        assert found == (None if wait is None else pytest.approx(wait)), change
    for wait, ttft, named in ((0.06, 0.2, 0.06), (0.04, 0.04, None), (0.06, 0.3, None), (None, 0.3, None), (0.06, None, None)):
        assert long_wait({"front_wait_s": wait, "ttft_mean_s": ttft}) == named, (wait, ttft)


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
    proxy = subprocess.Popen([router_program(()), "-db", "-f", str(folder / "haproxy.cfg")])

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
    (wait,) = filter(None, map(long_wait, rows))
    # Of four that come at once, each waits for those before it: for 0, 1, 2 and 3 answers, of 0.05 + 7 × 0.01 s or what they took.
    assert wait == pytest.approx(sum(sum(taken[:i]) for i in range(4)) / 4, rel=0.5)


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
