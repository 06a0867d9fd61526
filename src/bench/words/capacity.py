"""What a curve sustains in words: from a row of `bench.analysis.operating_points`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.analysis.judging import Miss, Unsettled
from bench.axes import AXES
from bench.errors import shown_share
from bench.study import Slo
from bench.words.loads import count_text, load_text

__all__ = [
    "BURSTS",
    "c_max",
    "evidence",
    "full_cache",
    "high_needs",
    "judged_alone",
    "low_needs",
    "missed",
    "misses",
    "rate",
    "sustains",
    "unsettled_at",
    "unsettled_text",
    "with_texts",
]

Point = Mapping[str, Any]
BURSTS = "A burst does not show what a continuous load would do: measure a closed or an open loop for requests/s and a fleet."
# Of a point, what only its words are made of.
_SOURCES = ("unsettled", "low_needs_requests", "high_needs_at", "unsettled_needs_s")


def misses(found: Iterable[Miss]) -> str:
    """By what a level misses, such as `TTFT P99 ≤ 2 s (3 s)`."""
    return ", ".join(map(_miss, found))


def _miss(miss: Miss) -> str:
    if miss.by == "failed":
        return f"the limit on failures ({miss.misses} of {miss.requests} requests fail)"
    if miss.by == "growth":
        return f"steadiness (requests pile up: {shown_share(miss.growth or 0.0)} of those that come stay)"
    slo = _slo(miss)
    if miss.reached_s is not None and miss.reached_s > slo.limit_s:
        return f"{slo} ({_reached(miss.reached_s, slo)})"
    assert miss.share is not None
    share = (
        f"{shown_share(miss.share, 1)} of its requests fail or take longer"
        if miss.share
        else "no request fails or takes longer"
    )
    allowed = 1 - slo.share
    if miss.share > allowed:
        return f"{slo} ({share})"
    if miss.smoothed is not None and miss.smoothed > allowed:
        return f"{slo} ({share}; judged with the loads around it, {shown_share(miss.smoothed, 1)} do)"
    return f"{slo} ({share}: too few requests to rely on it)"


def _slo(miss: Miss) -> Slo:
    assert miss.limit_s is not None
    return Slo.of_column(miss.by, miss.limit_s)


def _reached(seconds: float, slo: Slo) -> str:
    """A latency over an SLO's limit in the limit's own unit."""
    times, unit = (1000, "ms") if slo.limit_s < 1 else (1, "s")
    return f"{_beyond(times * seconds, times * slo.limit_s)} {unit}"


def _beyond(value: float, limit: float) -> str:
    """A value with as many digits as show that it is over the limit."""
    return next((text for digits in range(3, 9) if float(text := f"{value:.{digits}g}") > limit), f"{value:.9g}")


def missed(point: Point) -> str | None:
    """By what the first level that misses does, or why nothing can be said of it; None where every level meets the SLOs."""
    if point["kind"] == "unsettled":
        return _unsettled_text(point)
    if point["missed"] is None:
        return None
    found = [Miss(**miss) for miss in point["missed"]]
    return f"{_slo(found[0])} cannot be judged" if point["kind"] == "unjudged" else misses(found)


def unsettled_text(found: Unsettled) -> str:
    """Why a level cannot be judged, and what would help."""
    if found.kind == "empty":
        return "no request was sent"
    longer = "send more requests" if found.needs_s is None else f"let it last {found.needs_s} s"
    return f"its load did not become steady; {longer}"


def _unsettled_text(point: Point) -> str:
    needs_s = point["unsettled_needs_s"]
    return unsettled_text(Unsettled(point["unsettled"], None if needs_s is None else int(needs_s)))


def unsettled_at(level: float, why: str) -> str:
    """That the upper end hides behind a level that cannot be judged."""
    return f"The upper end is not known: at {level:g}, {why}."


def c_max(point: Point) -> str:
    """C_max with its bounds, such as `16 (at least 15, below 20)`."""
    match point["kind"]:
        case "unknown":
            return "no valid run"
        case "unsettled":
            return "no steady state"
        case "unjudged":
            return f"{missed(point)}: no answer at {point['missed_at']:g} has that latency"
        case "below":
            return f"below {point['missed_at']:g}, the lowest level{judged_alone(point)}"
    low = "the lower end is not established" if point["low"] is None else f"at least {point['low']:g}"
    high = "the upper end is not established" if point["high"] is None else f"below {point['high']:g}"
    if point["low"] is None and point["high"] is None:
        low, high = "neither end is established", ""
    more = " or more" if point["kind"] == "above" else ""
    return f"{point['c_max']:g}{more} ({', '.join(filter(None, (low, high)))})"


def low_needs(point: Point) -> str | None:
    """What would make the lower end as high as C_max; None where it is."""
    match point["low_needs"]:
        case "unsettled":
            needs_s = point["unsettled_needs_s"]
            helps = "send more requests" if needs_s is None else f"let it last {needs_s:g} s"
            return f"At lower levels the load did not become steady: {helps}."
        case "longer":
            return (
                f"Longer runs at {point['c_max']:g} would show whether requests pile up there, and raise the lower end to it."
            )
        case "rounds":
            return (
                f"{point['c_max']:g} is too near its limit to be sure of: more rounds{_lower(point)} would "
                f"{'establish' if point['low'] is None else 'raise'} the lower end."
            )
        case "requests":
            return (
                f"{point['low_needs_requests']:,.0f} requests at {point['c_max']:g} ({point['requests']:,.0f} were judged) would "
                "establish it as the lower end."
            )
    return None


def _lower(point: Point) -> str:
    """Which lower levels would help; empty where there can be none."""
    if point["low"] is not None:
        return f", or levels between {point['low']:g} and {point['c_max']:g},"
    return "" if AXES[point["axis"]].held and point["c_max"] <= 1 else " or a lower level"


def judged_alone(point: Point) -> str:
    """What follows "the lowest load" where lower ones were measured and cannot be judged."""
    return " that can be judged" if point["low_needs"] == "unsettled" else ""


def high_needs(point: Point) -> str | None:
    """What would establish the upper end; None where it is."""
    match point["high_needs"]:
        case "unsettled":
            return unsettled_at(point["high_needs_at"], _unsettled_text(point))
        case "levels":
            return f"Levels above {point['high_needs_at']:g} would establish the upper end."
        case "requests":
            return f"More requests at {point['high_needs_at']:g}, or levels above it, would establish the upper end."
    return None


def sustains(point: Point, *, burst: bool) -> str:
    """A curve's capacity in a sentence or two."""
    match point["kind"]:
        case "unknown":
            return "No valid run, so its capacity is not known."
        case "unjudged":
            return f"{c_max(point)}. Answers that are not streamed have no TTFT, those of a single token no TPOT."
        case "unsettled":
            at = load_text(point["missed_at"], point["unit"])
            return f"No steady state, so its capacity is not known: at {at} {missed(point)}."
        case "below":
            at = load_text(point["missed_at"], point["unit"])
            if point["low_needs"] == "unsettled":
                return f"No load that can be judged is sustained: at {at} it misses {missed(point)}. {low_needs(point)}"
            return f"No measured load is sustained: at {at}, the lowest, it misses {missed(point)}."
    if burst:
        return f"A burst of {load_text(point['c_max'], point['unit'])} meets the SLOs: C_max is {c_max(point)}."
    more = ", but sustains no more" if point["operate_at"] < point["c_max"] else ""
    return f"{rate(point)}. C_max is {c_max(point)}{more}."


def rate(point: Point) -> str:
    """What a continuous load gives at its operating point."""
    at = load_text(point["operate_at"], point["unit"])
    return f"Sustains {point['usable_rps']:.3g} requests/s at {at} ({_between(point['usable_low'], point['usable_high'])})"


def _between(low: float | None, high: float | None) -> str:
    """Within which bounds the sustained rate lies."""
    if low is None and high is None:
        return "neither end of its 95 % interval is established"
    if low is None:
        return f"less than {high:.3g} at 95 % confidence, its lower end is not established"
    if high is None:
        return f"at least {low:.3g} at 95 % confidence, its upper end is not established"
    return f"{low:.3g} to {high:.3g} at 95 % confidence"


def evidence(point: Point) -> str:
    """How much was measured at C_max, and what would narrow its bounds; empty where there is none."""
    if point["c_max"] is None:
        return ""
    runs = int(point["runs"])
    requests = f"{point['requests']:,.0f} request{'' if point['requests'] == 1 else 's'}"
    measured = f"{requests} in {count_text(runs, 'run')} were judged there."
    return " ".join(filter(None, (measured, low_needs(point), high_needs(point))))


def full_cache(saturation: Mapping[str, Any] | None) -> str:
    """Without SLOs: where a curve saturates. Args: saturation: its row; None where no run can be trusted."""
    if saturation is None:
        return "No run has server counts that can be trusted."
    measured, peak = saturation["measured"], saturation["peak_at"]
    unfilled = "No load filled its KV cache" if saturation["cache_known"] else "Whether its KV cache was ever full is not known"
    full = f"Its KV cache is full from {measured:g} on" if measured is not None else unfilled
    return full + (f"; throughput is highest at {peak:g}." if peak is not None else ".")


def with_texts(point: Point) -> dict[str, Any]:
    """A point as it is written for readers: `missed`, `missed_by`, `c_max_text`, `low_needs` and `high_needs` as texts."""
    found = None if point["missed"] is None or point["kind"] == "unjudged" else ",".join(miss["by"] for miss in point["missed"])
    texts = {"missed": missed(point), "missed_by": found, "c_max_text": c_max(point)}
    needs = {"low_needs": low_needs(point), "high_needs": high_needs(point)}
    first = {key: point[key] for key in ("deployment", "workload", "axis", "unit", "kind", "basis")}
    return {**first, **texts, **needs, **{key: value for key, value in point.items() if key not in (*_SOURCES, *texts, *needs)}}
