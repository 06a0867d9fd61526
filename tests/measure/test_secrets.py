"""Keys that are exported reach the servers, and nothing else: neither a file, nor what is printed, nor the list of processes."""

import gzip
import io
import json
import sys
import tarfile
import threading
from pathlib import Path

import polars as pl
import pytest

from bench.runs.environment import REDACTED, without_secrets
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.project import LENIENT, Project
from tests.support.study import CONTENT, ROOT, TINY

CANARY = "canary-9f3b7c1e"
KEYS = ("OPENAI_API_KEY", "HF_TOKEN", "VLLM_API_KEY", "MY_SERVICE_SECRET")
HOSTILE = "</script><script>alert(1)</script>\x1b]0;x\x07../../x"
EXPOSITION = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()

# A server as vLLM is started. It prints what it was given, and repeats the key that it is sent.
SERVER = f"""
import asyncio, os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.fake_server import FakeServer, answer
for name, value in os.environ.items():
    print(name, value, flush=True)
server = FakeServer(metrics=open({str(ROOT / "tests/data/vllm-0.32.0.prom")!r}).read(), pages={{"/version": '{{"version": "0.32.0"}}'}}, echoes=7)
async def serve():
    port = int(sys.argv[sys.argv.index("--port") + 1])
    await (await asyncio.start_server(lambda r, w: answer(server, r, w), "127.0.0.1", port)).serve_forever()
asyncio.run(serve())
"""


class Processes(threading.Thread):
    """Looks at the command lines of all processes, again and again, while it is a context."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self._ended = set(), threading.Event()

    def run(self):
        while not self._ended.wait(0.25):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(file.read_bytes())
                except OSError:
                    continue

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()


def exposition(server):
    """Metrics of a server that puts the key, and what could become HTML, into a label."""
    label = json.dumps(HOSTILE)[1:-1].replace("\\u001b", "\x1b").replace("\\u0007", "\x07")
    return EXPOSITION.replace('model_name="', f'key="{server.authorization}",odd="{label}",model_name="')


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of two servers, measured, drawn and packed with keys exported; its folder, what was printed, and the processes."""
    folder = tmp_path_factory.mktemp("project").resolve()
    program = tmp_path_factory.mktemp("server") / "server.py"
    program.write_text(SERVER)
    with pytest.MonkeyPatch.context() as patch, fake_server(
        exposition=exposition, pages={"/version": json.dumps({"version": f"0.32.0 {HOSTILE} {CANARY}-OPENAI_API_KEY"})}, gap_s=0.002, echoes=7
    ) as server:  # fmt: skip
        for name in KEYS:
            patch.setenv(name, f"{CANARY}-{name}")
        config = {
            **CONTENT,
            "study": {"title": f"A study {HOSTILE}", "ladders": [{"deployment": name, "workload": "loop", "concurrency": [2]} for name in ("mine", "theirs")]},
            "models": {"m": {"config": TINY}},
            "engines": {
                "started": {"source": "command", "command": [sys.executable, str(program)]},
                "running": {"source": "external", "base_url": server.base_url},
            },
            "deployments": {
                "mine": {"model": "m", "engine": "started", "kv_cache_memory": "1MiB", "environment": {"DB_PASSWORD": f"{CANARY}-db"}},
                "theirs": {"model": "m", "engine": "running", "served_name": HOSTILE},
            },
            "workloads": {"loop": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 16, "num_requests": 30}},
            "measurement": {"warmup_requests": 3, "reference_requests": 0},
            "thresholds": LENIENT,
        }  # fmt: skip
        project = Project(folder, config)
        study = folder / "config/config.yaml"
        with Processes() as processes:
            assert project.start("results/summary.parquet").wait(timeout=600) == 0, project.said()[-6000:]
            project.run()
            # The study's file is the user's own; nothing below may have what it holds.
            packed = bench("pack", cwd=folder)
            verified = bench("verify", "results", cwd=folder)
        study.unlink()
        printed = project.said() + project.output + "".join(done.stdout + done.stderr for done in (packed, verified))
        assert (packed.returncode, verified.returncode) == (0, 0), printed[-3000:]
        assert server.authorization == f"Authorization: Bearer {CANARY}-OPENAI_API_KEY"
        yield folder, printed, processes.seen
        for process in project.processes():
            process.kill()


def contents(file):
    """A file as it lies there, and what is in it where it is compressed."""
    raw = file.read_bytes()
    yield raw
    if file.name.endswith(".tar.gz"):
        with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
            for member in tar.getmembers():
                content = tar.extractfile(member).read()
                yield gzip.decompress(content) if member.name.endswith(".gz") else content
    elif file.suffix == ".gz":
        yield gzip.decompress(raw)
    elif file.suffix == ".parquet":
        yield str(pl.read_parquet(file).to_dicts()).encode()


def written(folder):
    """What the study wrote: everything that git does not know, but the environment."""
    for place in ("results", "logs", ".snakemake"):
        yield from (file for file in (folder / place).rglob("*") if file.is_file())


@pytest.mark.long(part="workflows")
def test_no_key_is_in_any_file(study):
    folder, _, _ = study
    files = list(written(folder))
    kinds = {"".join(file.suffixes[-2:]) for file in files}
    assert {".tar.gz", ".jsonl.gz", ".parquet", ".png", ".svg", ".html", ".md", ".csv", ".json", ".jsonl", ".log"} <= kinds
    assert len(files) > 60
    found = {str(file.relative_to(folder)) for file in files for content in contents(file) if CANARY.encode() in content}
    assert found == set()


@pytest.mark.long(part="workflows")
def test_what_a_server_repeats_of_a_request_is_kept_without_the_key(study):
    """The error as such is a result: it is there, up to the key in it, which the limit of its length does not cut in two."""
    folder, _, _ = study
    for name in ("mine", "theirs"):
        texts = [file.read_text() for file in folder.glob(f"results/runs/{name}/*/requests.jsonl")]
        records = [json.loads(line) for text in texts for line in text.splitlines()]
        errors = {record["outcome"]: record["error"] for record in records if record["error"]}
        assert errors.keys() == {"http_error", "stream_error"}
        assert f"uthorization: Bearer {REDACTED} <script>" in errors["http_error"]
        assert errors["stream_error"].startswith("not JSON: '")
        assert "canary" not in errors["stream_error"]
    log = (folder / "results/deployments/mine/server.log").read_text()
    assert f"HF_TOKEN {REDACTED}\n" in log
    assert f"DB_PASSWORD {REDACTED}\n" in log
    facts = json.loads((folder / "results/deployments/theirs/deployment.json").read_text())
    assert facts["engine_version"] == f"0.32.0 {HOSTILE} {REDACTED}".replace("\x1b", "?").replace("\x07", "?")


@pytest.mark.long(part="workflows")
def test_no_key_is_printed_or_in_a_command_line(study):
    _, printed, seen = study
    assert CANARY not in printed
    assert "\x1b]0;" not in printed.replace("A study " + HOSTILE, "")
    assert [command for command in seen if CANARY.encode() in command] == []
    programs = b" ".join(seen)
    for program in (b"bench.load", b"bench.measure.scraper", b"server.py", b"guard.py", b"snakemake", b".snakemake/scripts"):
        assert program in programs, program  # each kind of process was seen


def test_a_folder_is_no_secret_and_a_short_text_is_not_looked_for(monkeypatch):
    monkeypatch.setenv("PWD", "/home/someone")
    monkeypatch.setenv("MY_TOKEN", "abc")
    monkeypatch.setenv("OTHER_TOKEN", "abcdefgh")
    assert without_secrets(b"in /home/someone: abc, abcdefgh") == b"in /home/someone: abc, <secret>"
    assert without_secrets(b"x-one-two-three", {"A_KEY": "one-two-three", "B_KEY": "one-two-"}) == b"x-<secret>"
