"""In words: what of a graded set a deployment solves, as cells of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis import Graded
from bench.errors import count_text, first_names, signed_percent

HEADS = ("tokens/s", "pass@1", "interval", "tasks", "failed", "difference", "interval")
BESIDE = ("identical answers", "interval", "KV tokens", "C_max")  # further columns of a report
_NAMED = 5  # tasks that are named of those that are left out; convention
MEANING = (
    "pass@1: share of the tasks that are solved, of several answers to a task their mean. Difference: from the baseline at "
    "the same load, in percentage points, on the tasks that both answered. Intervals: 95 %. One that holds 0 shows no difference."
)


def left_out_text(left_out: Sequence[str], count: int) -> str:
    """Which tasks could not be graded; nothing where there are none. Args: count: of all tasks."""
    if not left_out:
        return ""
    names = f"{count_text(len(left_out), 'task', of=count)} left out ({first_names(left_out, _NAMED)})"
    return f"{names}: tests there call the function with what is no data, such as another function, which the sandbox cannot hand on."


def accuracy_cells(found: Graded) -> list[tuple[str, float | None]]:
    """The cells of a row under `HEADS`: what stands in each, and the number by which it sorts."""
    share, by = found.accuracy, found.difference
    speed = found.throughput_tokens_per_s
    return [
        ("–" if speed is None else f"{speed:.4g}", speed),
        (f"{100 * share.share:.1f} %", share.share),
        (f"{100 * share.low:.1f} to {100 * share.high:.1f} %", share.low),
        (str(share.tasks), share.tasks),
        (str(found.failed), found.failed),
        ("–" if by is None else f"{signed_percent(by.by)} points", by.by if by else None),
        ("–" if by is None else f"{signed_percent(by.low)} to {signed_percent(by.high)}", by.low if by else None),
    ]


def beside_cells(same: Mapping[str, Any], kv_tokens: int | None, c_max: float | None) -> list[tuple[str, float | None]]:
    """The cells under `BESIDE`. Args: same: row of `identical`; empty without one. kv_tokens: of the KV cache."""
    share, low, high = (same.get(key) for key in ("share", "low", "high"))
    return [
        ("–" if share is None else f"{100 * share:.0f} %", share),
        ("–" if low is None or high is None else f"{100 * low:.0f} to {100 * high:.0f} %", low),
        ("–" if kv_tokens is None else f"{kv_tokens:,}", kv_tokens),
        ("–" if c_max is None else f"{c_max:g}", c_max),
    ]


def ungraded_text(why: str) -> str:
    """That nothing could be graded. Args: why: a sentence."""
    return f"Answers are not graded: {why} The study's command tries it again whenever it runs."
