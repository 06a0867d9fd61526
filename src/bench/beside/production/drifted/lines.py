"""What is said of production beside a study."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bench.beside.production.drifted import DIFFERS, SAME, UNKNOWN, Compared, Drift
from bench.beside.production.drifted.judged import HITS, KIND, LENGTHS, MIXED
from bench.errors import count_text, shown_share

_SEEN = 0.9  # share of the time below which a line says how much was counted; convention


def rows(found: Drift) -> list[list[str]]:
    """A table: each quantity of both, the difference with its interval, and the verdict."""
    head = ["", "study", "production", "difference", "verdict"]
    return [head, *([x.name, _value(x, x.study), _value(x, x.production), _change(x), x.verdict] for x in found.compared)]


def conclusion(found: Drift) -> Iterator[str]:
    """The answer in a line, and what limits it."""
    differing = "; ".join(each.name for each in found.compared if each.verdict == DIFFERS)
    yield {
        DIFFERS: f"Production differs from what was measured: {differing}.",
        SAME: "Production is what was measured, as far as both show it.",
        UNKNOWN: "Not known whether production is still what was measured.",
    }[found.verdict]
    if wide := _wide(found):
        yield f"The interval is too wide to say: {'; '.join(wide)}."
    reasons: dict[str, list[str]] = {}
    for each in found.compared:
        if each.why:
            reasons.setdefault(f"{each.verdict}: {each.why}", []).append(each.name)
    yield from (f"{'; '.join(named)}: {why}." for why, named in reasons.items())
    if found.restarts:
        yield f"Servers began anew {count_text(found.restarts, 'time')}; what lies across that is not counted."
    if found.seen < _SEEN:
        yield f"{shown_share(found.seen)} of the time was counted; in the rest scrapes are missing, or there was no server."


def advice(found: Drift) -> Iterator[str]:
    """What to measure again, or what would decide."""
    differing = {each.name: each for each in found.compared if each.verdict == DIFFERS}
    parts = {each.part for each in differing.values()}
    lengths = ", ".join(f"{name} {differing[name].production:.0f}" for name in LENGTHS if name in differing)
    if "server" in parts:
        yield "Measure the server as production runs it: its version is not that of the study."
    if lengths:
        yield f"Measure a workload of production's lengths ({lengths}): limits and latencies of the study are of other ones."
    elif MIXED in differing:
        yield "Measure a workload of production's lengths, by its access log: `bench traffic`."
    if HITS in differing:
        yield "Measure a workload that shares as much of its prompts as production does (`shared_prefix`, or conversations)."
    if any(isinstance(each.study, tuple) for each in differing.values()):
        yield "Measure higher loads: production has more than the study had."
    if parts == {"speed"}:
        known = all(each.verdict == SAME for each in found.compared if each.name in KIND)
        yield (
            "Traffic is as measured and speed is not: look at the machine, then measure the study again."
            if known
            else "Look at the traffic (`bench traffic`) and at the machine: which of them changed the speed is not known."
        )
    if found.verdict == SAME:
        yield "There is no need to measure again."
    if found.verdict == UNKNOWN and _wide(found):
        yield "A longer time (--last), or one with more requests, narrows the intervals; so do more starts of the study (`sessions`)."


def _wide(found: Drift) -> list[str]:
    """What only its interval leaves undecided."""
    return [each.name for each in found.compared if each.verdict == UNKNOWN and each.change is not None and not each.why]


def _value(each: Compared, value: float | tuple[float, float] | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "not known"
    if isinstance(value, tuple):
        return f"{value[0]:.3g} to {value[1]:.3g}"
    if each.unit == "0–1":
        return shown_share(value, 1)
    if each.unit == "s":
        return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
    return f"{value:.4g} {each.unit if each.unit != each.name.split(',', maxsplit=1)[0] else ''}".strip()


def _change(each: Compared) -> str:
    if each.change is None or each.low is None or each.high is None:
        return ""
    what = "points" if each.unit == "0–1" else "%"
    low, change, high = (f"{100 * value:+.1f}" if math.isfinite(value) else "∞" for value in (each.low, each.change, each.high))
    return f"{change} {what} ({low} to {high})"
