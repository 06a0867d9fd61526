"""A fleet that is started here: replicas and HAProxy answer as one server, and none of them outlives it."""

import json
import os
import subprocess
import sys

import pytest
import requests

from bench.errors import BenchError
from bench.runs.launch import RouterLaunch
from bench.servers import fleet as module
from bench.servers.fleet import Fleet, command_of, router_program, server_of
from bench.servers.server import ServerDied
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.server import eventually, gone, needs_haproxy, started

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


def fleet(folder, balance="roundrobin", command=()):
    file = folder / "server.py"
    file.write_text(SERVER)
    launch = records.launch(
        device="cpu",
        gpus=0,
        kind="llama.cpp",
        argv=(sys.executable, str(file), "{port}"),
        replicas=2,
        router=RouterLaunch(balance=balance, command=command),
    )
    return server_of(launch, cores=1, workers=1, log=folder / "server.log", ready_timeout_s=20.0, say=lambda _: None)


def answers(server, count=6, **headers):
    return [requests.get(f"{server.base_url}/health", headers=headers, timeout=5).text for _ in range(count)]


@needs_haproxy
def test_replicas_answer_in_turn_on_cores_of_their_own_and_end_together_also_where_one_is_killed(tmp_path):
    with fleet(tmp_path) as server:
        assert isinstance(server, Fleet)
        each = answers(server)
        assert len(set(each)) == 2
        assert {f"http://127.0.0.1:{text.split()[0]}" for text in each} == set(server.workers.values())
        if len(os.sched_getaffinity(0)) > 1:
            assert len({text.split("[")[1] for text in each}) == 2
        assert server.running()
        assert server.answers()
        said = subprocess.run([router_program(()), "-v"], capture_output=True, text=True).stdout
        assert server.router_version in said.split()
        assert all((tmp_path / name).exists() for name in ("server.log", "server-2.log", "router.log", "router.cfg"))
        processes = [each.pid for each in started()]
        assert len(processes) >= 6  # three guards, and what they hold
        port = server.workers["replica 2"].rpartition(":")[2]
        named = [each for each in started() if each.cmdline()[-1] == port and each.name() != "haproxy"]
        (second,) = (each for each in named if not any("guard.py" in word for word in each.cmdline()))
        second.kill()
        assert eventually(lambda: not server.running())
        assert "lost its replica 2 of 2, which was killed by SIGKILL" in server.ending()
    assert all(gone(pid) for pid in processes)


@pytest.mark.long(part="fleets")
@needs_haproxy
def test_a_router_keeps_conversations(tmp_path):
    header = "X-Session"

    def asked(server, count, name):
        sent = [
            requests.post(
                f"{server.base_url}/v1/completions", json={"model": "m", "prompt": "a"}, headers={header: name}, timeout=20
            )
            for _ in range(count)
        ]
        return [each.text.split()[0] for each in sent if each.status_code == 200]

    with fleet(tmp_path, balance=f"header:{header}") as server:
        conversations = [set(asked(server, 3, f"conversation-{i}")) for i in range(8)]
        assert all(len(each) == 1 for each in conversations)
        assert len(set.union(*conversations)) == 2
        assert " check " not in (tmp_path / "router.cfg").read_text()  # it would take out one that is merely busy
        processes = [each.pid for each in started()]
    assert all(gone(pid) for pid in processes)


def test_a_command_is_given_the_port_and_each_worker_s_address(tmp_path):
    words = ("sglang-router", "--port={port}", "--worker-urls", "{workers}", "--policy", "cache_aware")
    addresses = ["http://h:1", "http://h:2"]
    made = command_of(words, "leastconn", "", addresses, port="8", file=tmp_path / "none")
    assert made == ["sglang-router", "--port=8", "--worker-urls", *addresses, "--policy", "cache_aware"]
    assert not (tmp_path / "none").exists()


# A router of a line: it sends each request to the next of its workers, and says that it is well before it knows any.
ROUTER = """
import http.server, itertools, sys, urllib.request
workers, asked = itertools.cycle(sys.argv[2:]), []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        if asked.count("/v1/models") < 3:
            self.send_response(200 if self.path == "/health" else 503); self.end_headers()
            return
        with urllib.request.urlopen(next(workers) + self.path) as answer:
            self.send_response(200); self.end_headers(); self.wfile.write(answer.read())
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_router_of_one_s_own_is_started_by_its_command(tmp_path):
    file = tmp_path / "router.py"
    file.write_text(ROUTER)
    with fleet(tmp_path, command=(sys.executable, str(file), "{port}", "{workers}")) as server:
        assert {f"http://127.0.0.1:{text.split()[0]}" for text in answers(server)} == set(server.workers.values())
        assert server.router_version is None
        processes = [each.pid for each in started()]
    assert all(gone(pid) for pid in processes)


@needs_haproxy
def test_a_part_that_does_not_start_ends_the_others(tmp_path, monkeypatch):
    for part in ("replica", "router"):
        whole = fleet(tmp_path)
        if part == "replica":
            whole._replicas[1].argv = [sys.executable, "--nonsense"]
        else:
            monkeypatch.setattr(module, "command_of", lambda _, __, program, *___, **____: [program, "--nonsense"])
        with pytest.raises(ServerDied, match="ended"), whole:
            pass
        assert (tmp_path / "router.log").exists() == (part == "router")  # it is started after them
        assert gone(int((tmp_path / "server.log").read_text().split("server ")[-1].split()[0])), part


def test_what_to_install_is_said_where_there_is_no_haproxy(tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda *_, **__: None)
    with pytest.raises(BenchError, match=r"haproxy, which is not on this machine\. .*`apt-get install haproxy`"):
        fleet(tmp_path)


def test_a_fleet_is_another_deployment_and_one_server_the_same_as_before(content):
    before = Plan.of(load_config(json.loads(json.dumps(content)), source="test")).deployments["a"]
    content["deployments"]["a"]["replicas"] = 1
    assert Plan.of(load_config(json.loads(json.dumps(content)), source="test")).deployments["a"].digest == before.digest
    content["deployments"]["a"] |= {"replicas": 2, "router": "haproxy"}
    after = Plan.of(load_config(content, source="test")).deployments["a"]
    assert after.digest != before.digest
    assert (after.settings["replicas"], after.settings["balance"]) == (2, "leastconn")
    assert "balance" not in before.settings
