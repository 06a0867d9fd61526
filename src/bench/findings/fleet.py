"""How many instances and GPUs a peak takes of each curve: said, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.errors import count_text, shown_share
from bench.findings.capacity.words import it_misses, limit, missed_load, sustains
from bench.findings.economics import price_note
from bench.report.blocks import AGAIN, Cell, Column, Section, Table, Text
from bench.runs.sentences import interval_text, sure_text
from bench.shipped import BENCH
from bench.statistics.percentiles import tail_text

if TYPE_CHECKING:
    from bench.findings.capacity.curves import Curve
    from bench.findings.view import View

Sized = Mapping[str, Any]  # of `sized`
_COSTS = {
    "hour": "USD an hour",
    "month": "USD a month",
    "million_output_tokens_at_peak": "USD a million output tokens, at the peak all day",
    "break_even_million_tokens_a_month": "million output tokens a month to break even with the API",
}
UNKNOWN_GPUS = "How many GPUs an instance has is not recorded, so nothing can be said of their number and price; give --gpus."


def interval(fleet: Sized | None) -> str:
    """The 95 % interval of a fleet's instances in brackets, such as ` (12 to 17 at 95 % confidence)`; empty without a fleet."""
    return f" ({interval_text(fleet['instances_least'], fleet['instances_most'], '{:,}')})" if fleet else ""


def plan(fleet: Sized | None, gpu: str, name: str) -> str:
    """How many to plan for a peak, by the upper end of the instances where that is established; empty without a fleet.

    Args:
        gpu: what one of its GPUs is called. name: of the curve.
    """
    if fleet is None:
        return ""
    sure, gpus, cost = fleet["instances_most"] is not None, fleet["gpus"], fleet["cost"]
    instances = f"{fleet['instances_most'] if sure else fleet['instances']:,}"
    bought = times = f"{count_text(instances, 'instance')}, times the safety factor {fleet['safety']:g}"
    if gpus is not None:
        bought = f"{count_text(f'{gpus:,}', gpu)} ({times})"
        bought += f", {cost['hour']:,.2f} USD an hour" if cost else ""
    middle = f"{fleet['instances']:,}"
    takes = f"{count_text(middle, 'instance')} of {name}{interval(fleet)}"
    return f"A peak of {fleet['peak_rps']:,g} requests/s takes {takes}: plan {'' if sure else 'at least '}{bought}."


def sized_rows(fleet: Sized, point: Mapping[str, Any], unit: str) -> list[list[str]]:
    """Names and values of a fleet.

    Args:
        point: the row of `operating_points` that was sized; empty for one that was given. unit: what is paid for, in the plural.
    """
    number, rate_ends = sure_text(fleet["usable_rps"], fleet["usable_low"], fleet["usable_high"])
    limit, gpus, sure = fleet["limits"], fleet["gpus"], fleet["instances_most"] is not None
    planned = f"{'the upper end' if sure else 'instances'} × safety factor {fleet['safety']:g}"
    rows = [
        ["instances", f"{fleet['instances']:,}{interval(fleet) if point else ''}"],
        [f"{unit} to plan ({planned})", "unknown" if gpus is None else f"{gpus:,}"],
        ["requests/s that an instance sustains", f"{number} ({rate_ends})" if point else f"{fleet['usable_rps']:.3g}"],
    ]
    if point and point["goodput_rps"] is not None:
        rows.append(["goodput of an instance there, requests/s", f"{point['goodput_rps']:.3g}"])
    rows.append(["load of the fleet at the peak", shown_share(fleet["utilisation_at_peak"])])
    found = {
        "longest queue of an instance": (limit["queue"],),
        "shed load from, and all at": (limit["shed_from"], limit["shed_at"]),
        "requests in flight to admit": (limit["admission"],),
        "longest prompt to admit (tokens)": (limit["input_tokens"],),
    }
    rows += [[name, ", ".join(f"{each:,}" for each in values)] for name, values in found.items() if None not in values]
    return rows + [[_COSTS[key], f"{value:,.2f}"] for key, value in (fleet["cost"] or {}).items() if key in _COSTS]


def meets(point: Mapping[str, Any]) -> str:
    """What a curve sustains within the SLOs, and up to where. Args: point: its row of `operating_points`."""
    more = f"; at {missed_load(point)} it {it_misses(point)}" if point["missed_at"] is not None else ""
    return f"{point['deployment']} with {point['workload']} sustains {sustains(point)}; limit: {limit(point)}{more}."


def no_point(point: Mapping[str, Any]) -> str:
    """Why a curve has no operating point that a fleet could be sized by. Args: point: its row of `operating_points`."""
    missed = f": there it {it_misses(point)}" if point["kind"] == "below" else ""
    return f"what it sustains is {sustains(point)}{missed}"


def next_step(point: Mapping[str, Any]) -> str:
    """What would give it an operating point; empty where `no_point` says so. Args: point: its row of `operating_points`."""
    return {
        "unknown": f"`{BENCH} runs` says why. {AGAIN}",
        "below": "Measure lower loads, or allow more with --slo.",
        "unjudged": "Name another latency with --slo: every answer has an E2E.",
    }.get(point["kind"], "")


def little(ratio: float) -> str:
    """That Little's law contradicts the numbers. Args: ratio: of the requests/s that it gives, to those that were measured."""
    wrong = f"Little's law gives {ratio:.2g} times the requests/s: load, latency and rate do not belong together"
    return f"{wrong}. Were they measured under one load?"


_MEANING = (
    "In the steady part of valid runs. Goodput: requests/s that met every limit by themselves. "
    "~: of too few requests for a bound."
)
_OF_FLEET = (
    " To plan: the upper end of the instances, times the safety factor; the wider the interval, the lower the load at the peak, of "
    "which 60 to 80 % is wanted. A token's price is that at the peak all day. Admit: requests in flight of an instance. Shed from "
    "80 % of the longest queue, whose last request waits for the TTFT limit. Keep 10 to 15 % of the KV cache free for longer requests."
)


def section(view: View) -> Section:
    """What one instance gives at what it sustains, and what a peak takes of each curve. Bursts have neither."""
    rows = view.of_curves(
        {
            "deployment": curve.deployment,
            "workload": curve.workload,
            **curve.there,
            **(curve.point or {}),
            **_sized(curve),
            "curve": curve.name,
            "ttft": _ttft(curve.there),
        }
        for curve in view.judged
        if curve.point and curve.point["usable_rps"] is not None
    )
    decision, of_fleet = view.results.decision, any(row.get("fleet") for row in rows)
    columns = [
        Column("curve", "curve"),
        Column("tokens/s", "tokens_per_s", "%.0f"),
        Column("goodput (requests/s)", "goodput_rps", "%.3g"),
        Column("TTFT P50, P99 (s)", "ttft"),
        Column("instances", "instances"),
        Column("to plan, with spare", "fleet"),
        Column("load at the peak", "utilisation_at_peak", "%.0f %%", 100),
        Column("USD an hour", "hour", "%.2f"),
        Column("USD a month", "month", "%.0f"),
        Column(f"USD a million {view.results.counted}", "million_output_tokens_at_peak", "%.3g"),
        Column("admit at most", "admission", "%d"),
        Column("longest queue", "queue", "%d"),
        Column("longest prompt (tokens)", "input_tokens", "%d"),
    ]
    peak = f", and a fleet for {decision.peak_rps:g} requests/s" if of_fleet else ""
    table = Table(f"One instance at what it sustains{peak}", columns, rows)
    title = "One instance, and a fleet" if of_fleet else "One instance"
    said = _MEANING + (_OF_FLEET + price_note(decision, view.results.device, view.results.runs) if of_fleet else "")
    return Section("operating", title, [table, Text(said)] if rows else [])


def _sized(curve: Curve) -> dict[str, Any]:
    if curve.fleet is None:
        return {"fleet": None}
    gpus = curve.fleet["gpus"]
    return {
        **curve.fleet,
        **(curve.fleet["cost"] or {}),
        **(curve.fleet["limits"] or {}),
        "instances": Cell(f"{curve.fleet['instances']:,}{interval(curve.fleet)}", curve.fleet["instances"]),
        "fleet": Cell("unknown" if gpus is None else count_text(gpus, curve.gpu), gpus),
    }


def _ttft(there: Mapping[str, Any]) -> Cell:
    median = "" if there["ttft_p50_s"] is None else f"{there['ttft_p50_s']:.3f}, "
    return Cell(median + tail_text(there["ttft_p99_s"], there["ttft_p99_bound_s"]), there["ttft_p50_s"])
