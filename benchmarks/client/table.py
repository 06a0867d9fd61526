"""Medians over trials, as tables to read."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

__all__ = ["tables"]

Trial = dict[str, Any]
_OURS = "saturate"


def _at(*path: str) -> Callable[[Trial], float | None]:
    def read(trial: Trial) -> float | None:
        value: Any = trial
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return read


_COST = [
    ("µs a chunk", _at("us_a_chunk"), ".1f"),
    ("of it connecting", _at("us_a_chunk_connecting"), ".1f"),
    ("with what follows", _at("us_a_chunk_in_all"), ".1f"),
    ("start-up CPU s", _at("cpu", "start_s"), ".1f"),
]
_TRUTH = [
    ("TTFT P50 reported", _at("reported", "ttft_ms", "p50"), ",.1f"),
    ("true", _at("server", "ttft_ms", "p50"), ",.1f"),
    ("P99 reported", _at("reported", "ttft_ms", "p99"), ",.1f"),
    ("true", _at("server", "ttft_ms", "p99"), ",.1f"),
    ("E2E P50 reported", _at("reported", "e2e_ms", "p50"), ",.0f"),
    ("true", _at("server", "e2e_ms", "p50"), ",.0f"),
]
_END = [
    ("in flight", _at("server", "in_flight"), ",.0f"),
    ("completed", _at("reported", "completed"), ",.0f"),
    ("server late P50", _at("server", "late_ms", "p50"), ".2f"),
    ("P99", _at("server", "late_ms", "p99"), ".2f"),
]
_BURST = [
    *_COST,
    ("wall reported ms", _at("reported", "wall_ms"), ",.0f"),
    ("at the server", _at("server", "wall_ms"), ",.0f"),
    ("leaves in ms", _at("server", "leaves_in_ms"), ",.1f"),
    *_TRUTH,
    *_END,
]
_OPEN = [
    ("µs a request", _at("us_a_request"), ",.0f"),
    *_COST,
    ("rate achieved", _at("server", "achieved_rate"), ",.1f"),
    ("delay P50 ms", _at("server", "delay_ms", "p50"), ",.2f"),
    ("P99", _at("server", "delay_ms", "p99"), ",.2f"),
    ("max", _at("server", "delay_ms", "max"), ",.1f"),
    *_TRUTH,
    *_END,
]
_STAMPS = [
    ("stamp − write P50 ms", _at("stamp_delay_ms", "p50"), ".3f"),
    ("P99", _at("stamp_delay_ms", "p99"), ".3f"),
    ("max", _at("stamp_delay_ms", "max"), ".3f"),
    ("sent − scheduled P50 ms", _at("sent_late_ms", "p50"), ".3f"),
    ("P99", _at("sent_late_ms", "p99"), ".3f"),
    ("max", _at("sent_late_ms", "max"), ".3f"),
]


def tables(trials: list[Trial]) -> str:
    """A table a scenario: the medians of the trials that worked, a line a client, and below it what failed."""
    parts = []
    for scenario in dict.fromkeys(trial["scenario"] for trial in trials):
        group = [trial for trial in trials if trial["scenario"] == scenario]
        good = [trial for trial in group if "error" not in trial]
        clients = {name: [t for t in good if t["client"] == name] for name in dict.fromkeys(t["client"] for t in good)}
        parts.append(f"## {scenario}")
        if good:
            ideal = f"The ideal wall time is {good[0]['ideal_ms']:,.0f} ms. Medians; milliseconds where nothing else is said."
            columns = _OPEN if "achieved_rate" in good[0]["server"] else _BURST
            parts += [ideal, _table(clients, columns, ratio=_OURS in clients)]
            stamped = {name: mine for name, mine in clients.items() if mine[0].get("stamp_delay_ms")}
            if stamped:
                parts.append(_table(stamped, _STAMPS, ratio=False))
        for trial in group:
            if "error" in trial:
                parts.append(f"{trial['client']} failed (repeat {trial['repeat']}): {trial['error'][-600:]}")
    return "\n\n".join(parts)


def _table(
    clients: dict[str, list[Trial]], columns: list[tuple[str, Callable[[Trial], float | None], str]], *, ratio: bool
) -> str:
    rows = [["client", *(["÷ saturate"] if ratio else []), *(name for name, _, _ in columns), "n"]]
    cost = _at("us_a_chunk")
    ours = _median(clients[_OURS], cost) if ratio else None
    for name, trials in clients.items():
        row = [name]
        if ratio:
            mine = _median(trials, cost)
            row.append(f"{mine / ours:.1f}" if mine is not None and ours else "–")
        for _, read, form in columns:
            value = _median(trials, read)
            row.append("–" if value is None else format(value, form))
        rows.append([*row, str(len(trials))])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(lines)


def _median(trials: list[Trial], read: Callable[[Trial], float | None]) -> float | None:
    values = [value for value in map(read, trials) if value is not None]
    return median(values) if values else None
