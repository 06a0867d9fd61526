"""What was found, against the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

__all__ = ["COLUMNS", "cell", "judge", "rows"]

LOW, HIGH, NEVER = 0.85, 1.05, 1.10  # of the truth: what is wanted, and what is never to be
COLUMNS = {
    "servers": "servers",
    "within": "−15 to +5 %",
    "never": "> +10 %",
    "worst": "worst",
    "levels": "levels hold",
    "open": "an end open",
    "width": "ln width",
    "both": "of two limits",
    "both_width": "ln width",
    "interval": "rps hold",
    "right": "cause right",
    "wrong": "wrong",
    "unknown": "unknown",
    "shown_right": "by telemetry alone: right",
    "shown_wrong": "wrong",
    "shown_unknown": "unknown",
}


def judge(case: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """One server's verdict.

    Args:
        case: `server.json`. result: of `evaluate`, tolerant of what another version of the project leaves out.

    Returns:
        `ratio` (usable requests/s ÷ what the ladder could have shown; None: no answer; where nothing is sustainable 1 if no rate is
        given, else infinite), `levels`, `both`, `interval` (whether the printed interval of the level, of that within two limits,
        and of the requests/s, holds the truth; None where there is none), `open` (whether an end of the level's is), `width` and
        `both_width` (ln of the levels' ends), `cause` (`right`, `wrong`, `unknown`), `found` (the cause), `shown` (as `cause`, of
        telemetry alone) and `error`.
    """
    point, both = result.get("point") or {}, result.get("both") or {}
    usable = point.get("usable_rps")
    causes = set(case["causes"])
    if case["withheld"] and case["gains"].get("refusals", 0.0) >= max(case["gains"].values()) / 1.1:
        causes.add("refusals")  # the client sees those by itself
    found, shown = (result.get(name, "unknown") for name in ("cause", "shown"))
    cause, shown = ("right" if each in causes else "unknown" if each == "unknown" else "wrong" for each in (found, shown))
    reference = case["reference_rps"]
    ratio = None if not usable else usable / reference if reference else math.inf
    if not reference and not usable:
        ratio = 1.0  # nothing is sustainable, and nothing is promised
    return {
        "number": case["number"],
        "ratio": ratio,
        "levels": _holds(point, "low", "high", case["level"]),
        "open": None if "low" not in point or case["level"] is None else point["low"] is None or point["high"] is None,
        "width": _width(point),
        "both": _holds(both, "low", "high", case["level"]),
        "both_width": _width(both),
        "interval": _holds(point, "usable_low", "usable_high", case["rps"]),
        "cause": cause,
        "found": found,
        "shown": shown if "shown" in result else None,
        "error": result.get("error"),
    }


def _width(point: Mapping[str, Any]) -> float | None:
    return math.log(point["high"] / point["low"]) if point.get("low") and point.get("high") else None


def _holds(point: Mapping[str, Any], low: str, high: str, truth: float) -> bool | None:
    """Whether an interval holds the truth; an end that is null is open. None where the version has no such interval, or neither end."""
    if low not in point or high not in point or (point[low] is None and point[high] is None):
        return None
    below, above = (-math.inf if point[low] is None else point[low]), (math.inf if point[high] is None else point[high])
    return bool(below <= truth * 1.01 and truth * 0.99 <= above)  # the truth is known to 1 %


def cell(name: str, value: Any) -> str:
    """A number of the table, in words."""
    if value is None:
        return "–"
    if name in ("servers", "never"):
        return str(value)
    return f"{value:+.1%}" if name == "worst" else f"{value:.1%}"


def rows(cases: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The table: one row a kind of server, and `all`."""
    groups: dict[str, Callable[[Mapping[str, Any]], bool]] = {"all": lambda _: True}
    for arrival in ("closed", "constant", "poisson", "gamma"):
        groups[arrival] = lambda case, arrival=arrival: case["demand"]["arrival"] == arrival
    for share in (0.5, 0.9, 0.95, 0.99):
        groups[f"P{100 * share:.0f}"] = lambda case, share=share: case["limit"]["share"] == share
    groups["somebody else's"] = lambda case: not case["withheld"] and case["number"] % 8 == 7
    groups["telemetry withheld"] = lambda case: bool(case["withheld"])
    groups["failing at random"] = lambda case: case["server"]["failure_share"] > 0
    table = {}
    for name, belongs in groups.items():
        mine = [verdict for case, verdict in zip(cases, verdicts, strict=True) if belongs(case)]
        if mine:
            table[name] = _row(mine)
    return table


def _row(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    count = len(verdicts)
    ratios = [verdict["ratio"] for verdict in verdicts if verdict["ratio"] is not None]
    widths = {name: [verdict[name] for verdict in verdicts if verdict[name] is not None] for name in ("width", "both_width")}

    kinds, shown = ("right", "wrong", "unknown"), [verdict["shown"] for verdict in verdicts if verdict["shown"]]

    def share(name: str) -> float | None:
        known = [verdict[name] for verdict in verdicts if verdict[name] is not None]
        return sum(known) / len(known) if known else None

    return {
        "servers": count,
        "within": sum(LOW <= ratio <= HIGH for ratio in ratios) / count,
        "never": sum(ratio > NEVER for ratio in ratios),
        "worst": max(ratios) - 1 if ratios else None,
        "levels": share("levels"),
        "open": share("open"),
        "both": share("both"),
        **{name: median(known) if known else None for name, known in widths.items()},
        "interval": share("interval"),
        **{kind: sum(verdict["cause"] == kind for verdict in verdicts) / count for kind in kinds},
        **{f"shown_{kind}": sum(each == kind for each in shown) / len(shown) if shown else None for kind in kinds},
    }
