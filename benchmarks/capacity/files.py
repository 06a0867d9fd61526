"""A simulated server's study as files, like those that a session leaves."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bench.runs.deployment import DeploymentFacts, Hardware
from bench.runs.files import checksums, write_record
from bench.runs.launch import Launch, flags_of, settings_of
from bench.runs.request import RequestRecord, write_requests
from bench.runs.run import RECORD, REQUESTS, TELEMETRY, Client, Host, Prefix, RunRecord, Worker
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.specs import PROTOCOL, RunSpec
from bench.workloads.schedule import PlannedRequest, schedule
from benchmarks.capacity.fleet import Case
from benchmarks.capacity.server import CUT, OK, REFUSED, Load, Trace, simulate
from benchmarks.capacity.truth import long_run

__all__ = [
    "ROUNDS", "config_of", "in_rounds", "ladder_of", "reference", "simulated", "write_deployment", "write_run", "write_study",
]  # fmt: skip

T = TypeVar("T")

ROUNDS = 3
_LADDER = (0.5, 0.75, 0.85, 0.9, 0.95, 1.0, 1.05, 1.12, 1.3)
_BELOW = (0.2, 0.3, 0.4, 0.48, 0.55, 0.62, 0.7, 0.76)  # of a ladder that ends below the limit
_REQUESTS = {0.99: 1200, 0.95: 500, 0.9: 400, 0.5: 200}  # of a run: ten times what a level takes for the percentile at all
_SHORTEST_S = 20.0
_INTERVAL_S = 0.2
_BETWEEN_S = 3.0
_CLOCK_START_S = 1000.0
_ENDPOINT = "http://127.0.0.1:8000/metrics"
_STARTED = datetime(2026, 1, 1, tzinfo=UTC)
_LABELS = '{engine="0",model_name="m"}'
_ERRORS = {REFUSED: "too many requests", 500: "internal error"}


def write_study(case: Case, folder: Path) -> None:
    """Write `server.json`, `launch.json`, `deployment.json` and, below `runs`, each run's files into `folder`."""
    plan = Plan.of(load_config(_config(case), source=case.name))
    clock = 0.0
    for _, run, speed in in_rounds(case, [(run.repeat, run) for run in plan.runs]):
        traces, planned = simulated(case, run, speed)
        clock = write_run(case, run, traces, planned, folder / "runs" / run.name, clock)
    # One of eight was started by somebody else.
    write_deployment(case, plan.runs[0].deployment, folder, started_here=not case.withheld and case.number % 8 != 7)
    truth = {**asdict(case), "reference_rps": reference(case, max(run.level for run in plan.runs))}
    (folder / "server.json").write_text(json.dumps(truth, indent=1))


def in_rounds(case: Case, runs: Iterable[tuple[int, T]]) -> list[tuple[int, T, float]]:
    """Runs, with their repeats, in rounds over all levels, each in an order of its own; and how fast the machine is in each."""
    draw = random.Random(case.name)  # noqa: S311 - no secret
    order = sorted(((repeat, draw.random(), run) for repeat, run in runs), key=lambda each: each[:2])
    rounds = [math.exp(draw.gauss(0, 0.03)) if case.drift == "rounds" else 1.0 for _ in range(ROUNDS)]
    slows_down = 1 + case.trend * (0.5 - (np.arange(len(order)) + 0.5) / len(order))
    return [(repeat, run, rounds[repeat - 1] * float(at)) for (repeat, _, run), at in zip(order, slows_down, strict=True)]


def write_deployment(case: Case, spec: DeploymentSpec, folder: Path, *, started_here: bool = True, replicas: int = 1) -> None:
    """Write `launch.json`, whose command names the engine's bounds if it was started here, and `deployment.json`."""
    server = case.server
    bounds = ("--max-num-seqs", str(server.slots), "--max-num-batched-tokens", str(server.budget)) if started_here else ()
    argv = ("serve", "m", *bounds)
    facts = DeploymentFacts(
        deployment=spec.name, digest=spec.digest, engine_version=_version(case), managed=True, command=("true",), environment={},
        ready_s=1.0, prefix_caching=False, hardware=Hardware(cpu="simulated", cores=1, memory_bytes=2**34, gpus=()), **_kv(case),
    )  # fmt: skip
    launch = Launch(deployment=spec.name, model="m", engine="none", device="cuda", tensor_parallel=1, gpus=1, digest=spec.digest,
                    replicas=replicas, plan=None, argv=argv, settings=settings_of(flags_of(argv)))  # fmt: skip
    write_record(launch, folder / "launch.json")
    write_record(facts, folder / "deployment.json")


def _kv(case: Case) -> dict[str, int | None]:
    """The KV cache as the server reports it."""
    server = case.server
    if case.withheld:
        return dict.fromkeys(("kv_blocks", "block_size", "kv_tokens"))
    return {"kv_blocks": server.blocks, "block_size": server.block_size, "kv_tokens": server.blocks * server.block_size}


def reference(case: Case, highest: float) -> float:
    """What the ladder could show at best: the truth, or, where it ends below, what its highest level carries (requests/s)."""
    if not case.ends_below:
        return case.rps
    return long_run(case.server, case.demand, case.limit, highest, count=6000, seed=1).rps


def _version(case: Case) -> str | None:
    return None if case.withheld in ("all", "names") else "0.32.0"


def _config(case: Case) -> dict[str, Any]:
    """The configuration of its study."""
    demand = case.demand
    axis, levels, requests = ladder_of(case)
    workload: dict[str, Any] = {"arrival": demand.arrival, "output_tokens": demand.output, "num_requests": requests}
    workload["prompt_tokens"] = demand.prompt if not demand.sigma else {
        "distribution": "lognormal", "median": float(demand.prompt), "sigma": demand.sigma, "max": 4 * demand.prompt
    }  # fmt: skip
    ladder = {"deployment": case.name, "workload": "load", "repeats": ROUNDS, axis: levels}
    if demand.burstiness:
        workload["burstiness"] = demand.burstiness
    return config_of([ladder], [case.name], {"load": workload})


def config_of(ladders: list[dict[str, Any]], deployments: Iterable[str], workloads: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a study of simulated servers."""
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4,
        "head_dim": 128, "intermediate_size": 1408, "vocab_size": 1024, "max_position_embeddings": 16384,
    }  # fmt: skip
    return {
        "study": {"title": "simulated servers", "ladders": ladders},
        "models": {"m": {"config": config}},
        "engines": {"none": {"source": "command", "command": ["true"]}},
        "deployments": {name: {"model": "m", "engine": "none", "kv_cache_memory": "1GiB"} for name in deployments},
        "workloads": workloads,
    }


def ladder_of(case: Case) -> tuple[str, list[float], int]:
    """The axis, the levels about a guess of the limit, and the requests of a run."""
    guess = case.around * random.Random(f"{case.name}/guess").uniform(0.93, 1.07)  # noqa: S311 - no secret
    factors = _BELOW if case.ends_below else _LADDER
    requests = max(_REQUESTS[case.limit.share], math.ceil(max(_SHORTEST_S, _length(case)) * case.rps))
    requests = math.ceil(requests * case.demand.more)  # as `num_requests: auto` does
    if case.demand.arrival != "closed":
        return "request_rate", [float(f"{factor * guess:.4g}") for factor in factors], requests
    levels = sorted({max(1, round(factor * guess)) for factor in factors})
    return "concurrency", levels, max(requests, 5 * levels[-1])


def _length(case: Case) -> float:
    """Long against the latency that is limited, unless the limit is not to bear on the load (s)."""
    return 15 * case.limit.seconds if case.limit.seconds < 10 else 0.0


def simulated(case: Case, run: RunSpec, speed: float, workers: int = 1) -> tuple[list[Trace], list[PlannedRequest]]:
    """The run, with its requests as the client would plan them. Args: workers: of a fleet, which a router gives requests in turn."""
    planned = schedule(run.workload, run.level, run.schedule_seed)
    closed, turns = run.workload.arrival == "closed", run.workload.turns
    seed = int.from_bytes(hashlib.sha256(f"{case.name}/{run.name}".encode()).digest()[:4], "big")
    traces = []
    for worker in range(workers):
        mine = planned[worker::workers]
        load = Load(
            [request.prompt_tokens for request in mine],
            [request.output_tokens for request in mine],
            None if closed else [request.due_s or 0.0 for request in mine],
            int(run.level) // workers if closed else 0,
            turns.count if turns else 1,
            turns.think_s if turns else 0.0,
        )
        traces.append(simulate(case.server, load, seed=seed + worker, speed=speed, watch=True))
    return traces, planned


def write_run(
    case: Case, run: RunSpec, traces: Sequence[Trace], planned: Sequence[PlannedRequest], folder: Path, clock: float
) -> float:
    """Its three files; when the next run begins (s). Args: traces: of each worker of a fleet. clock: when this one began (s)."""
    folder.mkdir(parents=True)
    write_requests(_records(case, traces, planned), folder / REQUESTS)
    scraped = case.withheld != "all"
    length = max(float(np.nanmax(trace.end)) for trace in traces)
    workers = [f"http://10.0.0.{i + 1}:8000" for i in range(len(traces))] if len(traces) > 1 else []
    endpoints = [f"{worker}/metrics" for worker in workers] or [_ENDPOINT]
    if scraped:
        with gzip.open(folder / TELEMETRY, "wt", compresslevel=1, encoding="utf-8") as file:
            each = (_scrapes(case, trace, length, at) for trace, at in zip(traces, endpoints, strict=True))
            file.writelines(json.dumps(scrape) + "\n" for scrapes in zip(*each, strict=True) for scrape in scrapes)
    count = len(planned)
    record = RunRecord(
        protocol=PROTOCOL,
        deployment_digest=run.deployment.digest,
        engine_version=_version(case),
        digest=run.digest,
        round=run.repeat,
        definition=run.definition,
        started=(_STARTED + timedelta(seconds=clock)).isoformat(timespec="milliseconds"),
        clock_start_s=_CLOCK_START_S,
        duration_s=round(length, 6),
        drain_s=0.01,
        scrape_interval_s=_INTERVAL_S if scraped else None,
        scrape_endpoint=_ENDPOINT if scraped and not workers else None,
        workers=tuple(
            Worker(name=name, endpoint=at, kind="vllm", engine_version=_version(case), engines=1, **_kv(case))
            for name, at in zip(workers, endpoints, strict=False)
        ),
        client=Client(
            processes=1, cpu_s=round(0.0005 * count, 4), cpu_share=0.02, resent=0,
            reads=sum(int(trace.tokens.sum()) for trace in traces),
            loop_lag_p50_s=0.0005, loop_lag_p99_s=0.0005, loop_lag_max_s=0.0005,
            schedule_delay_p50_s=0.0001, schedule_delay_p99_s=0.0001, schedule_delay_max_s=0.0001,
            send_spread_s=max(float(np.nanmax(trace.sent)) for trace in traces), realtime=True, clock_skew_s=0.0,
        ),
        prefix=Prefix(primed_tokens=0, expected_tokens=0),
        host=Host(busy_share=0.3, steal_share=0.0),
        files=checksums(folder, (REQUESTS, TELEMETRY)),
    )  # fmt: skip
    write_record(record, folder / RECORD)
    return clock + length + _BETWEEN_S


def _records(case: Case, traces: Sequence[Trace], planned: Sequence[PlannedRequest]) -> Iterator[RequestRecord]:
    """What the client would have stamped: each token's chunk at the end of its step, and the way back."""
    wire = case.server.wire_ms / 1000
    for request in planned:
        trace, i = traces[request.index % len(traces)], request.index // len(traces)
        sent, status = float(trace.sent[i]), int(trace.status[i])
        if math.isnan(sent):  # it never left
            continue
        refused = status not in (OK, CUT)
        times = [] if refused else np.round(trace.made(i) + wire, 6).tolist()
        first, last, end = (None, None, round(float(trace.end[i]), 6)) if refused else (times[0], times[-1], times[-1])
        yield RequestRecord(
            index=request.index,
            after=request.after[0] if request.after else None,
            outcome="ok" if status == OK else "disconnect" if status == CUT else "http_error",
            error=None if status == OK else _ERRORS.get(status, "the connection was closed"),
            status=status if refused else 200,
            prompt_asked=request.prompt_tokens,
            output_asked=request.output_tokens,
            prompt_tokens=request.prompt_tokens if status == OK else None,
            completion_tokens=request.output_tokens if status == OK else None,
            cached_tokens=None,
            scheduled_s=round(sent - (0.0001 if request.due_s is not None else 0.0), 6),
            sent_s=round(sent, 6),
            headers_s=end if refused else times[0],
            first_byte_s=end if refused else times[0],
            first_token_s=first,
            first_output_s=first,
            last_token_s=last,
            end_s=end,
            ttft_s=None if first is None else round(first - sent, 6),
            e2e_s=None if last is None else round(last - sent, 6),
            token_times_s=times,
            request_class=request.request_class,
        )


def _scrapes(case: Case, trace: Trace, length: float, endpoint: str) -> Iterator[dict[str, Any]]:
    """What the server would have exposed, scrape after scrape, the first before the load and the last after it."""
    gauges = trace.gauges
    for slot in range(math.ceil(length / _INTERVAL_S) + 3):
        due = (slot - 0.5) * _INTERVAL_S
        step = int(np.searchsorted(trace.steps, due, side="right")) - 1
        values = {name: int(column[step]) if step >= 0 else 0 for name, column in gauges.items()}
        seen = trace.end <= due
        at = _CLOCK_START_S + due
        yield {"slot": slot, "endpoint": endpoint, "due": at, "sent": at + 0.0002, "received": at + 0.002,
               "text": _exposition(case, values, trace, seen)}  # fmt: skip


def _exposition(case: Case, values: dict[str, int], trace: Trace, seen: np.ndarray) -> str:
    """The catalogue's metrics in vLLM's words."""
    ended = seen & (trace.status == OK)
    count = int(ended.sum())
    ttft = float((trace.first - trace.sent)[ended].sum())
    e2e = float((trace.last - trace.sent)[ended].sum())
    tokens = int(trace.tokens[ended].sum())
    samples: dict[str, float] = {
        "num_requests_running": values["running"],
        "num_requests_waiting": values["waiting"],
        "kv_cache_usage_perc": values["used"] / (case.server.blocks - 1),
        "num_preemptions_total": values["preemptions"],
        "prompt_tokens_total": values["prompt_tokens"],
        "generation_tokens_total": values["generation_tokens"],
        "prefix_cache_queries_total": values["prompt_tokens"],
        "prefix_cache_hits_total": 0,
    }
    if case.withheld == "gauges":
        for name in ("num_requests_waiting", "kv_cache_usage_perc"):
            del samples[name]
    for name, total, number in (
        ("time_to_first_token_seconds", ttft, count),
        ("inter_token_latency_seconds", e2e - ttft, tokens - count),
        ("e2e_request_latency_seconds", e2e, count),
        ("request_decode_time_seconds", e2e - ttft, count),
    ):
        samples |= {f"{name}_sum": round(total, 6), f"{name}_count": number}
    for name in ("request_queue_time_seconds", "request_prefill_time_seconds"):  # not split here
        samples |= {f"{name}_sum": round(ttft / 2, 6), f"{name}_count": count}
    prefix = "other:" if case.withheld == "names" else "vllm:"
    lines = [f"{prefix}{name}{_LABELS} {float(value)!r}" for name, value in samples.items()]
    if not case.withheld:
        size, blocks = case.server.block_size, case.server.blocks
        lines.append(f'vllm:cache_config_info{{block_size="{size}",engine="0",num_gpu_blocks="{blocks}"}} 1.0')
    return "\n".join(lines) + "\n"
