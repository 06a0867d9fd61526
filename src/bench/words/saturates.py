"""Where the KV cache fills and where throughput peaks, in words for the first screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.words.answer import Answer, shortened
from bench.words.regions import turning_point

__all__ = ["answer"]

Row = Mapping[str, Any]


def answer(rows: Sequence[Row], *, several_workloads: bool, decided: bool) -> Answer:
    """Where each curve saturates. Args: rows: of `bench.analysis.saturation`. decided: whether SLOs are given."""
    do = []
    if not decided:  # within SLOs less may be carried than fits
        do += [text for row in rows if (text := _do(row, several_workloads))]
        do.append("Set `decision.slo` to learn what is carried within limits on latency; nothing is measured again.")
    return Answer(
        name="concurrency",
        question="At what concurrency does the KV cache fill, and where does throughput peak?",
        lines=shortened([f"{_name(row, several_workloads)}: {_cache(row)}; {_throughput(row)}." for row in rows]),
        sure=tuple(_sure(rows)),
        do=shortened(do, 5),
    )


def _name(row: Row, several: bool) -> str:
    return f"{row['deployment']} · {row['workload']}" if several else str(row["deployment"])


def _cache(row: Row) -> str:
    predicted = f"{row['predicted']:.3g} predicted" if row["predicted"] is not None else None
    if row["measured"] is None:
        seen = "no load filled its KV cache" if row["cache_known"] else "whether its KV cache was ever full is not known"
        return seen + (f" ({predicted})" if predicted else "")
    below = f"not at {row['below']:g}" if row["below"] is not None else None
    notes = ", ".join(filter(None, (below, predicted)))
    return f"the KV cache is full from {row['measured']:g} in flight on" + (f" ({notes})" if notes else "")


def _throughput(row: Row) -> str:
    text = turning_point(row, "saturation")
    if row["saturation_at"] is not None:
        what = "peaks" if row["saturation_kind"] == "peak" else "stops growing"
        return f"throughput {what} at {text}"
    return (
        f"where throughput stops growing: {text}"
        if row["saturation_kind"] in ("above", "below")
        else f"where throughput peaks is not known: {text}"
    )


def _sure(rows: Sequence[Row]) -> list[str]:
    sure = ["In brackets: the levels between which a point lies; nothing is interpolated for the KV cache."]
    apart = [abs(row["levels_apart"]) for row in rows if row["levels_apart"] is not None]
    if any(row["predicted"] is not None for row in rows):
        met = f"; of {len(apart)} predictions, {sum(each == 0 for each in apart)} hit the measured level" if apart else ""
        sure.append(f"Predicted is KV tokens ÷ tokens a request{met}.")
    return sure


def _do(row: Row, several: bool) -> str | None:
    """How many requests to send at once, where it is known between which levels the cache fills."""
    low, high, predicted = row["below"], row["measured"], row["predicted"]
    if low is None or high is None:
        return None
    fits = math.floor(predicted) if predicted is not None and low < predicted <= high else low
    return f"{_name(row, several)}: send no more than {fits:g} at once; more wait for KV memory."
