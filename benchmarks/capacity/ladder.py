"""Runs of a simulated server as rows of a summary, without the files of a session; and a ladder of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.steady import in_steady_state, steady_figures
from benchmarks.capacity.files import ROUNDS, in_rounds, ladder_of, reference
from benchmarks.capacity.fleet import Case
from benchmarks.capacity.server import OK, Load, simulate
from benchmarks.capacity.truth import latencies

__all__ = ["answered_row", "drawn_requests", "row_of", "run_row", "write_ladder"]

_STEADY = dict.fromkeys(("steady_from_s", "steady_growth", "steady_growth_error", "steady_needs_s", "steady_why"))
_LATENCIES = ("ttft", "tpot", "e2e")


def write_ladder(case: Case, folder: Path) -> None:
    """Write `server.json` and `rows.parquet` into `folder`. Speeds drift from round to round, or along the session, as in a study."""
    axis, levels, requests = ladder_of(case)
    rows = []
    for repeat, level, speed in in_rounds(case, [(repeat, level) for repeat in range(1, ROUNDS + 1) for level in levels]):
        seed = int.from_bytes(hashlib.sha256(f"{case.server}/{level}/{repeat}".encode()).digest()[:4], "big")
        place = {"deployment": case.name, "workload": "load", "axis": axis, "turns": 1, "repeat": repeat, "round": repeat}
        rows.append({**run_row(case, level, requests, seed, speed), **place, "session": 1, "valid": True, "classes": None})
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / "rows.parquet")
    (folder / "server.json").write_text(json.dumps({**asdict(case), "reference_rps": reference(case, max(levels))}, indent=1))


def run_row(case: Case, level: float, count: int, seed: int, speed: float) -> dict[str, Any]:
    """The summary row of a run."""
    held = case.demand.arrival == "closed"
    load = drawn_requests(case, np.random.default_rng([case.number, seed, 9]), level, count)
    trace = simulate(case.server, load, seed=seed, speed=speed, watch=True)
    ok = trace.status == OK
    frame = pl.DataFrame(
        {
            "index": range(count),
            "outcome": np.where(ok, "ok", "http_error"),
            "sent_s": trace.sent,
            "end_s": trace.end,
            "first_token_s": np.where(ok, trace.first, np.nan),
            "last_token_s": np.where(ok, trace.last, np.nan),
            **{f"{name}_s": latencies(trace, name) for name in _LATENCIES},
            "prompt_asked": load.prompts,
            "output_asked": load.outputs,
            "completion_tokens": trace.tokens.astype(int),
            "token_times_s": pl.Series([trace.made(i).tolist() for i in range(count)], dtype=pl.List(pl.Float64)),
        }
    )
    sent = frame.with_columns(cs.float().fill_nan(None)).filter(pl.col("sent_s").is_not_null())
    return row_of(sent, "closed" if held else case.demand.arrival, level, count)


def drawn_requests(case: Case, random: np.random.Generator, level: float, count: int) -> Load:
    """So many requests at a level."""
    demand = case.demand
    prompts = [demand.prompt] * count
    if demand.sigma:
        drawn = demand.prompt * np.exp(demand.sigma * random.standard_normal(3 * count + 50))
        prompts = np.round(drawn[(drawn >= 1) & (drawn <= 4 * demand.prompt)][:count]).astype(int).tolist()
    outputs = [demand.output] * count
    if demand.arrival == "closed":  # it begins as if it had gone on for long, as the client's schedule does
        held = min(int(level), count)
        left = (random.permutation(held) + random.random(held)) / held
        first = np.maximum(1, np.round(left * demand.output)).astype(int).tolist()
        return Load(prompts, [*first, *outputs[held:]], in_flight=int(level))
    gaps = np.ones(count) if math.isinf(demand.shape) else random.gamma(demand.shape, 1 / demand.shape, count)
    return Load(prompts, outputs, (np.cumsum(gaps) / level).tolist())


def row_of(frame: pl.DataFrame, arrival: str, level: float, count: int) -> dict[str, Any]:
    """The summary row of a run, from a table of its requests, none of which waits for another. Args: count: of those planned."""
    frame = frame.with_columns(after=pl.lit(None, pl.Int64))
    definition = {"arrival": arrival, "axis": "concurrency" if arrival == "closed" else "request_rate", "level": level}
    window, figures = steady_figures(definition, frame, pl.DataFrame(schema=TELEMETRY_SCHEMA))
    judged = frame.filter(in_steady_state(window)) if window else frame.clear()
    return {
        **_STEADY,
        **figures,
        "level": level,
        "arrival": arrival,
        "requests": count,
        "duration_s": float(np.nanmax(frame["end_s"].to_numpy())),
        "judged": judged.select(ok=pl.col("outcome") == "ok", **{name: pl.col(f"{name}_s") for name in _LATENCIES}).to_dicts(),
    }


def answered_row(values: Sequence[float], level: float, arrival: str) -> dict[str, Any]:
    """The summary row of a run that is steady throughout. Args: values: TTFT of each request, which is all of its latency (s)."""
    judged = [{"ok": True, "ttft": value, "tpot": None, "e2e": value} for value in values]
    of = {"level": level, "arrival": arrival, "requests": len(values), "duration_s": len(values) / level}
    return {**_STEADY, "steady_from_s": 0.0, **of, "judged": judged}
