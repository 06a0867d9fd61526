"""Measured deployments as production runs them, without the benchmark's own and without secrets; and runs in the forms of others."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import chdir

import jsonschema
import pytest
import requests
import yaml

from bench.beside.interop.commands import Form
from bench.beside.interop.export import FORMS
from bench.beside.interop.export.benchmark_report import benchmark_report
from bench.beside.interop.imported import imported, read_peers
from bench.errors import BenchError
from bench.findings.analysis import Analysis, write_analysis
from bench.models.gguf import write_gguf
from bench.models.model import whole_config
from bench.runs.files import read, write_record
from bench.runs.launch import EngineRecord, flags_of
from bench.servers.engines import managed
from bench.servers.launch import resolve_launch
from bench.study.decision import Decision
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support.command import bench
from tests.support.foreign import vllm
from tests.support.planted import frame, steady_row
from tests.support.project import built
from tests.support.records import checkpoint, engine, facts
from tests.support.server import eventually
from tests.support.study import CONTENT, ROOT, TINY

CONFIG = whole_config(TINY)
SCHEMAS = ROOT / "tests/data/schemas"
COMPOSE = json.loads((SCHEMAS / "compose-spec.json").read_text())
EVERYWHERE = "0.0.0.0"  # noqa: S104 - is written, not bound
HUB, COMMIT = {"hub": f"org/model@{'0123456789' * 4}"}, "0123456789" * 4
LLAMA = {"kind": "llama.cpp", "source": "lock", "locks": ["workflow/envs/llama-cpp-2026.10.11549.lock"]}
# A server that says what it was started with, in place of the real one.
SAYS = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ)]))
"""


def put(folder, *, deployment=(), made=None, model=None, version="0.32.0", record=None, digest=None, measured=True):
    """Write what a workflow leaves of a deployment into a folder of results; its launch."""
    content = {**CONTENT, "engines": {"e": made or {"source": "command", "command": ["vllm", "serve"], "backend": "cuda"}}}
    content["models"] = {"m": model or {"config": TINY}}
    content["deployments"] = {"a": {"model": "m", "engine": "e", "kv_cache_memory": "1MiB", **dict(deployment)}}
    spec = Plan.of(load_config(content, source="t"), root=ROOT).deployments["a"]
    source = dict(zip(("source", "revision"), model["hub"].split("@"), strict=True)) if model and "hub" in model else {}
    lies = checkpoint(
        path="results/checkpoints/m/model", config=CONFIG, weight_bytes=None if not model else 3 * 2**30, **source
    )
    ready = record or engine(source=spec.engine.source, command=tuple(spec.engine.command or ("python3",)))
    (folder / "results/checkpoints/m").mkdir(parents=True)
    with chdir(folder):
        launch = resolve_launch(spec, ready, lies)
    for place, content in {
        "deployments/a/launch.json": launch,
        "checkpoints/m/checkpoint.json": lies,
        "engines/e/engine.json": ready,
        **(
            {"deployments/a/deployment.json": facts(digest=digest or launch.digest, engine_version=version)} if measured else {}
        ),
    }.items():
        (folder / "results" / place).parent.mkdir(parents=True, exist_ok=True)
        write_record(content, folder / "results" / place)
    return launch


def exported(folder, form="command"):
    done = bench("export", "a", "--form", form, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(folder, form="command", name="a"):
    done = bench("export", name, "--form", form, cwd=folder)
    assert done.returncode == 2 and not done.stdout
    return done.stderr


def started(folder, program, **variables):
    """What the exported script starts a program with: its words and its variables."""
    script = folder / "start.sh"
    assert bench("export", "a", "--output", script, cwd=folder).returncode == 0
    (folder / "bin").mkdir()
    (folder / "bin" / program).write_text(SAYS)
    (folder / "bin" / program).chmod(0o755)
    kept = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", **variables}
    done = subprocess.run([script], env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words, environment = json.loads(done.stdout)
    return words[1:], environment


def measured_flags(launch):
    """The flags with which a server was measured, without those that each form sets anew."""
    flags = flags_of(launch.argv)
    return {name: value for name, value in flags.items() if name not in ("host", "port", "served-model-name", "model")}


def test_a_script_starts_what_was_measured_with_the_hubs_model(tmp_path):
    flags = {"compilation-config": '{"level": 3, "x": "$HOME"}', "no-enable-chunked-prefill": True}
    given = {"flags": flags, "environment": {"VLLM_ATTENTION_BACKEND": "it's $HOME"}, "tensor_parallel": 2}
    launch = put(tmp_path, model=HUB, deployment=given)
    words, environment = started(tmp_path, "vllm", PORT="81")
    assert words[:6] == ["serve", "org/model", "--host", EVERYWHERE, "--port", "81"]
    told = flags_of(words[6:])
    assert told.pop("revision") == COMMIT
    assert told == measured_flags(launch)
    assert told["compilation-config"] == flags["compilation-config"] and told["enable-chunked-prefill"] is False
    assert environment["VLLM_ATTENTION_BACKEND"] == "it's $HOME"


def test_random_weights_seeds_and_the_benchmarks_names_stay_behind(tmp_path):
    launch = put(tmp_path, deployment={"flags": {"seed": 7, "disable-log-requests": True}})
    assert flags_of(launch.argv)["load-format"] == "dummy"
    # Without a model it ends before it starts anything.
    done = subprocess.run(["sh"], input=exported(tmp_path), capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode and "MODEL: Set it to the folder of the model" in done.stderr
    words, environment = started(tmp_path, "vllm", MODEL="/models/real")
    assert words[1] == "/models/real"
    told = flags_of(words)
    assert not {"load-format", "seed", "disable-log-requests", "served-model-name"} & set(told)
    assert "HF_HUB_OFFLINE" not in environment
    script = (tmp_path / "start.sh").read_text()
    for left in ("--load-format dummy", "--seed 7", "--served-model-name a", "HF_HUB_OFFLINE=1"):
        assert f"# - {left}: " in script


def test_paths_of_the_measured_machine_are_pointed_out(tmp_path):
    for number, (value, path) in enumerate((
        ("/x/t.jinja", True),
        ('{"model": "/x/draft", "n": 3}', True),
        ("results/adapters/one", True),
        ("one=./adapters/one", True),
        ("org/model", False),
        ("http://10.0.0.1:80/x", False),
        ('{"model": "org/draft"}', False),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        put(folder, deployment={"flags": {"x": value}})
        text = exported(folder)
        assert ("names a path of the machine" in text) is path, value
        assert text.count(f"--x {value}" if path else value) >= 1, value


def test_no_secret_is_in_any_form(tmp_path):
    secret = "sk-0123456789abcdefghij"  # noqa: S105 - made up
    launch = put(tmp_path, model=HUB, deployment={"environment": {"MY_API_KEY": secret}})
    record = tmp_path / "results/deployments/a/launch.json"
    edited = {"argv": [*launch.argv, "--api-key", secret], "environment": {**launch.environment, "OTHER_TOKEN": secret}}
    record.write_text(json.dumps({**json.loads(record.read_text()), **edited}))  # as an older version may have left it
    assert set(Form.__args__) == {*FORMS, "benchmark-report"}
    for form in FORMS:
        text = exported(tmp_path, form)
        assert secret not in text and "<secret>" not in text, form
        assert "MY_API_KEY" in text and "OTHER_TOKEN" in text and "--api-key: its value is a secret" in text, form


def test_a_compose_file_is_one_and_has_the_measured_flags(tmp_path):
    given = {"flags": {"compilation-config": "$x"}, "tensor_parallel": 2, "dtype": "float16"}
    launch = put(tmp_path, model=HUB, deployment=given)
    content = yaml.safe_load(exported(tmp_path, "compose"))
    jsonschema.Draft7Validator(COMPOSE).validate(content)
    service = content["services"]["a"]
    assert service["image"] == "vllm/vllm-openai:v0.32.0"
    assert service["command"][0] == "org/model"
    told = flags_of([word.replace("$$", "$") for word in service["command"]])
    assert {told.pop(name) for name in ("revision", "host", "port")} == {COMMIT, EVERYWHERE, "8000"}
    assert told == measured_flags(launch)
    assert "$$x" in service["command"]  # Compose reads variables in a single one
    (gpu,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (gpu["driver"], gpu["count"], service["ipc"]) == ("nvidia", 2, "host")
    assert service["healthcheck"]["test"][-1] == "http://localhost:8000/health"
    assert service["environment"]["HF_TOKEN"] is None
    assert content["volumes"].keys() == {"hf-cache"}


def test_llama_cpp_has_an_image_of_its_build_and_no_gpus(tmp_path):
    put(tmp_path, made=LLAMA, version="b11549-1a2b3c4", deployment={"max_num_seqs": 2})
    content = yaml.safe_load(exported(tmp_path, "compose"))
    jsonschema.Draft7Validator(COMPOSE).validate(content)
    service = content["services"]["a"]
    assert service["image"] == "ghcr.io/ggml-org/llama.cpp:server-b11549"
    assert "deploy" not in service and "ipc" not in service
    assert service["command"][:2] == ["--model", "/model.gguf"] and service["volumes"][0].endswith(":/model.gguf:ro")


def test_a_container_keeps_its_image_and_needs_no_version(tmp_path):
    image = "registry:5000/our/vllm@sha256:ab12"
    run = ["docker", "run", "--rm", "--entrypoint", "python3", image, "-m", "vllm.entrypoints.openai.api_server"]
    put(tmp_path, made={"source": "command", "command": run, "backend": "cuda"}, model=HUB, measured=False)
    service = yaml.safe_load(exported(tmp_path, "compose"))["services"]["a"]
    assert service["image"] == image


def test_a_manifest_of_kubernetes_has_the_measured_flags_and_probes(tmp_path):
    launch = put(tmp_path, model=HUB, deployment={"tensor_parallel": 2, "flags": {"compilation-config": "$(x)"}})
    deployment, service = yaml.safe_load_all(exported(tmp_path, "kubernetes"))
    pod = deployment["spec"]["template"]
    (server,) = pod["spec"]["containers"]
    labels = (deployment["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"], service["spec"]["selector"])
    assert labels == ({"app": "a"},) * 3
    assert (server["image"], server["command"]) == ("vllm/vllm-openai:v0.32.0", ["vllm", "serve"])
    told = flags_of([word.replace("$$(", "$(") for word in server["args"]])
    assert {told.pop(name) for name in ("revision", "host", "port")} == {COMMIT, EVERYWHERE, "8000"}
    assert told == measured_flags(launch) and server["args"][0] == "org/model" and "$$(x)" in server["args"]
    assert server["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    probes = {server[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert probes == {"/health"} and service["spec"]["ports"][0]["targetPort"] == 8000
    assert {each["name"] for each in server["volumeMounts"]} == {each["name"] for each in pod["spec"]["volumes"]}


def test_a_manifest_of_a_cpu_asks_for_no_gpu(tmp_path):
    put(tmp_path, made={"source": "command", "command": ["vllm", "serve"]})
    deployment, _ = yaml.safe_load_all(exported(tmp_path, "kubernetes"))
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    assert server["image"].startswith("vllm/vllm-openai-cpu:") and server["args"][0] == "/model"
    assert "resources" not in server


def test_what_a_form_cannot_express_is_refused_by_name(tmp_path):
    own = {"source": "command", "command": ["numactl", "-N0", "vllm", "serve"], "backend": "cuda"}
    for number, (given, form, said) in enumerate((
        ({"measured": False}, "compose", "the version of vLLM is not known before a session has measured it"),
        ({"version": "0.1.dev1+gabc"}, "kubernetes", "no image of vLLM 0.1.dev1+gabc is published"),
        ({"made": own}, "compose", "a command of its own, `numactl -N0 vllm serve`"),
    )):  # fmt: skip
        put(tmp_path / str(number), **given)
        error = refused(tmp_path / str(number), form)
        assert f"--form {form}: a " in error and said in error, said
    # And servers of others, and unknown names.
    put(tmp_path)
    assert "There are: a." in refused(tmp_path, name="b")
    assert "no such deployment" in refused(tmp_path, name="../deployments/a")
    record = tmp_path / "results/deployments/a/launch.json"
    external = {**json.loads(record.read_text()), "argv": None, "base_url": "http://h:1", "kind": "sglang"}
    record.write_text(json.dumps(external))
    assert "the server at http://h:1 was not started here" in refused(tmp_path)
    record.write_text(json.dumps({**external, "argv": ["vllm", "--port", "1"], "kind": "vllm"}))
    assert "its `argv` names no model. Remove it, and the next workflow" in refused(tmp_path)


def test_limits_are_told_as_the_analysis_has_them(tmp_path, summary):
    """Each of its own deployment: `a` answers all in time up to 8, `b` up to 2."""
    put(tmp_path)
    rows = [
        steady_row(summary, level, deployment=name, slow=300 if level > most else 0, started=f"2026-03-0{day}T10:00:00+00:00")
        for name, most in (("a", 8), ("b", 2))
        for day, level in enumerate((1, 2, 4, 8, 16), start=1)
    ]
    runs = frame(rows)
    runs.write_parquet(tmp_path / "results/summary.parquet")
    write_analysis(Analysis(runs, Decision(slo=["ttft_p99=1s"])), tmp_path / "results/analysis")
    text = " ".join(exported(tmp_path).replace("\n#", " ").split())
    assert "measured: 2026-03-01 to 2026-03-05, 5 runs" in text
    assert re.search(
        r"SLOs TTFT P99 ≤ 1 s: sustains (about )?1[67] requests/s \([^)]*\) at 8 requests in flight; limit: ", text
    )


def test_facts_of_another_definition_count_for_nothing(tmp_path):
    put(tmp_path, digest="other", version="9.9.9")
    text = exported(tmp_path)
    assert "measured: not yet as it is defined now" in text
    assert "9.9.9" not in text and "(version not known)" in text


def test_a_comment_cannot_be_left(tmp_path):
    """Names of a study's files reach the script as comments."""
    put(tmp_path, model=HUB, version="1\n touch hacked; exit 0\n\u2028hacked: 1\x85hacked: 1")
    script = exported(tmp_path).partition("set -eu")[0]
    assert all(line.startswith("#") for line in script.splitlines())


@pytest.mark.engine
def test_an_exported_script_serves_a_completion(tmp_path):
    """llama.cpp's own server, by the name that its own distribution gives it: here that starts the wheel's."""
    ready = read(EngineRecord, ROOT / built("llama-cpp", LLAMA))
    launch = put(tmp_path, made=LLAMA, record=ready, version="2026.10.11549", deployment={"max_num_seqs": 2})
    write_gguf(CONFIG, tmp_path / "real.gguf", dtype="float32")
    script, program = tmp_path / "start.sh", tmp_path / "bin/llama-server"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    assert bench("export", "a", "--output", script, cwd=tmp_path).returncode == 0
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {ROOT / ready.command[0]} {managed("llama.cpp").server[0]} "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "MODEL": str(tmp_path / "real.gguf"), "PORT": port, "HOST": "127.0.0.1"}
    base = f"http://127.0.0.1:{port}"

    def answers():
        assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
        try:
            return requests.get(f"{base}/health", timeout=1).ok
        except requests.ConnectionError:
            return False

    with (tmp_path / "log").open("wb") as log, subprocess.Popen([script], env=variables, stdout=log, stderr=log) as server:
        try:
            assert eventually(answers, 60.0)
            body = {"model": "any", "prompt": [5, 6, 7, 8], "max_tokens": 3, "ignore_eos": True}
            answer = requests.post(f"{base}/v1/completions", json=body, timeout=30).json()
            slots = requests.get(f"{base}/props", timeout=5).json()["total_slots"]
        finally:
            server.terminate()
            server.wait(20)
    assert answer["usage"]["completion_tokens"] == 3
    assert slots == launch.settings.max_num_seqs == 2


# Runs in the forms of others: as benchmark reports, valid by the format's own schema


SCHEMA = json.loads((ROOT / "tests/data/schemas/benchmark-report-0.2.json").read_text())
RUNS = ROOT / "tests/data/imported/own"
OWN = json.loads((RUNS / "c4/summary.json").read_text())
SERVER = {"engine": "vllm", "engine_version": "0.32.0", "model": "org/m", "gpus": 2, "tensor_parallel": 2}
SERVER |= {"hardware": "Intel(R) Xeon(R) Processor, 16 cores, 2 × NVIDIA H200"}
# Servers without GPUs, on a machine that shows none, and on one with two kinds.
OTHERS = (
    {"gpus": 0},
    {"hardware": "Intel(R) Xeon(R) Processor, 16 cores"},
    {"hardware": "Xeon, 16 cores, 1 × NVIDIA H200, 1 × NVIDIA L4"},
)


def valid(row):
    """The report of a row, as YAML brings it back."""
    report = yaml.safe_load(yaml.safe_dump(benchmark_report(row), sort_keys=False))
    jsonschema.validate(report, SCHEMA)
    return report


def test_a_report_has_the_numbers_of_the_summary(summary):
    for server in [{"engine": None}, SERVER, *(SERVER | other for other in OTHERS)]:
        (row,) = frame([steady_row(summary, 20.0, ttft_mean_s=0.1, ttft_p99_s=0.4, tpot_mean_s=0.02)]).to_dicts()
        row |= server
        report = valid(row)
        aggregate = report["results"]["request_performance"]["aggregate"]
        assert aggregate["requests"]["total"] == row["requests"]
        assert aggregate["latency"]["time_to_first_token"] == {"units": "s", "mean": 0.1} | {
            key: row[f"ttft_{key}_s"] for key in ("p50", "p90", "p95", "p99") if row[f"ttft_{key}_s"] is not None
        }
        assert aggregate["latency"]["time_per_output_token"]["units"] == "s/token"
        assert aggregate["throughput"]["request_rate"] == {"units": "queries/s", "mean": row["throughput_requests_per_s"]}
        kinds = [each["standardized"]["kind"] for each in report["scenario"].get("stack", [])]
        assert kinds == ([] if not server["engine"] else ["inference_engine"] if server == SERVER else ["generic"])
        if server == SERVER:
            (stack,) = report["scenario"]["stack"]
            assert stack["standardized"]["accelerator"] == {"model": "NVIDIA H200", "count": 2, "parallelism": {"tp": 2}}


def test_what_is_not_known_is_left_out():
    report = valid(OWN)
    assert "stack" not in report["scenario"]
    assert "observability" not in report["results"]
    assert report["results"]["request_performance"]["aggregate"]["latency"]["inter_token_latency"]["mean"] == OWN["itl_mean_s"]
    without = valid({key: value for key, value in OWN.items() if not key.endswith("_s")})
    assert "latency" not in without["results"]["request_performance"]["aggregate"]


def test_each_run_is_a_file(tmp_path):
    done = bench("export", RUNS, "--form", "benchmark-report", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.rglob("*.yaml"))
    assert [str(file) for file in files] == sorted(done.stdout.split())
    assert len(files) == 2
    for file in files:
        jsonschema.validate(yaml.safe_load(file.read_text()), SCHEMA)
    for more, said in (
        ((), "has 2 runs, but a file holds one. Give --output DIR"),
        (("--output", files[0]), "this is a file, but each run needs its own"),
    ):
        done = bench("export", RUNS, "--form", "benchmark-report", *more)
        assert done.returncode == 2 and said in done.stderr, said
    one = bench("export", RUNS / "c4", "--form", "benchmark-report")
    jsonschema.validate(yaml.safe_load(one.stdout), SCHEMA)


def test_a_fleet_and_a_run_of_another_tool_are_refused(tmp_path):
    (run,) = imported(read_peers(vllm(tmp_path)))
    fleet = OWN | {"workers": [{"worker": "http://127.0.0.1:8001"}]}
    for figures, said in ((fleet, "a fleet answered it"), (run.run.figures, "another tool measured it")):
        with pytest.raises(BenchError, match=said):
            benchmark_report(figures)


def test_runs_of_one_name_are_told_apart_by_deployment(tmp_path):
    def parsed(place, deployment):
        folder = tmp_path / "parsed" / place / "one"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({**OWN, "deployment": deployment, "run": "one"}))

    for deployment in ("x", "y"):
        parsed(deployment, deployment)
    arguments = ("export", tmp_path / "parsed", "--form", "benchmark-report", "--output", tmp_path / "out")
    done = bench(*arguments)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["x_one.yaml", "y_one.yaml"]
