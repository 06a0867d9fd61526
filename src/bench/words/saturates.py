"""Where the KV cache fills and where throughput peaks, in words for the first screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.axes import AXES, CONCURRENCY
from bench.errors import listed
from bench.words.answer import Answer, by_advice, shortened
from bench.words.capacity import UNFILLED
from bench.words.regions import turning_point
from bench.words.templates import filled

Row = Mapping[str, Any]
_NAMED = 5  # most loads that a title names
_PREDICTED = "[ ({predicted} predicted)]"
_UNFILLED = "[ ({predicted} in flight predicted)]"
_FULL = "the KV cache is full at {loads}[, and not at {below:g}]" + _PREDICTED


def answer(rows: Sequence[Row], *, several_workloads: bool, decided: bool) -> Answer:
    """Where each curve saturates.

    Args:
        rows: of `bench.analysis.saturation`. decided: whether SLOs are given.
    """
    do = []
    if not decided:  # within SLOs fewer may be sustained than fit
        do += by_advice((_name(row, several_workloads), _do(row)) for row in rows)
        do.append("Set `decision.slo` to learn what is sustained within limits on latency; nothing is measured again.")
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
    if row["measured"] is None:
        return filled(UNFILLED[row["cache_known"]] + _UNFILLED, {"predicted": _three(row["predicted"])})
    return filled(_FULL, {**row, "loads": f"{row['measured']:g} in flight", "predicted": _three(row["predicted"])})


def _three(number: float | None) -> str | None:
    return None if number is None else f"{number:.3g}"


def title(rows: Sequence[Row]) -> str | None:
    """At which loads KV caches are full, as a title; None where that is not known, or of too many curves.

    Args:
        rows: of `bench.analysis.saturation`.
    """
    counted = [row for row in rows if row["axis"] == CONCURRENCY]
    full = [row for row in counted if row["measured"] is not None]
    if not counted or not all(row["cache_known"] for row in counted) or len(full) > _NAMED:
        return None
    several = len({row["workload"] for row in counted}) > 1
    named = [{**row, "name": _name(row, several) if len(counted) > 1 else None} for row in full]
    loads = [
        filled("{measured:g} in flight[ on {name}]" + _PREDICTED, {**row, "predicted": _three(row["predicted"])})
        for row in named
    ]
    return f"The KV cache is full at {listed(loads)}" if loads else "No load filled the KV cache"


def _throughput(row: Row) -> str:
    text = turning_point(row, "saturation", AXES[row["axis"]].short)
    if row["saturation_at"] is not None:
        what = "peaks" if row["saturation_kind"] == "peak" else "stops growing"
        return f"throughput {what} at {text}"
    known = row["saturation_kind"] in ("above", "below")
    return f"throughput stops growing {text}" if known else f"where throughput peaks is not known: {text}"


def prediction_title(apart: Iterable[int | None]) -> str | None:
    """On how many curves the KV cache is full at the level that geometry predicts; None where no curve has both.

    Args:
        apart: measured levels between the two, of each curve (`levels_apart` of `bench.analysis.saturation`).
    """
    known = [each for each in apart if each is not None]
    if not known:
        return None
    met = sum(each == 0 for each in known)
    if met == 0:
        return "The KV cache is full at other levels than geometry predicts"
    share = f"{met} of {len(known)} curves" if met < len(known) or met > 1 else "the one curve that shows it"
    return f"The KV cache is full at the level that geometry predicts on {share}"


def _sure(rows: Sequence[Row]) -> list[str]:
    sure = ["Only measured levels count: nothing was measured between the two levels of a line."]
    if any(row["predicted"] is not None for row in rows):
        sure.append("Predicted is KV tokens ÷ tokens per request, each at its full length.")
    if title := prediction_title([row["levels_apart"] for row in rows]):
        sure.append(f"{title}.")
    return sure


def _do(row: Row) -> str:
    """How many requests to send at once, where it is known between which levels the cache fills; else empty."""
    low, high, predicted = row["below"], row["measured"], row["predicted"]
    if low is None or high is None:
        return ""
    fits = math.floor(predicted) if predicted is not None and low < predicted <= high else low
    return f"send no more than {fits:g} at once; more wait for KV memory."
