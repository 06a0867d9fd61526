"""What is exported reaches the server: it is recorded and compared, and no secret in it is written anywhere."""

import sys

import yaml

from bench.runs.environment import REDACTED, SET, for_a_server, is_secret, redacted, redacted_command, shown_settings
from bench.servers.facts import inherited
from bench.servers.server import Server
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.launches import K8S, exports
from tests.support.study import ROOT


def test_of_what_is_exported_the_user_s_own_is_recorded_without_secrets(config):
    """Not what Saturate sets, or keeps from the server; of what is not known to be harmless a checksum."""
    spec = Plan.of(config).deployments["a"]
    exported = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "x",
        "PATH": "y",
        "VLLM_NO_USAGE_STATS": "0",
        "CUDA_MODULE_LOADING": "LAZY",
    }
    assert inherited(spec, {"VLLM_NO_USAGE_STATS": "1"}, exported) == {"CUDA_MODULE_LOADING": "LAZY"}
    told = inherited(spec, {}, {"HF_TOKEN": "canary", "VLLM_HOST_IP": "10.0.0.7"})
    assert told == {"HF_TOKEN": SET, "VLLM_HOST_IP": told["VLLM_HOST_IP"]} and told["VLLM_HOST_IP"].startswith("sha256:")


def test_variables_that_announce_other_services_stay_outside(config):
    spec = Plan.of(config).deployments["a"]
    pods = yaml.safe_load((ROOT / "tests/data/environment/services.yaml").read_text())
    for name, pod in {"vllm": {"dropped": exports(K8S), "kept": {}}, **pods}.items():
        dropped, kept = pod["dropped"], pod["kept"]
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
        "not passed to the server: VLLM_PORT, VLLM_PORT_8000_TCP_ADDR, VLLM_SERVICE_HOST, VLLM_SERVICE_PORT, by which Kubernetes or "
        "Docker announces other services"
    ]


def test_only_what_a_server_of_ours_inherits_counts(content):
    exported = {"HF_TOKEN": "x", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0"}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    assert inherited(spec, {}, exported).keys() == set(exported)
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
