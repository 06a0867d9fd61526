"""What `bench workload` does once it knows what the server accepts; those first requests would be counted with the load.

    python -m benchmarks.client.saturate URL FOLDER REQUESTS RATE PROMPT_TOKENS OUTPUT_TOKENS SEED VOCABULARY

RATE is 0 for a burst.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.load.client import Load
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.records.run import RunHeader
from bench.study import load_workload
from benchmarks.client.server import MODEL


def main(url: str, folder: str, *numbers: str) -> None:
    """Send the load, and keep the run in `folder`."""
    requests, rate, prompt, output = (float(number) for number in numbers[:4])
    seed, vocabulary = numbers[4:]
    content = {"arrival": "burst"} if not rate else {"arrival": "constant", "num_requests": int(requests)}
    workload = load_workload({**content, "prompt_tokens": int(prompt), "output_tokens": int(output)}, source="benchmark")
    load = Load(workload, rate or requests, seed, seed, int(vocabulary))
    definition = {"workload": "benchmark", "axis": workload.axis, "level": load.level, "repeat": 1, "seed": seed}
    Path(folder).mkdir()
    header = RunHeader(digest="benchmark", round=1, definition=definition)
    record_run(Target(url, MODEL, reuses=False), load, Path(folder), header=header, scrape_interval_s=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
