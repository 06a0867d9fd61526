"""What a curve sustains in words: from a row of `bench.findings.capacity.points.operating_points`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.axes import AXES
from bench.errors import count_text, listed, shown_share, was_were
from bench.findings.capacity.judging import DOUBT, Miss
from bench.runs.sentences import load_text, sure_text, time_text
from bench.study.slo import Slo

Point = Mapping[str, Any]
BURSTS = "A burst says nothing about continuous load: measure a closed or an open loop for requests/s and a fleet."
# By whether the server shows its KV cache.
UNFILLED = {True: "no load filled the KV cache", False: "whether the KV cache was ever full is not known"}
# Why no answer has a latency, by its code.
_UNJUDGED = {
    None: "",
    "stream": ", because answers are not streamed",
    "held_back": ", because something between the server and its client holds answers back",
    "hidden": ", because it is unknown how many tokens their chunks carry",
    "uncounted": ", because the server does not count their tokens",
    "single": ", because each has a single token",
}


def misses_text(found: Sequence[Miss]) -> str:
    """What a level does, such as `misses TTFT P99 ≤ 2 s (measured: 3 s)`, or why that cannot be told."""
    return f"{'is too close to tell:' if found[0].close else 'misses'} {', '.join(map(_criterion, found))}"


def _criterion(miss: Miss) -> str:
    if miss.close:
        return _close_criterion(miss)
    if miss.by == "failed":
        return f"the limit on failures ({miss.misses} of {count_text(miss.requests or 0, 'request')} fail)"
    if miss.by == "growth":
        return f"a steady state (the backlog grows by {shown_share(miss.growth or 0.0)} of arrivals)"
    slo = _slo(miss)
    if miss.reached_s is not None and miss.reached_s > slo.limit_s:
        times, unit = (1000, "ms") if miss.reached_s < 1 else (1, "s")
        return f"{slo} (measured: {shown_over(times * miss.reached_s, times * slo.limit_s)} {unit})"
    return f"{slo} ({shown_share(miss.share or 0.0, 1)} of its requests fail or take longer)"


def _close_criterion(miss: Miss) -> str:
    """A criterion that is met by what was measured, and in doubt by all runs of the curve."""
    below = miss.below or 0.0
    met = f"with a probability of {shown_share(1 - below)}"
    if miss.by == "growth":
        return f"the server keeps up {met}; let it last longer"
    there = "" if miss.reached_s is None else f" (measured: {time_text(miss.reached_s)})"
    if below >= 1 - DOUBT:
        return f"{_slo(miss)} is met{there}, though all runs together put the limit lower with a probability of {shown_share(below)}"
    return f"{_slo(miss)} is met {met}{there}; send more requests"


def _slo(miss: Miss) -> Slo:
    assert miss.limit_s is not None
    return Slo.of_column(miss.by, miss.limit_s)


def shown_over(value: float, limit: float, fewest: int = 3) -> str:
    """A value with as many digits as show that it is over the limit."""
    return next((text for digits in range(fewest, 9) if float(text := f"{value:.{digits}g}") > limit), f"{value:.9g}")


def it_misses(point: Point) -> str:
    """What a curve does at its first level that is not sustained, as `misses_text` has it."""
    return misses_text(_misses_of(point))


def too_close(point: Point) -> bool:
    """Whether its first level that is not sustained is too close to its limits to tell."""
    return any(miss.close for miss in _misses_of(point))


def _misses_of(point: Point) -> list[Miss]:
    return [Miss(**miss) for miss in point["missed"] or ()]


def unsettled_text(kind: str, needs_s: float | None = None, request_class: str | None = None) -> str:
    """Why a level cannot be judged, and what would help. Args: kind: `empty`, `short` or `absent`. needs_s: how long it should last."""
    if kind == "empty":
        return "no request was sent"
    if kind == "absent":
        return f"no request of {request_class or 'a class with an SLO'} was judged; raise num_requests or its share"
    return f"the load did not become steady; {'send more requests' if needs_s is None else f'let it last {needs_s:.0f} s'}"


def _unsettled_of(point: Point) -> str:
    return unsettled_text(point["unsettled"], point["unsettled_needs_s"], point["unsettled_class"])


def sustains(point: Point) -> str:
    """What follows "sustains": a rate and its load, a burst, or why nothing is known."""
    kind = point["kind"]
    if kind == "unknown":
        return "not known: no valid run"
    if kind in ("found", "above"):
        if point["basis"] == "burst":
            return "a burst of " + count_text(f"{point['c_max']:g}", "request")
        more = f"; hardly more up to {point['c_max']:g} {point['unit']}" if point["operate_at"] < point["c_max"] else ""
        return rate(point) + more
    at = load_text(point["missed_at"], point["unit"])
    if kind == "unsettled":
        return f"not known: at {at} {_unsettled_of(point)}"
    if kind == "unjudged":
        slo, why = _slo(_misses_of(point)[0]), _UNJUDGED[point["unjudged"]]
        return f"not known: {slo} cannot be judged: no answer at {at} has that latency{why}"
    return f"{'perhaps' if too_close(point) else 'less than'} {at}, the lowest load that can be judged"


def limit(point: Point) -> str:
    """Where its limit lies at 95 % confidence, such as `17 to 20 requests in flight, most likely 18`; empty where no load is
    sustained.
    """
    if point["kind"] not in ("found", "above"):
        return ""
    unit = "requests" if point["basis"] == "burst" else point["unit"]
    low, high, likely = point["low"] or None, point["high"], point["limit"]
    if AXES[point["axis"]].held:  # whole numbers, of which `high` is the first that is too much
        high, likely = high and max(low or 0, high - 1), likely and math.floor(likely)
    likely = likely and float(f"{likely:.3g}")
    if low is None and high is None:
        return "not established" + (f", perhaps {load_text(likely, unit)}" if likely else "")
    if low is not None and high is not None:
        ends = load_text(high, unit) if low == high else f"{low:g} to {load_text(high, unit)}"
    else:
        ends = f"at most {load_text(high, unit)}" if low is None else f"{low:g} or more {unit}"
    return ends + (f", most likely {likely:g}" if likely and low != high else "")


def first_miss(point: Point) -> str:
    """The first load that misses, and by what; that none does, or empty where nothing is judged."""
    if point["kind"] in ("unknown", "unjudged", "unsettled"):
        return ""
    if point["missed_at"] is None:
        return f"none up to {load_text(point['highest'], point['unit'])}"
    close = "too close to tell: " if too_close(point) else ""
    return f"at {missed_load(point)}: {close}{', '.join(map(_criterion, _misses_of(point)))}"


def missed_load(point: Point) -> str:
    """The first load that is not sustained; where the limit's interval goes beyond it, from which load on that is sure."""
    at, high = load_text(point["missed_at"], point["unit"]), point["high"]
    if too_close(point) or (high is not None and high <= point["missed_at"]):
        return at
    return f"{at} ({'not at 95 % confidence' if high is None else f'at 95 % confidence from {high:g} on'})"


def rate(point: Point) -> str:
    """What a continuous load gives at its operating point; of an open loop of requests the load is that rate."""
    number, ends = sure_text(point["usable_rps"], point["usable_low"], point["usable_high"])
    at = "" if point["unit"] == "requests/s" else f" at {load_text(point['operate_at'], point['unit'])}"
    return f"{number} requests/s ({ends}){at}"


def evidence(point: Point) -> str:
    """How much was measured at the highest load that is sustained, and which limits its requests exceed though all runs together do
    not miss them there; empty where there is none.
    """
    if point["c_max"] is None:
        return ""
    requests, runs = count_text(f"{point['requests']:,.0f}", "request"), count_text(int(point["runs"]), "run")
    at = load_text(point["c_max"], point["unit"])
    higher = "though all runs together put the limit higher with a probability of"
    over = [
        f" They exceed {_criterion(miss)}, {higher} {shown_share(1 - (miss.below or 0.0))}."
        for miss in (Miss(**each) for each in point["over"] or ())
    ]
    return f"{requests} in {runs} {was_were(point['requests'])} judged at {at}.{''.join(over)}"


def narrowed(point: Point) -> str:
    """What would narrow its bounds; empty where nothing would."""
    if point["kind"] in ("unknown", "unjudged", "unsettled"):
        return ""
    said, at = [], {name: point[name] and load_text(point[name], point["unit"]) for name in ("c_max", "missed_at", "highest")}
    if point["unsettled_at"] is not None:
        said.append(f"At {load_text(point['unsettled_at'], point['unit'])}, {_unsettled_of(point)}.")
    elif point["high"] is None or point["high"] > point["highest"]:
        more = (
            f"More requests at {at['missed_at']}, or levels above it," if at["missed_at"] else f"Levels above {at['highest']}"
        )
        said.append(f"{more} would {'establish' if point['high'] is None else 'lower'} the upper end.")
    if point["c_max"] is not None and (point["low"] is None or point["low"] < point["c_max"]):
        said.append(f"More requests or rounds at {at['c_max']} would raise the lower end.")
    return " ".join(said)


def margin_title(rows: Sequence[Mapping[str, Any]], slos: Sequence[Slo]) -> str | None:
    """Which SLO is missed first, and on how many curves; None where that is known of no curve.

    Args:
        rows: of `bench.findings.capacity.points.operating_points`.
    """
    ends = [[miss["by"] for miss in row["missed"] if not miss["close"]] for row in rows if row["kind"] in ("found", "below")]
    named = [listed([str(slo) for slo in slos if slo.column in end]) for end in ends if end]
    counts = Counter(named).most_common()
    if len(counts) == 1:
        which = f"{len(named)} of {len(rows)}" if len(named) < len(rows) else "both" if len(rows) == 2 else f"all {len(rows)}"
        on = f" on {which} curves" if len(rows) > 1 else ""
        return f"{counts[0][0]} {'are' if ' and ' in counts[0][0] else 'is'} missed first{on}"
    if not counts:
        return None
    return f"Missed first, of {len(rows)} curves: {'; '.join(f'{slo} on {n}' for slo, n in counts)}"
