"""A fleet in words: from `bench.analysis.sized`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.errors import count_text, shown_share
from bench.shipped import BENCH
from bench.words.answer import AGAIN
from bench.words.capacity import c_max, it_misses, judged_alone, missed_text, shown_to_be
from bench.words.loads import interval_text, load_text
from bench.words.templates import filled

Fleet = Mapping[str, Any]
_NAMED = 5  # most curves that a title names
_TAKES = "A peak of {peak_rps:,g} requests/s takes {instances}{interval}, {gpus} with the safety factor {safety:g}."
_TAKES_UNKNOWN = "A peak of {peak_rps:,g} requests/s takes {instances}{interval}; how many GPUs is not known."
_COSTS = {
    "hour": "USD an hour",
    "month": "USD a month",
    "worth_of_tokens_an_hour_at_peak": "USD an hour that the API would take at the peak",
    "million_output_tokens_at_peak": "USD a million output tokens, at the peak all day",
    "break_even_million_tokens_a_month": "million output tokens a month to break even with the API",
}
UNKNOWN_GPUS = "How many GPUs an instance has is not recorded, so nothing can be said of their number and price; give --gpus."


def takes(fleet: Fleet | None, gpu: str) -> str:
    """A fleet in a sentence; empty without one. Args: gpu: what one of its GPUs is called."""
    if fleet is None:
        return ""
    gpus = None if fleet["gpus"] is None else count_text(fleet["gpus"], gpu)
    instances = count_text(fleet["instances"], "instance")
    return filled(
        _TAKES if gpus else _TAKES_UNKNOWN, {**fleet, "gpus": gpus, "instances": instances, "interval": interval(fleet)}
    )


def interval(fleet: Fleet | None) -> str:
    """The 95 % interval of a fleet's instances in brackets, such as ` (12 to 17 at 95 % confidence)`; empty without a fleet."""
    return f" ({interval_text(fleet['instances_least'], fleet['instances_most'], '{:,}')})" if fleet else ""


def title(fleets: Sequence[tuple[str, Fleet | None]], gpu: str) -> str | None:
    """What a peak takes of each curve; None where that is not known of all, or of too many. Args: fleets: with the curves' names."""
    known = [(name, fleet) for name, fleet in fleets if fleet]
    if not known or len(known) < len(fleets) or len(known) > _NAMED:
        return None
    (name, first), *others = known
    if not others:
        return takes(first, gpu).removesuffix(".")
    counts = [f"{count_text(first['instances'], 'instance')} of {name}"]
    counts += [f"{fleet['instances']:,} of {name}" for name, fleet in others]
    return f"A peak of {first['peak_rps']:,g} requests/s takes {', '.join(counts[:-1])} or {counts[-1]}"


def ends(least: int | None, most: int | None) -> str:
    """An interval for a cell of a table, such as `12 to not established`."""
    return " to ".join("not established" if end is None else f"{end:,}" for end in (least, most))


def sized_rows(fleet: Fleet, point: Mapping[str, Any], unit: str) -> list[list[str]]:
    """Names and values of a fleet.

    Args:
        point: the row of `operating_points` that was sized; empty for one that was given. unit: what is paid for, in the plural.
    """
    limit, gpus = fleet["limits"], fleet["gpus"]
    rows = [
        ["instances", f"{fleet['instances']:,}"],
        [f"{unit}, with the safety factor {fleet['safety']:g}", "unknown" if gpus is None else f"{gpus:,}"],
        ["usable requests/s of an instance", f"{fleet['usable_rps']:.3g}"],
    ]
    if point and point["goodput_rps"] is not None:
        rows.append(["goodput of an instance there, requests/s", f"{point['goodput_rps']:.3g}"])
    if point:
        rows.append(["instances at 95 % confidence", ends(fleet["instances_least"], fleet["instances_most"])])
    rows.append(["load of the fleet at the peak (60–80 % is wanted)", shown_share(fleet["utilisation_at_peak"])])
    found = {
        "longest queue of an instance": (limit["queue"],),
        "shed load from, and all at": (limit["shed_from"], limit["shed_at"]),
        "requests in flight to admit": (limit["admission"],),
        "longest prompt to admit (tokens)": (limit["input_tokens"],),
        "10 to 15 % of the KV tokens": limit["kv_free_tokens"] or (None,),
    }
    rows += [[name, ", ".join(f"{each:,}" for each in values)] for name, values in found.items() if None not in values]
    return rows + [[_COSTS[key], f"{value:,.2f}"] for key, value in (fleet["cost"] or {}).items() if key in _COSTS]


def meets(point: Mapping[str, Any]) -> str:
    """Up to which load a curve meets the SLOs. Args: point: its row of `operating_points`."""
    more = (
        f"; at {load_text(point['missed_at'], point['unit'])} it {it_misses(point)}" if point["missed_at"] is not None else ""
    )
    axis = point["axis"].replace("_", " ")
    return f"{point['deployment']} with {point['workload']} meets the SLOs up to {axis} {c_max(point)}{more}."


def no_point(point: Mapping[str, Any]) -> str:
    """Why a curve has no operating point that a fleet could be sized by. Args: point: its row of `operating_points`."""
    at = None if point["missed_at"] is None else load_text(point["missed_at"], point["unit"])
    match point["kind"]:
        case "below":
            which = f"load{judged_alone(point)}" if judged_alone(point) else "measured load"
            meets = "is shown to meet" if shown_to_be(point) else "meets"
            return f"no {which} {meets} the SLOs: at {at} it {it_misses(point)}"
        case "unsettled":
            if point["unsettled"] == "absent":
                return f"at {at} {missed_text(point)}"
            return f"no steady state: at {at} {missed_text(point)}"
    return c_max(point)


def next_step(point: Mapping[str, Any]) -> str:
    """What would give it an operating point; empty where `no_point` says so. Args: point: its row of `operating_points`."""
    return {
        "unknown": f"`{BENCH} runs` says why. {AGAIN}",
        "below": "Measure lower loads, or allow more with --slo.",
        "unjudged": "Name another latency with --slo: every answer has an E2E.",
    }.get(point["kind"], "")


def little(ratio: float) -> str:
    """That Little's law contradicts the numbers. Args: ratio: of the requests/s that it gives, to those that were measured."""
    return (
        f"Little's law gives {ratio:.2g} times the requests/s: load, latency and rate do not belong together. Were they measured under "
        "one load?"
    )
