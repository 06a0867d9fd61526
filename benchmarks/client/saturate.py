"""What `bench workload` does once it knows what the server accepts; those first requests would be counted with the load.

    python -m benchmarks.client.saturate URL FOLDER REQUESTS RATE OUTPUT_TOKENS

RATE is 0 for a burst.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.load.client import Load
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.runs.run import RunHeader
from bench.study.read import load_workload
from bench.workloads.schedule import schedule
from benchmarks.client.scenario import PROMPT_TOKENS
from benchmarks.client.server import MODEL, prompt_key

__all__ = ["prompt_keys"]

_SEED, _VOCABULARY = "client-benchmark", 1000


def load_of(requests: int, rate: float, output_tokens: int) -> Load:
    """The load, whose prompts are token ids."""
    content = {"arrival": "burst"} if not rate else {"arrival": "constant", "num_requests": requests}
    workload = load_workload({**content, "prompt_tokens": PROMPT_TOKENS, "output_tokens": output_tokens}, source="benchmark")
    return Load(workload, rate or requests, _SEED, _SEED, _VOCABULARY)


def prompt_keys(requests: int, rate: float, output_tokens: int) -> list[str]:
    """`prompt_key` of each request that was sent, in their order."""
    load = load_of(requests, rate, output_tokens)
    made = exchanges(Target("http://localhost", MODEL), load.workload, seed=_SEED, schedule_seed=_SEED, vocabulary=_VOCABULARY)
    planned = schedule(load.workload, load.level, _SEED)
    return [prompt_key(json.loads(made(each).payload.split(b"\r\n\r\n", 1)[1])["prompt"]) for each in planned]


def main(url: str, folder: str, *numbers: str) -> None:
    """Send the load, and keep the run in the folder."""
    requests, rate, output = map(float, numbers)
    Path(folder).mkdir()
    load = load_of(int(requests), rate, int(output))
    definition = {"workload": "benchmark", "axis": load.workload.axis, "level": load.level, "repeat": 1, "seed": _SEED}
    header = RunHeader(digest="benchmark", round=1, definition=definition)
    record_run(Target(url, MODEL, reuses=False), load, Path(folder), header=header, scrape_interval_s=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
