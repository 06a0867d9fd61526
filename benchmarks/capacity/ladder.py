"""A simulated server's ladder as rows of a summary, without the files of a session: what its limits, not its causes, are judged by."""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path

import polars as pl

from benchmarks.capacity.files import ROUNDS, ladder_of, reference
from benchmarks.capacity.fleet import Case
from benchmarks.search import case_run

__all__ = ["write_ladder"]


def write_ladder(case: Case, folder: Path) -> None:
    """Write `server.json` and `rows.parquet` into `folder`. Speeds drift from round to round, or along the session, as in a study."""
    axis, levels, requests = ladder_of(case)
    draw = random.Random(case.name)  # noqa: S311 - no secret
    order = [(repeat, level) for repeat in range(1, ROUNDS + 1) for level in levels]
    order.sort(key=lambda run: (run[0], draw.random()))
    rounds = [math.exp(draw.gauss(0, 0.03)) if case.drift == "rounds" else 1.0 for _ in range(ROUNDS)]
    rows = []
    for position, (repeat, level) in enumerate(order):
        speed = rounds[repeat - 1] * (1 + case.trend * (0.5 - (position + 0.5) / len(order)))
        seed = int.from_bytes(hashlib.sha256(f"{case.server}/{level}/{repeat}".encode()).digest()[:4], "big")
        place = {"deployment": case.name, "workload": "load", "axis": axis, "turns": 1, "repeat": repeat, "round": repeat}
        rows.append({**case_run(case, level, requests, seed, speed), **place, "session": 1, "valid": True, "classes": None})
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / "rows.parquet")
    (folder / "server.json").write_text(json.dumps({**case.plain(), "reference_rps": reference(case, max(levels))}, indent=1))
