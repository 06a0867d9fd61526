"""Real servers behind a real router, against the prediction of a model that was calibrated on each of them.

    apt-get install haproxy
    snakemake --cores 1 results/sessions/llama-cpp/1.json --configfile config/studies/two-engines-small.yaml
    python -m benchmarks.behind_router results:llama-cpp --folder fleet
    python -m benchmarks.behind_router results:llama-cpp --folder fleet-vllm --front vllm-router
    python -m benchmarks.behind_router results:llama-cpp --folder fleet-3 --servers 3

Each server has a core of its own; more than there are cores share all of them. All are calibrated by closed loops of three levels, at
the same time, as they share the machine; then Poisson arrivals go to the router, at shares of what all carry: HAProxy gives them out
in turn or to the server with the fewest connections, vLLM's router in turn or to the better of two. Each load is predicted from the
closed loops alone, and measured twice.
Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import requests

from bench.findings.predicted import REPORTED
from bench.http import get
from bench.load.target import Target
from bench.predict.calibrate import MeasuredRun, calibrate, planned_again
from bench.predict.calibration import METRICS
from bench.predict.ensemble import Member, members
from bench.predict.fleet import Router, replay_fleet
from bench.predict.judge import measured, self_judged
from bench.predict.limits import Limits
from bench.predict.predict import ensemble_interval, measures, widened
from bench.predict.sources import read_limits
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.search.running import RunningServer
from bench.servers.server import Server
from benchmarks.client.peers import environment

_BALANCE: dict[Router, str] = {"least-requests": "leastconn", "round-robin": "roundrobin"}  # as HAProxy calls them
_POLICIES: dict[Router, str] = {"power-of-two": "power_of_two", "round-robin": "round_robin"}  # as vLLM's router does
_VLLM_ROUTER = "vllm-router==0.1.17"
_ROUTER_READY_S = 60.0
_REQUESTS, _REPEATS = 300, 2
# Without the option, HAProxy holds back the first chunk of an answer for up to 0.2 s (its manual, `option http-no-delay`).
_CONFIGURATION = """
defaults
  mode http
  option http-no-delay
  timeout connect 10s
  timeout client 600s
  timeout server 600s
frontend all
  bind 127.0.0.1:{port}
  default_backend servers
backend servers
  balance {balance}
{servers}
"""


@contextmanager
def haproxy(servers: Sequence[str], router: Router, folder: Path) -> Iterator[str]:
    """HAProxy before the servers; its address."""
    port = _free_port()
    lines = "\n".join(f"  server server{i} {url.removeprefix('http://')}" for i, url in enumerate(servers, 1))
    configuration = folder / f"haproxy-{router}.cfg"
    configuration.write_text(_CONFIGURATION.format(port=port, balance=_BALANCE[router], servers=lines))
    process = subprocess.Popen([shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", str(configuration)])
    try:
        time.sleep(1.0)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def vllm_router(servers: Sequence[str], router: Router, folder: Path) -> Iterator[str]:
    """vLLM's router before the servers; its address."""
    port = _free_port()
    command = [str(environment(_VLLM_ROUTER) / "python"), "-m", "vllm_router.launch_router", "--policy", _POLICIES[router]]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(_free_port()), "--worker-urls", *servers]
    with (folder / f"vllm-router-{router}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + _ROUTER_READY_S
            while not _answers(f"http://127.0.0.1:{port}/v1/models"):
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"vLLM's router did not start; {log.name} has its words.")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


_FRONTS = {"haproxy": (haproxy, _BALANCE), "vllm-router": (vllm_router, _POLICIES)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        return get(url).ok
    except requests.RequestException:
        return False


def started(launch: Launch, folder: Path, count: int, stack: ExitStack) -> list[str]:
    """Servers on a core each, all with an address of their own; of more than there are cores none is pinned."""
    everything, addresses = os.sched_getaffinity(0), []
    pinned = count <= len(everything)
    for number, core in zip(range(count), itertools.cycle(sorted(everything))):
        os.sched_setaffinity(0, {core} if pinned else everything)
        try:
            log = folder / f"server-{number + 1}.log"
            options = {"cores": int(pinned), "workers": 1, "log": log, "ready_timeout_s": 300.0, "say": print}
            server = stack.enter_context(Server(launch, **options))
        finally:
            os.sched_setaffinity(0, everything)
        addresses.append(server.base_url)
    return addresses


def running(url: str, launch: Launch, folder: Path, arrival: str, lengths: Sequence[int], seed: str) -> RunningServer:
    """What measures a load there."""
    return RunningServer(
        target=Target(url, launch.served_name or launch.deployment, "none", {}),
        workload={"arrival": arrival, "prompt_tokens": _around(lengths[0]), "output_tokens": _around(lengths[1])},
        held=arrival == "closed",
        slos=(),
        folder=folder,
        recording={"scrape_interval_s": None},
        version=launch.engine_version,
        seed=seed,
        vocabulary=launch.vocabulary or 1000,
        timeout_s=600.0,
        say=lambda *_: None,
    )


def _around(tokens: int) -> dict[str, Any]:
    return {"distribution": "uniform", "min": max(1, tokens // 2), "max": tokens * 3 // 2}


def run_of(server: RunningServer, level: float, requests: int, turn: int) -> MeasuredRun:
    """A run, as a model is calibrated on it."""
    found = server.measure(level, requests, turn)
    folder = max(server.folder.glob("runs/*"), key=lambda path: path.stat().st_mtime)
    table = pl.read_parquet(folder / "requests.parquet")
    if found.reasons:
        print(f"{folder.name}: {'; '.join(found.reasons)}", flush=True)
    return MeasuredRun(folder.name, found.row, table.with_columns(cached_tokens=pl.lit(0, pl.Int64)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "results", help="folder and deployment whose launch.json and deployment.json are there, as results:llama-cpp"
    )
    parser.add_argument("--folder", type=Path, required=True, help="for what is measured")
    parser.add_argument(
        "--lengths", nargs=2, type=int, default=[64, 32], metavar=("PROMPT", "OUTPUT"), help="tokens, in the mean"
    )
    parser.add_argument("--shares", nargs="+", type=float, default=[0.5, 0.8, 0.95], help="of what all carry")
    parser.add_argument("--servers", type=int, default=2, help="how many")
    parser.add_argument("--front", choices=_FRONTS, default="haproxy", help="the router")
    options = parser.parse_args()
    front, policies = _FRONTS[options.front]
    place, _, name = options.results.partition(":")
    root, folder = Path(place), options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    limits = read_limits(root, name)
    launch = read(Launch, root / Path(Paths.LAUNCH.format(deployment=name)).relative_to("results"))
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        urls = started(launch, folder, options.servers, stack)
        runs = _calibration(urls, launch, folder, options.lengths, limits)
        model = calibrate(runs, limits)
        if model is None:
            sys.exit("Too few steps of the engine to calibrate a model.")
        model = self_judged(model, runs)
        carries = max(measured(run)["throughput_requests_per_s"] for run in runs)
        print(f"one server carries {carries:.3g} requests/s; residual of the fit {model.fitted.residual:.1%}", flush=True)
        for router in policies:
            with front(urls, router, folder) as url:
                behind = running(url, launch, folder / router, "poisson", options.lengths, router)
                for share in options.shares:
                    rate = float(f"{options.servers * share * carries:.3g}")
                    same = [run_of(behind, rate, _REQUESTS, turn) for turn in range(1, 1 + _REPEATS)]
                    found += _compared(router, share, same, members(model, count=20), model.beyond, options.servers)
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    _print(found)


def _calibration(
    urls: Sequence[str], launch: Launch, folder: Path, lengths: Sequence[int], limits: Limits
) -> list[MeasuredRun]:
    """Closed loops of one request, of half the slots, and of half as many again as there are, on all servers at a time."""
    runs = []
    with ThreadPoolExecutor(len(urls)) as pool:
        loops = [running(url, launch, folder / f"{i}", "closed", lengths, f"loop-{i}") for i, url in enumerate(urls)]
        for turn in (1, 2):
            for level in (1, limits.sequences // 2, limits.sequences * 3 // 2):
                each = pool.map(lambda loop, level=level, turn=turn: run_of(loop, level, 40 + 8 * level, turn), loops)  # type: ignore[misc]
                runs += [replace(run, name=f"{i}/{run.name}") for i, run in enumerate(each)]
                print(f"{level} in flight at each: {measured(runs[-1])['throughput_tokens_per_s']:.0f} tokens/s", flush=True)
    return runs


def _compared(
    router: Router,
    share: float,
    same: Sequence[MeasuredRun],
    ensemble: Sequence[Member],
    beyond: Mapping[str, float],
    servers: int,
) -> list[dict[str, Any]]:
    """Each run against the prediction of its arrivals."""
    found = []
    for run in same:
        plans = planned_again(run)
        replays = [
            measures(replay_fleet(plans, member.server, servers, router, overhead_s=member.overhead_s).requests)
            for member in ensemble
        ]
        for metric in REPORTED:
            if metric not in replays[0]:  # of a fleet there is no ITL
                continue
            seen = measured(run)[metric]
            interval = widened(ensemble_interval([each[metric] for each in replays]), beyond.get(metric, 0.0))
            held = interval.low <= seen <= interval.high
            found.append({"router": router, "share": share, "metric": metric, "measured": seen, **vars(interval), "held": held})
            print(
                f"{router}, {share:.0%}: {METRICS[metric]} {seen:.3g}, predicted {interval.value:.3g} ({interval.low:.3g} to "
                f"{interval.high:.3g}), {interval.value / seen - 1:+.0%}",
                flush=True,
            )
    return found


def _print(found: Sequence[dict[str, Any]]) -> None:
    print("\n| number | error in the mean | two runs of other arrivals | 90 % interval holds | runs |\n|---|--:|--:|--:|--:|")
    for metric in dict.fromkeys(row["metric"] for row in found):
        rows = [row for row in found if row["metric"] == metric]
        error = np.mean([abs(row["value"] / row["measured"] - 1) for row in rows])
        pairs = [sorted(row["measured"] for row in rows if (row["router"], row["share"]) == load) for load in _loads(rows)]
        apart, held = np.mean([pair[-1] / pair[0] - 1 for pair in pairs]), np.mean([row["held"] for row in rows])
        print(f"| {METRICS[metric]} | {error:.1%} | {apart:.1%} | {held:.0%} | {len(rows)} |")


def _loads(rows: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    return list(dict.fromkeys((row["router"], row["share"]) for row in rows))


if __name__ == "__main__":
    main()
