"""Studies of any size, and runs that were made up, not measured: files like those that a session leaves."""

from __future__ import annotations

import gzip
import json
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.exposition import sample_name, with_catalogue

from bench.models.config_json import geometry_of_model
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import checksums, write_record
from bench.runs.launch import MemoryPlan
from bench.runs.request import RequestRecord, write_requests
from bench.runs.run import RECORD, REQUESTS, TELEMETRY, Client
from bench.servers.facts import hardware
from bench.servers.launch import memory_plan
from bench.servers.metrics import GAUGES, find_catalogue
from bench.servers.spec import DeploymentSpec
from bench.study.specs import PROTOCOL, RunSpec
from tests.support import records

__all__ = ["made_facts", "made_study", "make_run"]

_DURATION_S = 60.0
_INTERVAL_S = 0.2
_PROMPT, _OUTPUT = 128, 64
_CLOCK_START_S = 1000.0
_ENDPOINT = "http://127.0.0.1:8000/metrics"
_REPEATS = 2
_LLAMA = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 4, "head_dim": 128,
    "intermediate_size": 1408, "vocab_size": 1024, "max_position_embeddings": 1024,
}  # fmt: skip


def made_study(runs: int, a_deployment: int) -> dict[str, Any]:
    """A configuration of `runs` runs, `a_deployment` to each deployment, two of each level; its engine is a command that does nothing.

    Args:
        runs, a_deployment: even numbers.
    """
    sizes = [min(a_deployment, runs - first) for first in range(0, runs, a_deployment)]
    names = [f"d{i:03}" for i in range(len(sizes))]
    return {
        "study": {
            "title": f"{runs} runs that were made up",
            "ladders": [
                {"deployment": name, "workload": "closed", "repeats": _REPEATS,
                 "concurrency": [2 * k for k in range(1, size // _REPEATS + 1)]}
                for name, size in zip(names, sizes, strict=True)
            ],
        },
        "models": {f"kv{heads}": {"config": {**_LLAMA, "num_key_value_heads": heads}} for heads in (1, 2, 4)},
        "engines": {"none": {"source": "command", "command": ["true"]}},
        "deployments": {
            name: {"model": f"kv{(4, 2, 1)[i % 3]}", "engine": "none", "kv_cache_memory": "96MiB"} for i, name in enumerate(names)
        },
        "workloads": {
            "closed": {
                "arrival": "closed",
                "num_requests": max(300, a_deployment),  # the highest level is in flight
                "prompt_tokens": _PROMPT,
                "output_tokens": _OUTPUT,
            }
        },
    }  # fmt: skip


def made_facts(spec: DeploymentSpec) -> DeploymentFacts:
    """A deployment's facts, as a session gathers them from a server that runs."""
    plan = _memory(spec)
    cache = {
        "kv_tokens": plan.kv_tokens or 0,
        "block_size": plan.block_size,
        "kv_blocks": (plan.kv_tokens or 0) // plan.block_size,
    }
    return records.facts(deployment=spec.name, digest=spec.digest, command=("true",), hardware=hardware(), **cache)


def _memory(spec: DeploymentSpec) -> MemoryPlan:
    geometry = geometry_of_model(spec.model)
    assert geometry
    return memory_plan(spec, geometry)


def make_run(run: RunSpec, folder: Path, *, series: int = 350) -> None:
    """Write `requests.jsonl`, `telemetry.jsonl.gz` and `run.json` of a run of 60 s that never was; every check passes them.

    Half of the series move with every scrape. In the default study's bursts 7 to 20 % did in the mean, and up to 59 % while
    requests finished, which under steady load is always.

    Args:
        folder: an existing folder. series: in each of the 302 scrapes, 200 ms apart, the first before the load, the last after it.
    """
    generator = random.Random(run.digest)
    answered = _requests(int(run.level), run.workload.num_requests or 0, generator)
    write_requests(answered, folder / REQUESTS)
    lines = (json.dumps(scrape) + "\n" for scrape in _scrapes(run, answered, series, generator))
    with gzip.open(folder / TELEMETRY, "wt", compresslevel=1, encoding="utf-8") as file:  # as the scraper does
        file.writelines(lines)
    times = (f"{name}_{each}_s" for name in ("loop_lag", "schedule_delay") for each in ("p50", "p99", "max"))
    client = {
        "processes": 1,
        "cpu_s": 0.6,
        "cpu_share": 0.01,
        "reads": len(answered) * _OUTPUT,
        "resent": 0,
        "clock_skew_s": 0.0,
    }
    known = {
        "deployment_digest": run.deployment.digest,
        "digest": run.digest,
        "round": run.repeat,
        "definition": run.definition,
    }
    record = records.run(
        protocol=PROTOCOL, engine_version="0.32.0", device=hardware().cpu, clock_start_s=_CLOCK_START_S, duration_s=_DURATION_S,
        drain_s=0.01, scrape_interval_s=_INTERVAL_S, scrape_endpoint=_ENDPOINT, files=checksums(folder, (REQUESTS, TELEMETRY)),
        client=Client(**client, **dict.fromkeys((*times, "send_spread_s"), 0.001)), **known,
    )  # fmt: skip
    write_record(record, folder / RECORD)


def _requests(level: int, count: int, generator: random.Random) -> list[RequestRecord]:
    """A closed loop of `count` requests that holds `level` of them for a minute."""
    mean_s = _DURATION_S / -(-count // level)
    free = [0.0] * level
    made = []
    for index in range(count):
        begin = free[index % level]
        first = 0.01 + 0.002 * level * generator.random()
        whole = first + (mean_s - first) * generator.uniform(0.9, 1.0)
        gap = (whole - first) / (_OUTPUT - 1)
        times = [round(begin + first + gap * (k + 0.2 * generator.random()), 6) for k in range(_OUTPUT - 1)]
        times.append(round(begin + whole, 6))
        free[index % level] = begin + whole
        made.append(records.answered(times, index=index, sent_s=round(begin, 6), prompt=_PROMPT))
    return made


def _scrapes(
    run: RunSpec, answered: Sequence[RequestRecord], series: int, generator: random.Random
) -> Iterator[dict[str, Any]]:
    """What the server would have said, scrape after scrape, in the scraper's form."""
    kv_tokens = _memory(run.deployment).kv_tokens or 0
    fitting = kv_tokens // (_PROMPT + _OUTPUT)
    sent, ends = sorted(r.sent_s or 0.0 for r in answered), sorted(r.end_s or 0.0 for r in answered)
    lines = [line if line.startswith("#") else f"{line.rpartition(' ')[0]} 0" for line in with_catalogue(series)]
    heads = {i: line[:-1] for i, line in enumerate(lines) if not line.startswith("#")}
    names = {i: sample_name(head) for i, head in heads.items()}
    ours = find_catalogue(names.values()).names
    places = {gauge: next(i for i, name in names.items() if name == ours[gauge]) for gauge in GAUGES}
    counter = next(i for i, name in names.items() if name == ours["server_generation_tokens"])
    generated = sorted(time for record in answered for time in record.token_times_s)
    still = {
        ours[name]
        for name in (*GAUGES, "server_generation_tokens", "prefix_hits", *(() if run.level > fitting else ("preemptions",)))
    }
    moving = [i for i, name in names.items() if name not in still and not name.endswith("_created")]
    values = dict.fromkeys(heads, 0.0)
    for slot in range(int(_DURATION_S / _INTERVAL_S) + 2):
        due = (slot - 0.5) * _INTERVAL_S
        for i in generator.sample(moving, len(heads) // 2):
            # Buckets, counts and most totals count; sums do not.
            values[i] += generator.random() if "_sum" in heads[i] else generator.randrange(1, 5)
            lines[i] = f"{heads[i]}{values[i]!r}"
        flying = bisect_right(sent, due) - bisect_right(ends, due)
        running = min(flying, fitting)
        gauges = {"kv_usage": running / fitting, "running": float(running), "waiting": float(flying - running)}
        for name, i in places.items():
            lines[i] = f"{heads[i]}{gauges[name]!r}"
        lines[counter] = f"{heads[counter]}{float(bisect_right(generated, due))!r}"
        at = _CLOCK_START_S + due
        yield {"slot": slot, "endpoint": _ENDPOINT, "due": at, "sent": at + 0.0004, "received": at + 0.006,
               "text": "\n".join(lines) + "\n"}  # fmt: skip
