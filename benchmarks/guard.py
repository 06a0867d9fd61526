"""Alerts of `bench guard` on a real server, scraped by a real Prometheus: how soon an overload fires, and whether valid load is silent.

    apt-get install prometheus
    python -m benchmarks.guard results:tiny-mqa --valid 60 --overload 12

The study's server is started again. It gets as much load as its study established to be within the SLOs, for an hour by
default, and then twice C_max, both as closed loops. Needs a quiet machine: where other programs slow the server, alerts on its SLOs are
right.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from bench.axes import CONCURRENCY
from bench.beside.production.guard import written
from bench.beside.production.guard.measured import Measured, read_measured
from bench.results import Results
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.servers.fleet import server_of

_SCRAPE = "5s"
_MINUTE_S = 60.0
_POLL_S = 1.0
_FASTER = 10  # times as fast as in the study, at most: a load has requests enough, and is ended by its time


@contextmanager
def prometheus(measured: Measured, server: str, folder: Path) -> Iterator[str]:
    """A Prometheus that scrapes the server, and evaluates the rules; its address."""
    texts, _ = written(measured)
    (folder / "rules.yaml").write_text(texts.get("rules.yaml") or sys.exit("The results have no telemetry of a known engine."))
    scrape = {
        "job_name": measured.deployment,
        "static_configs": [{"targets": [server.removeprefix("http://")]}],
    }
    content = {
        "global": {"scrape_interval": _SCRAPE, "evaluation_interval": _SCRAPE},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [scrape],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(content))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [shutil.which("prometheus") or sys.exit("prometheus is not installed: apt-get install prometheus")]
    command += ["--config.file", "prometheus.yml", "--storage.tsdb.path", "data", "--web.listen-address", address]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def load(
    server: str, launch: Launch, measured: Measured, held: int, seconds: float, folder: Path, longer: float = 1.0
) -> Iterator[None]:
    """A closed loop of the study's lengths. Args: longer: factor on output lengths."""
    count = math.ceil(_FASTER * measured.point["usable_rps"] * seconds)
    lengths = (
        ("--prompt-length", measured.point["prompt_tokens"]),
        ("--output-length", longer * measured.point["output_tokens"]),
    )
    command = [sys.executable, "-m", "bench.cli", "workload", "--base-url", server, "--concurrency", str(held)]
    command += ["--model", launch.served_name or launch.deployment, "--num-requests", str(count), "--output-dir", str(folder)]
    command += [word for flag, tokens in lengths for word in (flag, str(round(tokens)))]
    command += ["--set", f"vocabulary={launch.vocabulary}"] if launch.vocabulary else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            sys.exit("The load ended before its time.")
    finally:
        process.terminate()
        process.wait()


def loads(measured: Measured) -> tuple[int, int]:
    """As many in flight as the study established to be within the SLOs, and twice C_max."""
    if measured.axis != CONCURRENCY:
        sys.exit(
            f"The study's load is counted in {measured.point['unit']}, and this sends closed loops. Give one of concurrency."
        )
    low, c_max = measured.point["low"], measured.point["c_max"]
    sustained = math.floor(c_max if low is None else min(low, c_max))
    if sustained < 1:
        sys.exit(f"The lower end of C_max's interval is {low:g}: no load is established to be within the SLOs.")
    return sustained, math.ceil(2 * c_max)


def watched(address: str, seconds: float) -> dict[str, float]:
    """When each alert first fires (s)."""
    begun, fired = time.monotonic(), dict[str, float]()
    while (now := time.monotonic() - begun) < seconds:
        try:
            found: list[dict[str, Any]] = requests.get(f"{address}/api/v1/alerts", timeout=5).json()["data"]["alerts"]
        except requests.ConnectionError:  # while it starts
            found = []
        for alert in found:
            if alert["state"] == "firing":
                fired.setdefault(alert["labels"]["alertname"], round(now))
        time.sleep(_POLL_S)
    return fired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder with a study's results")
    parser.add_argument("--valid", type=float, default=60.0, help="minutes of valid load")
    parser.add_argument("--overload", type=float, default=12.0, help="minutes of overload")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args()
    measured = read_measured(options.results)
    sustained, beyond = loads(measured)
    launch = read(Launch, Results.open(options.results).folder / "deployments" / measured.deployment / "launch.json")
    print(f"{measured.deployment}: {measured.limit_text}", flush=True)
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with (
            server_of(launch, cores=1, workers=1, log=folder / "server.log", ready_timeout_s=300.0, say=print) as server,
            prometheus(measured, server.base_url, folder) as address,
        ):
            for name, held, minutes in (("valid", sustained, options.valid), ("overload", beyond, options.overload)):
                seconds = minutes * _MINUTE_S
                with load(server.base_url, launch, measured, held, seconds, folder / name):
                    fired = watched(address, seconds)
                found[name] = {"in_flight": held, "minutes": minutes, "fired_after_s": fired}
                print(f"{held} in flight for {minutes:g} minutes: {fired or 'no alert'}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
