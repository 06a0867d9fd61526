"""Made fleets: runs of several engines behind a router, as a session records them, of which the truth is planted."""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.parse.run import parse_run
from bench.runs.files import checksums, write_record
from bench.runs.request import write_requests
from bench.runs.run import DECODE, PREFILL, RECORD, REQUESTS, TELEMETRY, Worker
from tests.support import records
from tests.support.study import METRICS

INTERVAL_S = 0.5
SERVES_S = 2.0  # time that each request takes
PREFILLS_S = 0.6  # time that each prompt takes


@dataclass
class Fleet:
    """Workers of one size each, a router and its load; what a test plants, it changes.

    Attributes:
        requests: sent one every 0.1 s. turns: requests of a conversation, which stays at its worker. router: worker of each
            conversation. kv_tokens, versions: of each worker. usage: KV usage of each, or of each of its engines.
        silent: of a worker, between which moments (s) it answers no scrape. restarts: when a worker is started again (s).
        lacks: metrics that a worker does not expose. scraped: whether anything was scraped at all.
        prefill: how many workers, the first ones, prefill for the others by what the study says.
    """

    workers: int = 2
    requests: int = 200
    turns: int = 1
    seed: int = 0
    router: Callable[[np.random.Generator, int], int] | None = None
    kv_tokens: Mapping[int, int | None] = field(default_factory=dict)
    versions: Mapping[int, str | None] = field(default_factory=dict)
    usage: Mapping[int, float | tuple[float, ...]] = field(default_factory=dict)
    silent: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    restarts: Mapping[int, float] = field(default_factory=dict)
    lacks: Mapping[int, str] = field(default_factory=dict)
    start_times: bool = True
    scraped: bool = True
    prefill: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        route = self.router or (lambda rng, _: int(rng.integers(self.workers)))
        self.sent = np.arange(self.requests) * 0.1
        self.tokens = rng.integers(20, 200, self.requests)
        conversations = [route(rng, i) for i in range(-(-self.requests // self.turns))]
        self.at = np.array([conversations[i // self.turns] for i in range(self.requests)])
        self.end_s = float(self.sent[-1]) + SERVES_S

    @property
    def names(self) -> list[str]:
        """The workers' addresses."""
        return [f"http://10.0.0.{i + 1}:8000" for i in range(self.workers)]

    @property
    def records(self) -> tuple[Worker, ...]:
        """The workers as a session notes them."""
        return tuple(
            Worker(
                name=name,
                endpoint=f"{name}/metrics",
                kind="vllm",
                engine_version=self.versions.get(i, "0.32.0"),
                engines=1,
                kv_blocks=None,
                block_size=16,
                kv_tokens=self.kv_tokens.get(i, 16000),
                role=(PREFILL if i < self.prefill else DECODE) if self.prefill else None,
            )
            for i, name in enumerate(self.names)
        )

    def exposition(self, worker: int, at: float) -> str:
        """What a worker exposes at a moment (s)."""
        mine = self.at == worker
        restart = self.restarts.get(worker, -1.0)
        since = restart if at >= restart > 0 else -1.0
        done = mine & (self.sent + SERVES_S <= at) & (self.sent + SERVES_S > since)
        values = {
            "running": int((mine & (self.sent <= at) & (self.sent + SERVES_S > at)).sum()),
            "waiting": 0,
            "kv_usage": self.usage.get(worker, 0.25),
            "server_prompt_tokens": 16 * int(done.sum()),
            "server_generation_tokens": int(self.tokens[done].sum()),
            "prefix_queries": 16 * int(done.sum()),
            "prefix_hits": 4 * (worker + 1) * int(done.sum()),
            "server_e2e_count": int(done.sum()),
        }
        lines = []
        for ours, name in METRICS.items():
            value = values.get(ours, 0)
            engines = (
                [f'{{engine="{i}"}} {each}' for i, each in enumerate(value)] if isinstance(value, tuple) else [f" {value}"]
            )
            lines += [name + shown for shown in engines if ours != self.lacks.get(worker)]
        if self.start_times:
            lines.append(f"process_start_time_seconds {1000.0 + max(0.0, since)}")
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Write the run as a session does."""
        folder.mkdir(parents=True, exist_ok=True)
        slots = int(self.end_s / INTERVAL_S) + 1
        with gzip.open(folder / TELEMETRY, "wt") as file:
            for slot in range(-1, slots + 1) if self.scraped else ():
                for worker, name in enumerate(self.names):
                    # The first scrape comes before the load, and the last, whose number differs by worker, after it.
                    last = slot == slots
                    at = self.end_s + 0.1 if last else slot * INTERVAL_S if slot >= 0 else -0.1
                    low, high = self.silent.get(worker, (1e9, 0.0))
                    told = {"error": "no answer"} if low <= at <= high else {"text": self.exposition(worker, at)}
                    number = slot + 1 + (worker if last else 0)
                    line = {
                        "slot": number,
                        "endpoint": f"{name}/metrics",
                        "due": at,
                        "sent": at,
                        "received": at + 0.001 * worker,
                    }
                    file.write(json.dumps({**line, **told, **({"last": True} if last else {})}) + "\n")
        made = []
        for i, (at, count) in enumerate(zip(self.sent.tolist(), self.tokens.tolist(), strict=True)):
            told = {"after": None if i % self.turns == 0 else i - 1, "output_asked": count, "completion_tokens": count}
            made.append(records.answered([at + 0.1, at + SERVES_S], index=i, sent_s=at, prompt=4, **told))
        write_requests(made, folder / REQUESTS)
        load = {"arrival": "poisson", "axis": "request_rate", "level": 10.0, "num_requests": self.requests}
        files = checksums(folder, (REQUESTS, TELEMETRY))
        watched = {"workers": self.records, "scrape_interval_s": INTERVAL_S, "duration_s": self.end_s}
        write_record(records.run(definition={**records.DEFINITION, **load}, files=files, **watched), folder / RECORD)

    def parsed(self, folder: Path) -> dict[str, Any]:
        """The run's summary."""
        self.write(folder)
        return parse_run(folder, **{key: folder / key for key in ("requests", "telemetry", "wide", "summary")})


class Disaggregated(Fleet):
    """Half of the workers compute prompts, and one token of each; the others count the same requests, prompts and that token again."""

    def exposition(self, worker, at):
        half = self.workers // 2
        prefill, mine = worker < half, self.at % half == worker % half
        begun, ended = (0.0, PREFILLS_S) if prefill else (PREFILLS_S, SERVES_S)
        done = mine & (self.sent + ended <= at)
        n = int(done.sum())
        values = {
            "running": int((mine & (self.sent + begun <= at) & (self.sent + ended > at)).sum()),
            "waiting": 3 if prefill else 2,
            "kv_usage": 0.9 if prefill else 0.25,
            "preemptions": n if prefill else 2 * n,
            "server_prompt_tokens": 16 * n,
            "prefix_queries": 16 * n,
            "prefix_hits": (4 if prefill else 16) * n,
            "server_generation_tokens": n if prefill else int(self.tokens[done].sum()),
            "server_ttft_sum": (PREFILLS_S if prefill else 0.1) * n,
            "server_ttft_count": n,
            "server_e2e_sum": (ended - begun) * n,
            "server_e2e_count": n,
        }
        lines = [f"{name} {values.get(ours, 0)}" for ours, name in METRICS.items()]
        return "\n".join([*lines, "process_start_time_seconds 1000"]) + "\n"
