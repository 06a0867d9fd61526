"""One server on several nodes: what it is started with, what is refused, and what its session asks of a cluster."""

import socket

import pytest

from bench.cluster import needs_of, partition_for, partitions, refusal
from bench.engine import Server, gpu_names
from bench.engine.server import free_port
from bench.errors import BenchError
from bench.measure.preflight import faults
from bench.store import Store
from bench.study import Plan, load_config
from tests.support import records
from tests.support.launches import launched, spec_of

STAGES = {"tensor_parallel": 2, "pipeline_parallel": 2, "nodes": 2}
ENGINES = {"data_parallel": 4, "nodes": 2}


def flags(argv):
    return {word: after for word, after in zip(argv, [*argv[1:], ""], strict=True) if word.startswith("--")}


def test_one_node_is_what_it_was(content):
    plain = spec_of(content)
    digest, launch = plain.digest, launched(plain)
    one = spec_of(content, nodes=1)
    assert (one.digest, launched(one), launch.further) == (digest, launch, ())
    assert spec_of(content, **STAGES).digest != spec_of(content, **STAGES | {"nodes": 1}).digest


def test_stages_on_two_nodes_are_one_engine(content):
    launch = launched(spec_of(content, **STAGES))
    first, (second,) = flags(launch.argv), map(flags, launch.further)
    assert first.items() >= {"--nnodes": "2", "--node-rank": "0", "--master-addr": "{head}", "--master-port": "{meet}"}.items()
    assert second == first | {"--node-rank": "1", "--headless": ""}
    assert launch.gpus == 4


def test_replicas_on_two_nodes_are_servers_of_one_node(content):
    """Each has its GPUs there, and answers at its node's address; on one node they share it."""
    fleet = {"tensor_parallel": 2, "replicas": 2, "router": "haproxy", "cores": 3}
    together, spec = (spec_of(content, **fleet, nodes=nodes) for nodes in (1, 2))
    launch = launched(spec)
    assert (launch.further, launch.nodes, launch.gpus, flags(launch.argv)["--host"]) == ((), 2, 4, "{host}")
    assert (launched(together).nodes, flags(launched(together).argv)["--host"]) == (1, "127.0.0.1")
    asked, shared = needs_of(spec, []), needs_of(together, [])
    assert (asked.nodes, asked.gpus, asked.cores) == (2, 2, 3 * 2 + 2)
    assert (shared.nodes, shared.gpus, shared.cores) == (1, 4, 3 * 4 + 2)
    assert gpu_names(spec, {}) == ["0", "1"]


def test_engines_on_two_nodes_are_whole_on_each(content):
    launch = launched(spec_of(content, **ENGINES))
    first, (second,) = flags(launch.argv), map(flags, launch.further)
    assert first.items() >= {"--data-parallel-size-local": "2", "--data-parallel-address": "{head}"}.items()
    assert "--data-parallel-start-rank" not in first  # or vLLM takes it for one of several servers
    assert second == first | {"--data-parallel-start-rank": "2", "--headless": ""}


def test_without_slurm_nothing_is_started(content, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    content["engines"]["e"] = {"source": "command", "command": ["true"]}
    content["deployments"]["a"] |= {"tensor_parallel": 2, "nodes": 2}
    found = faults(Plan.of(load_config(content, source="t")), Store(tmp_path / "store"))
    assert any("deployments.a.nodes: what has 2 nodes is started inside a SLURM job" in each for each in found), found
    launch = records.launch(device="cuda", argv=("touch", "started"), further=(("true",),))
    with pytest.raises(BenchError, match="profiles/slurm"):
        Server(launch, cores=1, workers=1, log=tmp_path / "log", ready_timeout_s=5, say=print).__enter__()
    assert not (tmp_path / "started").exists()


def test_a_session_asks_for_nodes_of_equal_shares(content):
    spec = spec_of(content, **STAGES, cores=3)
    launch = records.launch(tensor_parallel=2, pipeline_parallel=2, plan={"weight_bytes": 10 * 2**30})
    asked = needs_of(spec, [], launch)
    assert (asked.nodes, asked.gpus, asked.cores, asked.memory_mb) == (2, 2, 8, (2 * 10 + 6) * 1024)
    assert gpu_names(spec, {}) == ["0", "1"]
    known = partitions(
        "few*|up|infinite|64|256000|gpu:h100:4|idle|1\nfew*|up|infinite|64|256000|gpu:h100:1|idle|9\n"
        "many|up|infinite|64|256000|gpu:h100:4|idle|1\nmany|up|infinite|64|256000|gpu:h100:4|mixed|1\n"
    )
    assert refusal(asked, known, "few") == "partition few: 2 nodes needed, it has 1 such"
    assert refusal(asked, known, "many") is None
    assert partition_for(asked, known) == "many"


def test_a_port_of_another_node_is_one_at_which_nobody_answers(monkeypatch, tmp_path):
    """The port is free here; there, at 127.0.0.2, somebody listens."""
    with socket.create_server(("127.0.0.2", 0)) as there:
        taken, free = there.getsockname()[1], free_port()
        offered = iter([taken, free])
        monkeypatch.setattr("bench.engine.server.free_port", lambda *_: next(offered, taken))
        launch = records.launch(device="cuda", gpus=1, argv=("serve", "{port}"))
        place = {"node": "beta", "host": "127.0.0.2"}
        options = {"cores": 1, "workers": 1, "log": tmp_path / "log", "ready_timeout_s": 5, "say": print}
        assert Server(launch, **place, **options).base_url == f"http://127.0.0.2:{free}"
        with pytest.raises(
            BenchError, match=r"beta: somebody answers at each of 10 ports of 127\.0\.0\.2.*srun --nodelist=beta ss"
        ):
            Server(launch, **place, **options)
