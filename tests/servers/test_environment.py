"""What is exported reaches the server: it is recorded and compared, and no secret in it is written anywhere."""

import copy
import json
import os
import sys
import tarfile
from contextlib import chdir
from pathlib import Path

import polars as pl
import pytest
import yaml

from bench.beside.archive.pack import pack
from bench.errors import BenchError
from bench.findings import provenance
from bench.findings.comparison.compare import differences
from bench.findings.comparison.words import difference_text
from bench.measure.preflight import refuse_others
from bench.measure.session import measure
from bench.models.config_json import config_of
from bench.models.model import Architecture
from bench.parse.run import parse_run
from bench.runs.deployment import DeploymentFacts
from bench.runs.environment import REDACTED, SET, counted, for_a_server, is_secret, redacted, redacted_command, shown_settings
from bench.runs.files import read, write_record
from bench.runs.paths import Paths
from bench.runs.store import Store
from bench.servers.facts import inherited
from bench.servers.launch import resolve_launch
from bench.servers.server import Server
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.launches import K8S, exports
from tests.support.planted import summary_rows
from tests.support.study import ARCHITECTURE, CONTENT, ROOT

CANARY = "canary-4711-0815"
# A server that is started as vLLM is, and leaves what it was given where only this test looks.
SERVER = f"""
import asyncio, json, os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.fake_server import FakeServer, answer
with open(os.environ["OUTSIDE"], "w") as file:
    json.dump(dict(os.environ), file)
server = FakeServer(metrics=open({str(ROOT / "tests/data/vllm-0.32.0.prom")!r}).read(), pages={{"/version": json.dumps({{"version": "0.32.0"}})}})
async def serve():
    port = int(sys.argv[sys.argv.index("--port") + 1])
    await (await asyncio.start_server(lambda r, w: answer(server, r, w), "127.0.0.1", port)).serve_forever()
asyncio.run(serve())
"""


@pytest.fixture(scope="class")
def measured(tmp_path_factory):
    """A session with secrets everywhere; its plan, its configuration, and what the server was given."""
    tmp_path, content = tmp_path_factory.mktemp("session"), copy.deepcopy(CONTENT)
    outside = tmp_path / "outside.json"
    (tmp_path / "project").mkdir()
    with pytest.MonkeyPatch.context() as patch, chdir(tmp_path / "project"):
        yield session(content, tmp_path, outside, patch)


def session(content, tmp_path, outside, monkeypatch):
    (tmp_path / "server.py").write_text(SERVER)
    for name in ("HF_TOKEN", "OPENAI_API_KEY", "VLLM_API_KEY"):
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    for name in [name for name in os.environ if name.startswith("KMP_")]:
        monkeypatch.delenv(name)  # scikit-learn exports two, where another test imported it into this process
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("VLLM_HOST_IP", "10.0.0.7")
    content["deployments"]["a"]["environment"] = {
        "DB_PASSWORD": f"{CANARY}-db",
        "OMP_PROC_BIND": "true",
        "OUTSIDE": str(outside),
    }
    content["study"]["ladders"][0]["concurrency"] = [2]
    content["measurement"] = {"warmup_requests": 0, "reference_requests": 0}
    plan = Plan.of(load_config(content, source="test"))
    launch, facts = Path(Paths.LAUNCH.format(deployment="a")), Path(Paths.FACTS.format(deployment="a"))
    launch.parent.mkdir(parents=True)
    checkpoint = records.checkpoint(path="model", config=config_of(Architecture(**ARCHITECTURE)))
    engine = records.engine(command=(sys.executable, str(tmp_path / "server.py")))
    write_record(resolve_launch(plan.deployments["a"], engine, checkpoint), launch)
    log = Path("logs/measure/a.log")
    log.parent.mkdir(parents=True)
    launch.with_name("server.log").write_text("before\n")
    with log.open("w") as file:
        measure(plan, "a", plan.runs, launch=launch, facts=facts, store=Store(), say=lambda line: print(line, file=file))
    return plan, content, json.loads(outside.read_text())


class TestASessionWithSecretsEverywhere:
    def test_no_secret_is_written_anywhere(self, measured):
        plan, content, given = measured
        assert given["DB_PASSWORD"] == f"{CANARY}-db"
        assert given["HF_TOKEN"] == f"{CANARY}-HF_TOKEN"  # the server has them
        (run,) = plan.runs
        result = parse_run(
            run.record.parent, **{key: Path("parsed") / key for key in ("requests", "telemetry", "wide", "summary")}
        )
        log = Path(Paths.FACTS.format(deployment="a")).with_name("server.log")
        began = log.read_text()
        log.write_text(began + f"a server that prints what it was given: {CANARY}-db, {CANARY}-HF_TOKEN\n")
        pack(plan, content, Path("packed.tar.gz"), Store())
        log.write_text(began)
        with tarfile.open("packed.tar.gz") as tar:
            tar.extractall("unpacked", filter="data")
        page = provenance.deployments([read(DeploymentFacts, Path(Paths.FACTS.format(deployment="a")))], summary_rows([result]))
        Path("page.json").write_text(json.dumps(page, default=vars))
        written = [file for file in Path().rglob("*") if file.is_file() and file.suffix not in (".gz",)]
        assert len(written) > 15
        assert [str(file) for file in written if CANARY.encode() in file.read_bytes()] == []
        shell = page[0]["shell"]
        assert "OMP_PROC_BIND=true" in shell
        assert f"DB_PASSWORD='{REDACTED}'" in shell
        assert given["OUTSIDE"] not in shell  # nor what is no secret by its name, but not known to be harmless
        assert "HF_TOKEN" in page[0]["exported"]

    def test_the_packed_study_defines_the_same_runs(self, measured):
        plan, content, _ = measured
        pack(plan, content, Path("packed.tar.gz"), Store())
        with tarfile.open("packed.tar.gz") as tar:
            packed = yaml.safe_load(tar.extractfile("study.yaml").read())
        assert packed["deployments"]["a"]["environment"]["DB_PASSWORD"] == REDACTED
        assert [run.digest for run in Plan.of(load_config(packed, source="packed")).runs] == [run.digest for run in plan.runs]

    def test_what_is_exported_is_in_the_records_and_another_environment_is_refused(self, measured, monkeypatch):
        plan, _, _ = measured
        (run,) = plan.runs
        record, facts = (json.loads(file.read_text()) for file in (run.record, Path(Paths.FACTS.format(deployment="a"))))
        assert record["environment"]["NCCL_P2P_DISABLE"] == "1"
        assert record["environment"]["HF_TOKEN"] == SET
        assert record["environment"]["VLLM_HOST_IP"].startswith("sha256:")  # not known to be harmless
        assert facts["inherited"] == record["environment"]
        assert facts["environment_digest"] == record["environment_digest"]
        monkeypatch.setenv("NCCL_P2P_DISABLE", "0")
        monkeypatch.setenv("OMP_STACKSIZE", "1M")
        content = plan.config.model_dump(exclude_unset=True)
        content["study"]["ladders"][0]["concurrency"] = [2, 4]  # a level more
        more = Plan.of(load_config(content, source="test"))
        launch = Path(Paths.LAUNCH.format(deployment="a"))
        with pytest.raises(BenchError) as caught:
            measure(more, "a", more.runs, launch=launch, facts=Path("f/deployment.json"), store=Store(), say=print)
        assert "NCCL_P2P_DISABLE is 0 now and was 1 then; OMP_STACKSIZE is 1M now and was not set then" in str(caught.value)
        assert "`bench runs --discard 'a/*'`" in str(caught.value)

    def test_what_a_scheduler_assigns_and_secrets_are_no_difference(self, measured):
        plan, _, _ = measured
        spec, store = plan.deployments["a"], Store()
        exported = {
            "NCCL_P2P_DISABLE": "1",
            "VLLM_HOST_IP": "10.0.0.7",
            "CUDA_VISIBLE_DEVICES": "3",
            "HF_TOKEN": "another",
            "HF_HOME": "/x",
        }
        refuse_others(plan, spec, store, environment=inherited(spec, {}, exported))


def test_what_saturate_sets_or_keeps_from_the_server_is_not_the_users(config):
    spec = Plan.of(config).deployments["a"]
    exported = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "x",
        "PATH": "y",
        "VLLM_NO_USAGE_STATS": "0",
        "CUDA_MODULE_LOADING": "LAZY",
    }
    assert inherited(spec, {"VLLM_NO_USAGE_STATS": "1"}, exported) == {"CUDA_MODULE_LOADING": "LAZY"}


SERVICES = {
    "vllm": (exports(K8S), {}),
    "a named port, and the router beside it": (
        {
            "VLLM_ROUTER_SERVICE_SERVICE_HOST": "10.43.1.39", "VLLM_ROUTER_SERVICE_SERVICE_PORT": "80",
            "VLLM_ROUTER_SERVICE_SERVICE_PORT_ROUTER_SPORT": "80", "VLLM_ROUTER_SERVICE_PORT": "tcp://10.43.1.39:80",
            "VLLM_ROUTER_SERVICE_PORT_80_TCP": "tcp://10.43.1.39:80", "VLLM_ROUTER_SERVICE_PORT_80_TCP_PROTO": "tcp",
            "VLLM_ROUTER_SERVICE_PORT_80_TCP_PORT": "80", "VLLM_ROUTER_SERVICE_PORT_80_TCP_ADDR": "10.43.1.39",
        },
        {},
    ),
    "k3s, as in vLLM's issue 15613": ({"VLLM_PORT": "tcp://10.43.1.39:8000"}, {}),
    "llama-arg, whose names llama.cpp takes for options": (
        {"LLAMA_ARG_PORT": "tcp://10.0.0.1:8080", "LLAMA_ARG_SERVICE_HOST": "10.0.0.1", "LLAMA_ARG_SERVICE_PORT": "8080"},
        {"LLAMA_ARG_CTX_SIZE": "4096"},
    ),
    "master, whose port torch takes": ({"MASTER_PORT": "tcp://10.0.0.2:29500", "MASTER_PORT_29500_TCP": "tcp://10.0.0.2:29500"}, {}),
    "udp": ({"NCCL_PORT": "udp://10.0.0.2:53", "NCCL_PORT_53_UDP_ADDR": "10.0.0.2"}, {"NCCL_DEBUG": "INFO"}),
    "a user's port, beside the service": (
        {"VLLM_SERVICE_HOST": "10.152.183.5", "VLLM_SERVICE_PORT": "8000"},
        {"VLLM_PORT": "8000", "VLLM_PORT_RANGE": "x", "VLLM_HOST_IP": "10.0.0.7"},
    ),
    "what is the user's": (
        {},
        {
            "VLLM_PORT": "12345", "VLLM_ATTENTION_BACKEND": "FLASHINFER", "SGLANG_PORT": "30000",
            "HF_ENDPOINT": "https://hf-mirror.com", "http_proxy": "http://10.0.0.3:3128", "CUDA_VISIBLE_DEVICES": "1",
            "LD_LIBRARY_PATH": "/opt/cuda", "SERVICE_HOST": "x", "ONLY_SERVICE_HOST": "x",
        },
    ),
    "the cluster's own": (
        {},
        {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_PORT": "tcp://10.43.0.1:443"},
    ),
    "threads": ({"OMP_NUM_THREADS": "1", "PYTHONPATH": "/x"}, {"OMP_PROC_BIND": "true", "KMP_AFFINITY": "none"}),
}  # fmt: skip


def test_variables_that_announce_other_services_stay_outside(config):
    spec = Plan.of(config).deployments["a"]
    for name, (dropped, kept) in SERVICES.items():
        assert for_a_server({**dropped, **kept, "PATH": "/bin"}) == {**kept, "PATH": "/bin"}, name
        assert not inherited(spec, {}, {**dropped, **kept}).keys() & dropped.keys(), name


def test_a_server_starts_without_them_and_it_is_said(tmp_path, monkeypatch):
    for variable, value in exports(K8S).items():
        monkeypatch.setenv(variable, value)
    code = (
        "import http.server, os, sys; print('seen', sorted(x for x in os.environ if 'VLLM_S' in x or 'VLLM_P' in x), flush=True); "
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()"
    )
    (tmp_path / "health").touch()
    monkeypatch.chdir(tmp_path)
    said = []
    launch = records.launch(
        device="cpu", argv=(sys.executable, "-c", code, "{port}"), environment={"VLLM_SERVICE_HOST": "mine"}
    )
    with Server(launch, cores=1, workers=1, log=tmp_path / "server.log", ready_timeout_s=20, say=said.append):
        assert "seen ['VLLM_SERVICE_HOST']" in (tmp_path / "server.log").read_text()  # the deployment's own is kept
    assert said == [
        "not passed to the server: VLLM_PORT and 3 more variables, by which Kubernetes or Docker announces other services"
    ]


def test_only_what_passes_into_a_container_counts(content):
    exported = {"HF_TOKEN": "x", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0"}
    for runtime, expected in (("docker", {"HF_TOKEN", "CUDA_VISIBLE_DEVICES"}), ("apptainer", set(exported))):
        content["engines"]["e"] = {"source": "container", "image": "i:1", "runtime": runtime}
        spec = Plan.of(load_config(content, source="t")).deployments["a"]
        assert inherited(spec, {}, exported).keys() == expected
    content["engines"]["e"] = {"source": "external", "base_url": "http://x"}
    assert inherited(Plan.of(load_config(content, source="t")).deployments["a"], {}, exported) is None


def test_secrets_are_known_by_name_or_value():
    names = "HF_TOKEN HUGGING_FACE_HUB_TOKEN VLLM_API_KEY AWS_SECRET_ACCESS_KEY api-key MY_PASSWORD DB_PASSWD SSH_KEY VLLM_CPU_TOKEN GH_PAT"
    values = {
        "NOTE": "hf_abcdefghijklmnopq",
        "URL": "http://me:pw@host/",
        "X": "sk-proj-abcdefghijklm",
        "HEADER": "Authorization: Bearer abc",
    }
    for name, value in {**dict.fromkeys(names.split(), "x"), **values}.items():
        assert is_secret(name, value), name
        assert value not in redacted({name: value}).values(), name
        assert redacted(redacted({name: value})) == redacted({name: value}), name
        assert shown_settings({name: value}) == {name: REDACTED}, name
    settings = {"VLLM_CPU_KVCACHE_SPACE": "4", "TOKENIZERS_PARALLELISM": "false", "VLLM_MAX_TOKENS_PER_EXPERT": "5", "tokenizer": "x",
                "max-num-batched-tokens": "2048", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin", "skip": "task-1"}  # fmt: skip
    for name, value in settings.items():
        assert not is_secret(name, value), name


def test_a_command_line_is_recorded_without_its_secrets():
    command = ["vllm", "serve", "m", "--api-key", "x", "--hf-token=y", "--port", "80", "--max-num-seqs", "8", "http://a:b@c"]
    shown = [
        "vllm",
        "serve",
        "m",
        "--api-key",
        REDACTED,
        f"--hf-token={REDACTED}",
        "--port",
        "80",
        "--max-num-seqs",
        "8",
        REDACTED,
    ]
    assert redacted_command(command) == shown


def test_a_secret_is_no_part_of_what_a_deployment_is(content):
    def digest(environment):
        content["deployments"]["a"]["environment"] = environment
        return Plan.of(load_config(content, source="t")).deployments["a"].digest

    assert digest({"VLLM_API_KEY": "one"}) == digest({"VLLM_API_KEY": "two"})
    assert digest({"VLLM_X": "one"}) != digest({"VLLM_X": "two"})


def test_nothing_is_counted_where_nothing_was_recorded():
    assert counted(None) == counted({"HF_TOKEN": "set", "CUDA_VISIBLE_DEVICES": "1"}) == {}


def test_a_comparison_names_other_exported_variables():
    pair = summary_rows([{"deployment": "a", "workload": "w", "level": 1.0, "environment": "none exported"}])
    other = pair.with_columns(environment=pl.lit("NCCL_P2P_DISABLE=1"))
    (found,) = differences(pair.join(other, on=["deployment", "workload", "level"], suffix="_candidate"))
    assert difference_text(found) == "environment: none exported → NCCL_P2P_DISABLE=1"
