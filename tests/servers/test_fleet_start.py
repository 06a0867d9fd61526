"""A fleet that is started here: replicas and HAProxy answer as one server, and none of them outlives it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from bench import routers
from bench.engine import fleet as module
from bench.engine import resolve_launch, server_of, write_launch
from bench.engine.fleet import Fleet, router_program
from bench.engine.server import ServerDied
from bench.engines import MANAGED
from bench.errors import BenchError
from bench.models import Architecture, config_of
from bench.records.engine import read_engine
from bench.records.files import write_record
from bench.records.launch import RouterLaunch, read_launch
from bench.routers import ROUTERS
from bench.study import Plan, load_config
from tests.support import records
from tests.support.project import built_router
from tests.support.server import eventually, gone, has_haproxy, needs_haproxy, started
from tests.support.study import ARCHITECTURE, ROOT

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


def in_environment(router):
    """The Python of a router's environment."""
    return str(ROOT / read_engine(ROOT / built_router(router)).command[0])


def fleet(folder, balance="roundrobin", router="haproxy"):
    file = folder / "server.py"
    file.write_text(SERVER)
    python = (in_environment(router),) if ROUTERS[router].lock else ()
    launch = records.launch(
        device="cpu",
        gpus=0,
        kind="llama.cpp",
        argv=(sys.executable, str(file), "{port}"),
        replicas=2,
        router=RouterLaunch(name=router, balance=balance, command=(*python, *ROUTERS[router].program)),
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
        said = subprocess.run([router_program("haproxy"), "-v"], capture_output=True, text=True).stdout
        assert server.router_version in said.split()
        assert all((tmp_path / name).exists() for name in ("server.log", "server-2.log", "router.log", "router.cfg"))
        processes = [each.pid for each in started()]
        assert len(processes) >= 9  # three guards of two processes each, and what they hold
        port = server.workers["replica 2"].rpartition(":")[2]
        named = [each for each in started() if each.cmdline()[-1] == port and each.name() != "haproxy"]
        (second,) = (each for each in named if not any("guard.py" in word for word in each.cmdline()))
        second.kill()
        assert eventually(lambda: not server.running())
        assert "lost its replica 2 of 2, which was killed by SIGKILL" in server.ending()
    assert all(gone(pid) for pid in processes)


@pytest.mark.long(part="fleets")
@pytest.mark.parametrize(
    ("router", "header"),
    [("haproxy", "X-Session"), ("vllm-router", "X-Session-ID"), ("sglang-router", "X-SMG-Routing-Key")],
)
def test_a_router_keeps_conversations_and_goes_on_without_a_replica_until_it_is_back(tmp_path, router, header):
    def asked(server, count, name):
        sent = [
            requests.post(
                f"{server.base_url}/v1/completions", json={"model": "m", "prompt": "a"}, headers={header: name}, timeout=20
            )
            for _ in range(count)
        ]
        return [each.text.split()[0] for each in sent if each.status_code == 200]

    if router == "haproxy" and not has_haproxy():
        pytest.fail("HAProxy is not installed: apt-get install haproxy")
    with fleet(tmp_path, balance=f"header:{header}", router=router) as server:
        conversations = [set(asked(server, 3, f"conversation-{i}")) for i in range(8)]
        assert all(len(each) == 1 for each in conversations)
        assert len(set.union(*conversations)) == 2
        if router == "haproxy":
            assert " check " not in (tmp_path / "router.cfg").read_text()  # it would take out one that is merely busy
        server.check_often(True)
        if router == "haproxy":
            assert (tmp_path / "router.cfg").read_text().count(" check inter 1s fall 2 rise 1\n") == 2
        server.lose(2)
        assert eventually(lambda: not server._replicas[1].running())
        assert eventually(lambda: sum(len(asked(server, 1, f"other-{i}")) for i in range(8)) == 8)
        assert server.running()
        assert server.answers()
        assert server.restore() == server.workers["replica 2"]
        assert len(set.union(*(set(asked(server, 1, f"further-{i}")) for i in range(16)))) == 2
        assert server.restore() is None
        server.lose(1)
        processes = [each.pid for each in started()]
    assert all(gone(pid) for pid in processes)


@pytest.mark.long(part="fleets")
@pytest.mark.parametrize("router", [name for name, each in ROUTERS.items() if each.lock])
def test_a_router_knows_all_that_it_is_told(router):
    """Its own parser, which refuses words and values that are not its own, as it is told of each balance."""
    parse = "from {0}.router_args import RouterArgs; parser = ArgumentParser(); RouterArgs.add_cli_args(parser, use_router_prefix=False)"
    made = [
        ROUTERS[router].invocation(balance, ["http://h:1", "http://h:2"], port="1", metrics=2, file=Path("f"), checked=True)[0]
        for balance in ROUTERS[router].balances
    ]
    if ROUTERS[router].disaggregated:
        workers = ["http://h:1", "http://h:2", "http://h:3"]
        made += ROUTERS[router].invocation("roundrobin", workers, prefill=1, port="1", metrics=2, file=Path("f"), checked=True)[
            :1
        ]
    code = f"""
from argparse import ArgumentParser
{parse.format(ROUTERS[router].program[-1])}
for words in {made}:
    known = vars(RouterArgs.from_cli_args(parser.parse_args(words)))
    print(len(known["worker_urls"]), len(known["prefill_urls"]), len(known["decode_urls"]))
"""
    done = subprocess.run([in_environment(router), "-c", code], capture_output=True, text=True)
    by_role = ["0 1 2"] if ROUTERS[router].disaggregated else []
    assert done.stdout.splitlines() == ["2 0 0"] * len(ROUTERS[router].balances) + by_role, done.stderr


@needs_haproxy
def test_a_part_that_does_not_start_ends_the_others(tmp_path, monkeypatch):
    for part in ("replica", "router"):
        whole = fleet(tmp_path)
        if part == "replica":
            whole._replicas[1].argv = [sys.executable, "--nonsense"]
        else:
            monkeypatch.setattr(routers.Router, "invocation", lambda *_, **__: (["--nonsense"], ""))
        with pytest.raises(ServerDied, match="ended"), whole:
            pass
        assert (tmp_path / "router.log").exists() == (part == "router")  # it is started after them
        assert gone(int((tmp_path / "server.log").read_text().split("server ")[-1].split()[0])), part


def test_what_to_install_is_said_where_there_is_no_haproxy(tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda *_, **__: None)
    with pytest.raises(BenchError, match=r"haproxy, which is not on this machine\. .*`apt-get install haproxy`"):
        fleet(tmp_path)


def transferring(**config):
    """A deployment of two replicas, of which one prefills and passes KV caches on as it says."""
    fleet = {"replicas": 2, "prefill_replicas": 1, "router": "vllm-router", "balance": "roundrobin"}
    return {**fleet, "flags": {"kv-transfer-config": json.dumps(config)}}


def test_a_fleet_is_another_deployment_and_one_server_the_same_as_before(content):
    before = Plan.of(load_config(json.loads(json.dumps(content)), source="test")).deployments["a"]
    content["deployments"]["a"]["replicas"] = 1
    assert Plan.of(load_config(json.loads(json.dumps(content)), source="test")).deployments["a"].digest == before.digest
    content["deployments"]["a"] |= {"replicas": 2, "router": "haproxy"}
    after = Plan.of(load_config(content, source="test")).deployments["a"]
    assert after.digest != before.digest
    assert (after.settings["replicas"], after.settings["balance"]) == (2, "leastconn")
    assert "balance" not in before.settings


def test_a_router_is_started_from_its_own_environment_and_no_other(content, tmp_path):
    content["deployments"]["a"] |= {"replicas": 2, "router": "sglang-router", "balance": "roundrobin"}
    spec = Plan.of(load_config(content, source="test")).deployments["a"]
    assert list(spec.router_locks) == [ROUTERS["sglang-router"].lock]
    write_record(records.checkpoint(config=config_of(Architecture(**ARCHITECTURE))), tmp_path / "checkpoint.json")
    write_record(records.engine(), tmp_path / "engine.json")
    files = {name: tmp_path / f"{name}.json" for name in ("engine", "checkpoint", "router", "launch")}
    built = records.engine(engine="sglang-router", command=("env/bin/python",), locks=dict(spec.router_locks))
    built = replace(built, freeze=("pip==23.2.1", "sglang-router==0.3.2"))
    write_record(built, files["router"])
    write_launch(spec, 10, **files)
    router = read_launch(files["launch"]).router
    assert (router.name, router.balance, router.version) == ("sglang-router", "roundrobin", "0.3.2")
    assert router.command == ("env/bin/python", *ROUTERS["sglang-router"].program)
    write_record(replace(built, locks={"other.lock": "0"}), files["router"])
    with pytest.raises(BenchError, match=r"router\.json was built from other locks than sglang-router's: remove that file"):
        write_launch(spec, 10, **files)


@pytest.mark.parametrize("connector", ["NixlConnector", "ExampleConnector"])
def test_replicas_are_told_their_roles_and_where_the_others_are(content, tmp_path, connector):
    content["deployments"]["a"] |= transferring(kv_connector=connector, kv_load_failure_policy="recompute")
    content["deployments"]["a"] |= {"replicas": 3}
    spec = Plan.of(load_config(content, source="test")).deployments["a"]
    checkpoint = records.checkpoint(config=config_of(Architecture(**ARCHITECTURE)))
    router = records.engine(engine="vllm-router", command=(sys.executable,), locks=dict(spec.router_locks))
    launch = resolve_launch(spec, records.engine(), checkpoint, router)
    server = server_of(launch, cores=0, workers=1, log=tmp_path / "server.log", ready_timeout_s=1.0, say=lambda _: None)
    told = [json.loads(each.argv[each.argv.index("--kv-transfer-config") + 1]) for each in server._replicas]
    assert [each["kv_role"] for each in told] == ["kv_producer", "kv_consumer", "kv_consumer"]
    assert {(each["kv_connector"], each["kv_load_failure_policy"]) for each in told} == {(connector, "recompute")}
    channels = [each.environment.get("VLLM_NIXL_SIDE_CHANNEL_PORT") for each in server._replicas]
    folders = [each.get("kv_connector_extra_config", {}).get("shared_storage_path") for each in told]
    assert server.environment.get("VLLM_NIXL_SIDE_CHANNEL_PORT") == channels[1]  # what is kept of a fleet is a decode replica's
    if connector == "NixlConnector":
        assert len({*channels}) == 3
        assert all(port.isdigit() for port in channels)
        assert {each.environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] for each in server._replicas} == {"127.0.0.1"}
        assert folders == [None] * 3
    else:
        assert channels == [None] * 3
        assert folders == [str(tmp_path / "kv-transfer")] * 3
        # It writes a prompt's first chunk alone.
        assert all("--no-enable-chunked-prefill" in each.argv for each in server._replicas)
    assert launch.plan.engines == 2  # a request that runs is where it is decoded


def test_prompts_that_are_computed_whole_fit_a_step(content):
    def flags(tokens, longest):
        content["deployments"]["a"] |= transferring(kv_connector="ExampleConnector")
        content["deployments"]["a"]["flags"]["max-num-batched-tokens"] = tokens
        return MANAGED["vllm"].flags(Plan.of(load_config(content, source="test")).deployments["a"], None, longest)

    assert flags(512, 512) and flags(256, None)
    with pytest.raises(BenchError, match=r"a\.flags\.max-num-batched-tokens: 256 is less than .* 512 tokens"):
        flags(256, 512)
