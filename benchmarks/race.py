"""The highest concurrency within an SLO on a real server: Saturate's search beside GuideLLM's and AIPerf's, and a dense grid.

    snakemake --cores 1 results/deployments/tiny-mha/launch.json
    python -m benchmarks.race --launch results/deployments/tiny-mha/launch.json --folder race

One start of the server, one contender after the other, each as its documentation has it. The grid is what they are held against:
levels from half of the search's limit to one and a half times it, a twentieth apart, each measured once after every contender, because
the speed of a machine changes within an hour. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.load.target import Target
from bench.parse.observation import observed
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.search.running import RunningServer
from bench.servers.server import Server
from bench.statistics.textbook import isotonic
from bench.study.slo import parse_slo
from benchmarks.client import peers
from benchmarks.client.clients import CLIENTS

_SHARE = 0.95  # of the requests within each limit: what both peers take by default
_START, _HIGHEST = 4, 128
_PROBE_S = 60  # of GuideLLM, which has no default
_MINUTES = 20  # of the search, at most
_DRAWS = 1000


@dataclass(frozen=True)
class Asked:
    """What all look for: tokens of each request, and the limits (ms) of TTFT and TPOT.

    Attributes:
        requests: of a run of the grid. precision: of the search (%).
    """

    prompt: int
    output: int
    ttft_ms: int
    tpot_ms: int
    requests: int
    precision: float

    @property
    def slos(self) -> tuple[str, str]:
        """As Saturate writes them."""
        return f"ttft_p{100 * _SHARE:.0f}={self.ttft_ms}ms", f"tpot_p{100 * _SHARE:.0f}={self.tpot_ms}ms"


@dataclass(frozen=True)
class Result:
    """What a contender found: the limit, its interval where it has one, its runs, and how long it took (s)."""

    limit: float
    low: float | None
    high: float | None
    runs: int
    seconds: float


def by_search(url: str, model: str, folder: Path, asked: Asked) -> Result:
    """`bench find`."""
    command = [str(Path(sys.executable).parent / "bench"), "find", "--base-url", url, "--model", model, "--concurrency"]
    command += ["--prompt-length", str(asked.prompt), "--output-length", str(asked.output)]
    command += [
        "--set",
        f"start={_START}",
        "--set",
        f"most={_HIGHEST}",
        *(text for slo in asked.slos for text in ("--slo", slo)),
    ]
    command += ["--set", f"precision={asked.precision}", "--max-minutes", str(_MINUTES), "--json", "--output-dir", str(folder)]
    began = time.monotonic()
    found = json.loads(_call(command, folder))
    return Result(found["limit"], found["low"], found["high"], len(found["runs"]), time.monotonic() - began)


def by_guidellm(url: str, model: str, folder: Path, asked: Asked) -> Result:
    """Its goodput profile: doubles, then bisects to 10 %."""
    command = [str(peers.environment(peers.GUIDELLM) / "guidellm"), "run", "--disable-console-interactive"]
    command += ["--backend", f"kind=openai_http,target={url},model={model},request_format=/v1/completions"]
    command += ["--profile", json.dumps({"kind": "goodput", "initial_streams": _START, "max_streams": _HIGHEST})]
    slo = {"ttft_ms": asked.ttft_ms, "tpot_ms": asked.tpot_ms}
    command += ["--metrics", json.dumps({"kind": "generative", "slo": slo})]
    command += ["--constraint", f"kind=max_duration,seconds={_PROBE_S}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens={asked.prompt},output_tokens={asked.output}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={peers.tokenizer()}"]
    command += ["--output", f"kind=json,path={folder / 'reported.json'}"]
    began = time.monotonic()
    _call(command, folder, CLIENTS["guidellm"].environment)
    seconds = time.monotonic() - began
    (found,) = json.loads((folder / "reported.json").read_text())["conclusions"]
    return Result(found["best_passing_streams"] or 0, None, None, len(found["probes"]), seconds)


def by_aiperf(url: str, model: str, folder: Path, asked: Asked) -> Result:
    """Its recipe for the highest concurrency under an SLA, by defaults."""
    command = [str(peers.environment(peers.AIPERF) / "aiperf"), "profile", "--model", model, "--url", url]
    command += ["--endpoint-type", "completions", "--streaming", "--tokenizer", str(peers.tokenizer())]
    command += ["--isl", str(asked.prompt), "--isl-stddev", "0", "--osl", str(asked.output), "--osl-stddev", "0"]
    command += [
        "--extra-inputs",
        "ignore_eos:true",
        "--extra-inputs",
        "temperature:0",
        "--use-server-token-count",
        "--ui",
        "none",
    ]
    command += ["--no-server-metrics", "--no-gpu-telemetry", "--artifact-dir", str(folder)]
    command += ["--search-recipe", "max-concurrency-under-sla"]
    command += ["--ttft-sla-ms", str(asked.ttft_ms), "--itl-sla-ms", str(asked.tpot_ms)]
    began = time.monotonic()
    _call(command, folder, CLIENTS["aiperf"].environment, found_none=1)
    seconds = time.monotonic() - began
    (history,) = folder.rglob("search_history.json")
    found: dict[str, Any] = json.loads(history.read_text())
    best = (found["boundary_summary"] or {}).get("feasible_max")
    return Result(best["value"] if best else 0, None, None, len(found["iterations"]), seconds)


class Grid:
    """Levels about a limit, in rounds of an order of their own."""

    def __init__(self, url: str, model: str, folder: Path, asked: Asked, about: float) -> None:
        self.asked = asked
        self.slos = tuple(map(parse_slo, asked.slos))
        self.levels = sorted({max(1, round(about * (0.5 + part / 20))) for part in range(21)})
        self.excess = np.empty((0, len(self.levels)))
        self.seconds = 0.0
        self.random = np.random.default_rng(1)
        self.server = RunningServer(
            target=Target(url, model, "none", {}),
            workload={"arrival": "closed", "prompt_tokens": asked.prompt, "output_tokens": asked.output},
            held=True,
            slos=self.slos,
            folder=folder,
            recording={"scrape_interval_s": 0.2},
            version=None,
            seed="grid",
            vocabulary=1000,
            timeout_s=600.0,
            say=lambda *_: None,
        )

    def round(self) -> None:
        """Measure each level once."""
        began = time.monotonic()
        row = np.full(len(self.levels), math.nan)
        for i in self.random.permutation(len(self.levels)):
            measured = self.server.measure(self.levels[i], self.asked.requests, len(self.excess) + 1)
            seen = observed(measured.row, self.slos, 0.01)
            if seen is not None:
                row[i] = max(seen.excesses[slo.column].value for slo in self.slos)
        self.excess = np.vstack([self.excess, row])
        self.seconds += time.monotonic() - began
        print(
            f"grid: {len(self.excess)} rounds, each limit {[round(_crossing(self.levels, each[None]), 1) for each in self.excess]}"
        )

    def found(self) -> Result:
        """Where the rising line through the excesses' medians crosses 0, with a bootstrap over rounds."""
        rounds = len(self.excess)
        chosen = np.random.default_rng(2).integers(0, rounds, (_DRAWS, rounds))
        draws = sorted(_crossing(self.levels, self.excess[each]) for each in chosen)
        low, high = draws[round(0.025 * _DRAWS)], draws[round(0.975 * _DRAWS) - 1]
        return Result(_crossing(self.levels, self.excess), low, high, self.excess.size, self.seconds)


def _crossing(levels: Sequence[int], excess: np.ndarray) -> float:
    rising = isotonic(np.nanmedian(excess, axis=0), np.ones(len(levels)))
    above = np.flatnonzero(rising > 0)
    if not len(above) or not above[0]:
        return float(levels[-1] if not len(above) else 0)
    i = int(above[0])
    share = -rising[i - 1] / (rising[i] - rising[i - 1])
    return float(levels[i - 1] * (levels[i] / levels[i - 1]) ** share)


def _call(command: Sequence[str], folder: Path, variables: dict[str, str] | None = None, *, found_none: int = 0) -> str:
    """Run a command; its words go to a file in `folder`. Returns what it wrote to its output.

    Args:
        found_none: its exit status where no load meets the limits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | (variables or {}))
    (folder / "said.txt").write_text(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    if done.returncode not in (0, found_none):
        sys.exit(f"{command[0]} failed; {folder / 'said.txt'} has its words:\n{done.stderr[-2000:]}")
    return done.stdout


_WAYS: dict[str, Callable[[str, str, Path, Asked], Result]] = {
    "search": by_search,
    "guidellm": by_guidellm,
    "aiperf": by_aiperf,
}


def main() -> None:
    """Start the server, let each contender search, print what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launch", type=Path, required=True, help="launch.json of the server's deployment")
    parser.add_argument("--folder", type=Path, required=True, help="for what they write; results.json has what was found")
    parser.add_argument(
        "--contenders", nargs="+", choices=_WAYS, default=list(_WAYS), help="in this order; each as often as named"
    )
    parser.add_argument("--about", type=float, help="middle of the grid (default: the first contender's limit)")
    parser.add_argument(
        "--lengths", nargs=2, type=int, default=[128, 64], metavar=("PROMPT", "OUTPUT"), help="tokens of a request"
    )
    parser.add_argument(
        "--limits", nargs=2, type=int, default=[500, 40], metavar=("TTFT", "TPOT"), help="the SLOs' (ms), at P95"
    )
    parser.add_argument("--requests", type=int, default=400, help="of each run of the grid")
    parser.add_argument("--precision", type=float, default=10, help="of the search (%%)")
    options = parser.parse_args()
    asked = Asked(*options.lengths, *options.limits, options.requests, options.precision)
    launch, folder = read(Launch, options.launch), options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    grid: Grid | None = None
    with Server(launch, cores=1, workers=1, log=folder / "server.log", ready_timeout_s=300.0, say=print) as server:
        model = launch.served_name or launch.deployment
        for turn, name in enumerate(options.contenders, 1):
            found = _WAYS[name](server.base_url, model, folder / f"{turn}-{name}", asked)
            results[name if name not in results else f"{name}, again"] = vars(found)
            print(name, found, flush=True)
            grid = grid or Grid(server.base_url, model, folder / "grid", asked, options.about or found.limit)
            grid.round()
            results["grid"] = vars(grid.found())
            (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    truth = results.get("grid", {}).get("limit")
    print("\n| contender | limit | interval | off the grid's | runs | minutes |\n|---|--:|--:|--:|--:|--:|")
    for name, each in results.items():
        interval = f"{each['low']:.3g} to {each['high']:.3g}" if each["low"] is not None else "none"
        off = f"{100 * (each['limit'] / truth - 1):+.0f} %" if truth else "–"
        print(f"| {name} | {each['limit']:.3g} | {interval} | {off} | {each['runs']} | {each['seconds'] / 60:.1f} |")


if __name__ == "__main__":
    main()
