"""Medians over trials, as tables to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from benchmarks.harness import print_table

__all__ = ["report"]

Trial = dict[str, Any]
Read = Callable[[Trial], float | None]
Column = tuple[str, Read, str]  # its head, where its value stands in a trial, and the value's form
_OURS = "saturate"


def _at(*path: str) -> Read:
    def read(trial: Trial) -> float | None:
        value: Any = trial
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return read


_RATIO = [("÷ saturate", _at("us_a_chunk"), ".1f")]
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


def report(trials: list[Trial]) -> None:
    """Print a table a scenario: the medians of the trials that worked, a line a client, and below it what failed."""
    for scenario in dict.fromkeys(trial["scenario"] for trial in trials):
        group = [trial for trial in trials if trial["scenario"] == scenario]
        good = [trial for trial in group if "error" not in trial]
        clients = {name: [t for t in good if t["client"] == name] for name in dict.fromkeys(t["client"] for t in good)}
        print(f"\n## {scenario}")
        if good:
            print(f"\nThe ideal wall time is {good[0]['ideal_ms']:,.0f} ms. Medians; milliseconds where nothing else is said.")
            _print(clients, [*_RATIO, *(_OPEN if "achieved_rate" in good[0]["server"] else _BURST)])
            if stamped := {name: mine for name, mine in clients.items() if mine[0].get("stamp_delay_ms")}:
                _print(stamped, _STAMPS)
        for trial in group:
            if "error" in trial:
                print(f"\n{trial['client']} failed (repeat {trial['repeat']}): {trial['error'][-600:]}")


def _print(clients: dict[str, list[Trial]], columns: list[Column]) -> None:
    def cells(trials: list[Trial]) -> Iterator[str]:
        for name, read, form in columns:
            value = _median(trials, read)
            ours = _median(clients.get(_OURS, []), read) if name == _RATIO[0][0] else 1.0
            yield "–" if value is None or not ours else format(value / ours, form)

    print()
    heads = ["client", *(name for name, _, _ in columns), "n"]
    print_table(heads, ([name, *cells(trials), len(trials)] for name, trials in clients.items()))


def _median(trials: list[Trial], read: Read) -> float | None:
    values = [value for value in map(read, trials) if value is not None]
    return median(values) if values else None
