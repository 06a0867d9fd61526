"""Where the KV cache fills and where throughput peaks, in words for the first screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis.regions import FEWEST_LEVELS
from bench.words.answer import Answer, by_advice, listed, shortened
from bench.words.regions import turning_point

__all__ = ["answer"]

Row = Mapping[str, Any]


def answer(rows: Sequence[Row], *, several_workloads: bool, decided: bool, geometry: str) -> Answer:
    """Where each curve saturates.

    Args:
        rows: of `bench.analysis.saturation`. decided: whether SLOs are given. geometry: that KV bytes and not parameters decide, where
            the runs show it.
    """
    do = []
    if not decided:  # within SLOs fewer may be sustained than fit
        do += by_advice((_name(row, several_workloads), _do(row)) for row in rows)
        do.append("Set `decision.slo` to learn what is sustained within limits on latency; nothing is measured again.")
    return Answer(
        name="concurrency",
        question="At what concurrency does the KV cache fill, and where does throughput peak?",
        lines=(
            *filter(None, [geometry]),
            *shortened([f"{_name(row, several_workloads)}: {_cache(row)}." for row in rows]),
            *shortened([f"{_name(row, several_workloads)}: {text}." for row in rows if (text := _throughput(row))]),
            *_unknown_peaks(rows, several_workloads),
        ),
        sure=tuple(_sure(rows)),
        do=shortened(do, 5),
    )


def _name(row: Row, several: bool) -> str:
    return f"{row['deployment']} · {row['workload']}" if several else str(row["deployment"])


def _cache(row: Row) -> str:
    predicted = f"{row['predicted']:.3g} predicted" if row["predicted"] is not None else None
    if row["measured"] is None:
        seen = "no load filled the KV cache" if row["cache_known"] else "whether the KV cache was ever full is not known"
        return seen + (f" ({predicted})" if predicted else "")
    below = f", and not at {row['below']:g}" if row["below"] is not None else ""
    return f"the KV cache is full at {row['measured']:g} in flight{below}" + (f" ({predicted})" if predicted else "")


def _throughput(row: Row) -> str | None:
    """Where throughput peaks or stops growing; None where that is not known."""
    text = turning_point(row, "saturation")
    if row["saturation_at"] is not None:
        what = "peaks" if row["saturation_kind"] == "peak" else "stops growing"
        return f"throughput {what} at {text}"
    return f"throughput stops growing {text}" if row["saturation_kind"] in ("above", "below") else None


def _unknown_peaks(rows: Sequence[Row], several: bool) -> list[str]:
    """The curves whose peak is not known, by what hides it; one line for all."""
    unknown = [(_name(row, several), row) for row in rows if _throughput(row) is None]
    few = [name for name, row in unknown if row["saturation_why"] == "few"]
    noisy = [f"{name} ({100 * row['noise']:.0f} %)" for name, row in unknown if row["saturation_why"] == "noise"]
    others = [(name, row) for name, row in unknown if row["saturation_why"] not in ("few", "noise")]
    reasons = [
        *([f"fewer than {FEWEST_LEVELS} levels with a valid run of {listed(few)}"] if few else []),
        *([f"runs vary too much of {listed(noisy)}"] if noisy else []),
        *(f"{name}: {turning_point(row, 'saturation')}" for name, row in others),
    ]
    return [f"Where throughput peaks is not known: {'; '.join(reasons)}."] if reasons else []


def _sure(rows: Sequence[Row]) -> list[str]:
    sure = ["Only measured levels count: between the two that are named nothing was measured."]
    apart = [abs(row["levels_apart"]) for row in rows if row["levels_apart"] is not None]
    if any(row["predicted"] is not None for row in rows):
        sure.append("Predicted is KV tokens ÷ tokens per request, each at its full length.")
    if apart:
        hit = sum(each == 0 for each in apart)
        sure.append(
            f"Of {len(apart)} curves that filled the cache, {hit} did so at the first measured level that the prediction allows."
        )
    return sure


def _do(row: Row) -> str:
    """How many requests to send at once, where it is known between which levels the cache fills; else empty."""
    low, high, predicted = row["below"], row["measured"], row["predicted"]
    if low is None or high is None:
        return ""
    fits = math.floor(predicted) if predicted is not None and low < predicted <= high else low
    return f"send no more than {fits:g} at once; more wait for KV memory."
