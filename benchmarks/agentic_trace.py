"""Write a trace of agents' sessions: prompts that grow by each answer and each tool's result, and subagents that run side by side.

    python -m benchmarks.agentic_trace agents.jsonl                     # 200 sessions, about 1,200 requests in two minutes
    python -m benchmarks.agentic_trace agents.jsonl --sessions 50 --rate 3

Small enough for the models that run on two cores: prompts have at most 800 tokens. Shares are those of tool-using agents (most of a
prompt was sent before); lengths are not.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import count
from pathlib import Path
from typing import Any

BLOCK = 32  # tokens
_INSTRUCTIONS, _SUBAGENT = [0, 1, 2], [3, 4]  # blocks with which all sessions, and all subagents, begin


def sessions(number: int, rate: float, seed: int) -> list[dict[str, Any]]:
    """The requests, as a trace of one's own has them. Args: rate: sessions a second."""
    draw, names, blocks = random.Random(seed), count(), count(5)  # noqa: S311 - traffic, no secret
    rows: list[dict[str, Any]] = []
    at = 0.0

    def request(ids: list[int], parent: str | None, after_s: float) -> str:
        name = f"r{next(names)}"
        when = {"arrival_s": round(at, 3)} if parent is None else {"parent": parent, "after_s": round(after_s, 3)}
        length = len(ids) * BLOCK - draw.randrange(BLOCK)
        rows.append(
            {
                "id": name,
                **when,
                "prompt_tokens": length,
                "output_tokens": draw.randint(6, 24),
                "hash_ids": list(ids),
                "block_tokens": BLOCK,
            }
        )
        return name

    def tool() -> float:
        return min(5.0, draw.lognormvariate(-0.7, 0.8))

    for _ in range(number):
        ids = [*_INSTRUCTIONS, *(next(blocks) for _ in range(draw.randint(1, 3)))]
        before, wait = None, 0.0
        for _ in range(draw.randint(2, 6)):
            before = request(ids, before, wait)
            wait = tool()
            for _ in range(draw.choice((0, 0, 0, 0, 0, 0, 2))):
                own = [*_SUBAGENT, *(next(blocks) for _ in range(draw.randint(1, 3)))]
                child = request(own, before, wait)
                own += [next(blocks)]
                request(own, child, tool())
            # The last block was cut short: what follows fills it otherwise.
            ids = [*ids[:-1], *(next(blocks) for _ in range(draw.randint(2, 4)))]
        at += draw.expovariate(rate)
    return rows


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1.5, help="sessions a second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rows = sessions(given.sessions, given.rate, given.seed)
    given.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{given.output}: {len(rows)} requests, {sum(row['prompt_tokens'] for row in rows):,} prompt tokens")


if __name__ == "__main__":
    main()
