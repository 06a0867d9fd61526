"""What `bench workload` does once it knows what the server accepts; those first requests would be counted with the load.

    python -m benchmarks.client.saturate URL FOLDER KIND REQUESTS RATE OUTPUT_TOKENS

KIND is of what is sent: `ids`, `text` or `chat`. RATE is 0 for a burst.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.load.client import Load
from bench.load.payload import payloads
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.runs.run import RunHeader
from bench.study.read import load_workload
from bench.workloads.schedule import schedule
from benchmarks.client.scenario import PROMPT_TOKENS
from benchmarks.client.server import MODEL, prompt_key

__all__ = ["KINDS", "prompt_keys"]

KINDS = ("ids", "text", "chat")  # token ids, or the texts of a file, as prompts or as chats of one message
_SEED, _VOCABULARY = "client-benchmark", 1000
_PROMPTS = "prompts.jsonl"


def load_of(folder: Path, kind: str, requests: int, rate: float, output_tokens: int) -> Load:
    """The load. Args: folder: has the file of prompts, where they are texts."""
    content = {"arrival": "burst"} if not rate else {"arrival": "constant", "num_requests": requests}
    prompts = {"prompt_tokens": PROMPT_TOKENS} if kind == "ids" else {"prompts": str(folder / _PROMPTS)}
    endpoint = "chat" if kind == "chat" else "completions"
    workload = load_workload({**content, **prompts, "endpoint": endpoint, "output_tokens": output_tokens}, source="benchmark")
    return Load(workload, rate or requests, _SEED, _SEED, _VOCABULARY)


def prompt_keys(folder: Path, kind: str, requests: int, rate: float, output_tokens: int) -> list[str]:
    """`prompt_key` of each request that was sent, in their order."""
    load = load_of(folder, kind, requests, rate, output_tokens)
    made = payloads(Target("http://localhost", MODEL), load.workload, seed=_SEED, schedule_seed=_SEED, vocabulary=_VOCABULARY)
    bodies = (
        json.loads(made(planned).written.split(b"\r\n\r\n", 1)[1]) for planned in schedule(load.workload, load.level, _SEED)
    )
    return [prompt_key(body["messages" if kind == "chat" else "prompt"]) for body in bodies]


def main(url: str, name: str, kind: str, *numbers: str) -> None:
    """Send the load, and keep the run in the folder `name`."""
    folder, (requests, rate, output) = Path(name), map(float, numbers)
    (folder / "run").mkdir(parents=True)
    if kind != "ids":
        texts = (" ".join(f"word{i * PROMPT_TOKENS + j}" for j in range(PROMPT_TOKENS)) for i in range(int(requests)))
        form = (
            (lambda text: {"messages": [{"role": "user", "content": text}]})
            if kind == "chat"
            else (lambda text: {"prompt": text})
        )
        (folder / _PROMPTS).write_text("".join(json.dumps(form(text)) + "\n" for text in texts))
    load = load_of(folder, kind, int(requests), rate, int(output))
    definition = {"workload": "benchmark", "axis": load.workload.axis, "level": load.level, "repeat": 1, "seed": _SEED}
    header = RunHeader(digest="benchmark", round=1, definition=definition)
    record_run(Target(url, MODEL, reuses=False), load, folder / "run", header=header, scrape_interval_s=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
