"""Whether a slowdown of a known size is found on a real engine, and none where there is none.

One vLLM behind three proxies (slow_proxy.py): two that delay nothing, one that delays each token. Three deployments of an external
engine, measured in sessions that alternate, with the model, the workload and the levels of `engines-small`; then the comparisons that
`bench compare` makes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from tests.support.stores import ROOT, copy_project

from bench.runs.files import read
from bench.runs.launch import Launch
from bench.servers.server import Server

_BIN = Path(sys.executable).parent
_STUDY = ROOT / "config/studies/engines-small.yaml"
_SAME, _AGAIN, _SLOWER = "same", "again", "slower"


def prepare(folder: Path) -> Launch:
    """A copy of the project in `folder`, which shares this one's environment and engines; the launch of the real engine."""
    copy_project(folder)
    (ROOT / "results/engines").mkdir(parents=True, exist_ok=True)
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results/engines").symlink_to(ROOT / "results/engines")
    (folder / ".venv").symlink_to(_BIN.parent)
    launch = "results/deployments/v0.32/launch.json"
    workflow(folder, launch, "--configfile", str(_STUDY))
    return read(Launch, folder / launch)


def workflow(folder: Path, *arguments: str) -> None:
    """Run Snakemake in `folder`; its lines go to workflow.out."""
    command = [_BIN / "snakemake", "--nolock", "--cores", "1", *arguments]
    with (folder / "workflow.out").open("a") as out:
        done = subprocess.run(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{folder / 'workflow.out'}:\n" + (folder / "workflow.out").read_text()[-3000:])


def write_study(folder: Path, urls: dict[str, str], sessions: int, levels: list[int]) -> None:
    """The study of the proxies at `urls`, as the copy's own."""
    small = yaml.safe_load(_STUDY.read_text())
    model = next(iter(small["models"]))
    ladder = {"workload": "mixed", "concurrency": levels, "repeats": sessions}
    content = {
        "study": {
            "title": "A planted slowdown",
            "baseline": _SAME,
            "sessions": sessions,
            "ladders": [{"deployment": name, **ladder} for name in urls],
        },
        "models": small["models"],
        "engines": {name: {"source": "external", "base_url": url} for name, url in urls.items()},
        "deployments": {name: {"model": model, "engine": name, "served_name": "v0.32"} for name in urls},
        "workloads": small["workloads"],
        "thresholds": {"other_share": 1.0},  # the server and its proxies are other processes here
    }
    (folder / "config/config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def compared(folder: Path, candidate: str) -> dict[str, Any]:
    """What `bench compare` finds of a deployment, with all levels, regions and trends."""
    command = [_BIN / "bench", "compare", _SAME, candidate, "--runs", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    text = subprocess.run([_BIN / "bench", "compare", _SAME, candidate, "--runs"], cwd=folder, capture_output=True, text=True)
    print(text.stdout, flush=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Measure, compare, and write both to --output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="a new folder for the copy of the project and its results")
    parser.add_argument("--delay-ms", type=float, default=2.0, help="milliseconds a token (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=8, help="of each deployment (default: %(default)s)")
    parser.add_argument("--levels", type=int, nargs="+", default=[2, 4, 8, 16], help="in flight (default: 2 4 8 16)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    folder = options.folder.resolve()
    launch = prepare(folder)
    os.chdir(folder)  # the launch names the checkpoint from there
    with ExitStack() as stack:
        server = Server(
            launch,
            cores=1,
            workers=1,
            log=folder / "server.log",
            ready_timeout_s=300.0,
            say=lambda text: print(text, flush=True),
        )
        stack.enter_context(server)
        urls = {}
        for number, (name, delay_ms) in enumerate({_SAME: 0.0, _AGAIN: 0.0, _SLOWER: options.delay_ms}.items()):
            port = int(server.base_url.rsplit(":", 1)[1]) + 1 + number
            command = [sys.executable, "-m", "tests.support.slow_proxy", "--target", server.base_url, "--port", str(port)]
            command += ["--delay-ms", str(delay_ms), "--record", str(folder / f"{name}.jsonl")]
            proxy = stack.enter_context(subprocess.Popen(command, cwd=ROOT))
            stack.callback(proxy.terminate)
            urls[name] = f"http://127.0.0.1:{port}"
        time.sleep(2)
        write_study(folder, urls, options.sessions, options.levels)
        began = time.monotonic()
        workflow(folder, "results/summary.parquet")
        print(f"measured in {time.monotonic() - began:.0f} s", flush=True)
    for name in (_AGAIN, _SLOWER):
        (folder / f"{name}.json").write_text(json.dumps(compared(folder, name), indent=2) + "\n")


if __name__ == "__main__":
    main()
