"""A fleet that is started here: replicas and HAProxy answer as one server, and none of them outlives it."""

import json
import os
import sys

import pytest
import requests

from bench.engine import fleet as module
from bench.engine import server_of
from bench.engine.fleet import Fleet, router_program
from bench.engine.server import ServerDied
from bench.errors import BenchError
from bench.study import Plan, load_config
from tests import records
from tests.test_server import eventually, gone, started

# Answers with its port and its cores.
SERVER = """
import http.server, os, sys
print("server", os.getpid(), flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(f"{sys.argv[1]} {sorted(os.sched_getaffinity(0))}".encode())
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"])); self.do_GET()
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def has(router):
    try:
        return bool(router_program(router))
    except BenchError:
        return False


needs_haproxy = pytest.mark.skipif(not has("haproxy"), reason="HAProxy is not installed")


def fleet(folder, balance="roundrobin", **more):
    file = folder / "server.py"
    file.write_text(SERVER)
    launch = records.launch(
        device="cpu", gpus=0, kind="llama.cpp", argv=(sys.executable, str(file), "{port}"), replicas=2, router=balance, **more
    )
    return server_of(launch, cores=1, workers=1, log=folder / "server.log", ready_timeout_s=20.0, say=lambda _: None)


def answers(server, count=6, **headers):
    return [requests.get(f"{server.base_url}/health", headers=headers, timeout=5).text for _ in range(count)]


@needs_haproxy
def test_replicas_answer_in_turn_on_cores_of_their_own_and_end_together(tmp_path):
    with fleet(tmp_path) as server:
        assert isinstance(server, Fleet)
        each = answers(server)
        assert len(set(each)) == 2
        assert {f"http://127.0.0.1:{text.split()[0]}" for text in each} == set(server.workers.values())
        if len(os.sched_getaffinity(0)) > 1:
            assert len({text.split("[")[1] for text in each}) == 2
        assert server.running()
        assert server.answers()
        assert all((tmp_path / name).exists() for name in ("server.log", "server-2.log", "router.log", "haproxy.cfg"))
        processes = [each.pid for each in started()]
        assert len(processes) >= 9  # three guards of two processes each, and what they hold
    assert all(gone(pid) for pid in processes)


@needs_haproxy
def test_a_header_keeps_a_conversation_at_its_replica(tmp_path):
    with fleet(tmp_path, balance="header:X-Session") as server:
        conversations = [set(answers(server, 4, **{"X-Session": f"conversation-{i}"})) for i in range(8)]
    assert all(len(each) == 1 for each in conversations)
    assert len(set.union(*conversations)) == 2


@pytest.mark.skipif(not has("vllm-router"), reason="vLLM's router is not installed")
@pytest.mark.parametrize("balance", ["roundrobin", "power-of-two", "cache-aware", "header:X-Session-ID"])
def test_vllms_router_deals_out_and_goes_on_without_a_replica_that_is_lost(tmp_path, balance):
    def asked(server, count, **headers):
        body = {"model": "m", "prompt": "a"}
        sent = [
            requests.post(f"{server.base_url}/v1/completions", json=body, headers=headers, timeout=20) for _ in range(count)
        ]
        return [each.text.split()[0] for each in sent if each.status_code == 200]

    with fleet(tmp_path, balance=balance, router_kind="vllm-router") as server:
        if balance == "roundrobin":
            assert len(set(asked(server, 8))) == 2
        if balance.startswith("header"):
            conversations = [set(asked(server, 3, **{"X-Session-ID": f"conversation-{i}"})) for i in range(8)]
            assert all(len(each) == 1 for each in conversations)
            assert len(set.union(*conversations)) == 2
        server.lose(2)
        assert eventually(lambda: len(asked(server, 8)) == 8)
        assert server.restore() is not None
        assert len(set(asked(server, 8))) == 2 or balance != "roundrobin"


@needs_haproxy
def test_a_replica_that_is_lost_on_purpose_leaves_a_fleet_of_the_others_and_comes_back(tmp_path):
    with fleet(tmp_path) as server:
        server.lose(2)
        assert eventually(lambda: not server._replicas[1].running())
        assert server.running()
        assert server.answers()
        assert len(set(answers(server))) == 1  # what the lost one refuses goes to the other
        assert server.restore() == server.workers["replica 2"]
        assert len(set(answers(server))) == 2
        assert server.restore() is None
        server.lose(1)
        processes = [each.pid for each in started()]
    assert all(gone(pid) for pid in processes)


@needs_haproxy
def test_a_replica_that_ends_is_named_and_takes_the_fleet_along(tmp_path):
    with fleet(tmp_path) as server:
        port = server.workers["replica 2"].rpartition(":")[2]
        (second,) = (
            each
            for each in started()
            if each.cmdline()[-1] == port
            and each.name() != "haproxy"
            and not any("guard.py" in word for word in each.cmdline())
        )
        second.kill()
        assert eventually(lambda: not server.running())
        assert "lost its replica 2 of 2, which was killed by SIGKILL" in server.ending()


@needs_haproxy
def test_a_replica_that_does_not_start_ends_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_configuration", lambda *_: "nonsense\n")
    with pytest.raises(ServerDied, match="ended"), fleet(tmp_path):
        pass
    assert gone(int((tmp_path / "server.log").read_text().split("server ")[-1].split()[0]))


def test_what_to_install_is_said_where_there_is_no_haproxy(tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda *_, **__: None)
    with pytest.raises(
        BenchError, match=r"haproxy, which is not on this machine\. Install it, on Debian with `apt-get install haproxy`"
    ):
        fleet(tmp_path)


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        ({"replicas": 2}, "replicas is 2, and nothing deals requests out to them"),
        ({"balance": "leastconn"}, "there is none; add `router: haproxy`"),
        ({"replicas": 2, "router": "haproxy", "balance": "random"}, "balance"),
        ({"replicas": 2, "router": "haproxy", "balance": "cache-aware"}, "which HAProxy does not have"),
        ({"replicas": 2, "router": "vllm-router"}, "vllm-router has roundrobin, power-of-two"),
        ({"replicas": 4, "router": "haproxy", "nodes": 2}, "replicas stand on nodes of their own; give nodes: 4, or remove it"),
    ],
)
def test_what_cannot_be_a_fleet_is_refused(content, deployment, said):
    content["deployments"]["a"] |= deployment
    with pytest.raises(BenchError, match=said):
        load_config(content, source="test")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"workers": ["http://h:1"], "metrics": "http://h:1/metrics"}, "each worker has its own metrics"),
        ({"workers": ["http://h:1", "http://h:1/"]}, "http://h:1 twice"),
        ({"workers": ["http://r/v1"]}, "which is base_url"),
        ({"workers": ["h:1"]}, "no address"),
    ],
)
def test_what_cannot_be_workers_is_refused(content, engine, said):
    content["engines"]["e"] = {"source": "external", "base_url": "http://r", **engine}
    with pytest.raises(BenchError, match=said):
        load_config(content, source="test")


def test_a_running_fleet_is_started_behind_no_router(content):
    content["engines"]["e"] = {"source": "external", "base_url": "http://r"}
    content["deployments"]["a"] |= {"router": "haproxy"}
    with pytest.raises(BenchError, match=r"deployments\.a\.router: servers that run already"):
        Plan.of(load_config(content, source="test"))


def test_a_fleet_is_another_deployment_and_one_server_the_same_as_before(content):
    before = Plan.of(load_config(json.loads(json.dumps(content)), source="test")).deployments["a"]
    content["deployments"]["a"]["replicas"] = 1
    assert Plan.of(load_config(json.loads(json.dumps(content)), source="test")).deployments["a"].digest == before.digest
    content["deployments"]["a"] |= {"replicas": 2, "router": "haproxy"}
    after = Plan.of(load_config(content, source="test")).deployments["a"]
    assert after.digest != before.digest
    assert (after.settings["replicas"], after.settings["balance"]) == (2, "leastconn")
    assert "balance" not in before.settings
