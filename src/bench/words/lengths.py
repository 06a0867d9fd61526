"""What a token costs and what streaming buys, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.analysis.lengths import LengthCost, StreamingGain
from bench.axes import AXES
from bench.statistics import FEWEST_POINTS
from bench.words.answer import AGAIN, Answer
from bench.words.loads import load_text

_LATENCY = {"prompt": "TTFT", "output": "E2E latency"}  # that the length of each kind sets


def answer(costs: Sequence[LengthCost], gains: Sequence[StreamingGain]) -> Answer:
    """How lengths set latency, and what streaming buys."""
    asked = ["How do prompt and output length set latency"] * bool(costs) + ["what does streaming buy"] * bool(gains)
    question = ", and ".join(asked) + "?"
    kinds = {each.kind for each in costs}
    named = len(kinds) < len(costs) or len(gains) > 1
    valid = all(each.measured == each.runs for each in costs) and all(each.valid == each.runs for each in gains)
    return Answer(
        name="lengths",
        question=question[0].upper() + question[1:],
        lines=(
            *(_named(f"{each.deployment} · {each.workload}", each, cost(each), named=named) for each in costs),
            *(_named(each.deployment, each, _gain(each), named=named) for each in gains),
        ),
        sure=(
            *(["± is half of a 95 % interval of a line through the runs."] if any(each.slope for each in costs) else []),
            *(
                ["Streaming: medians of the valid runs of each kind."]
                if any(each.first_s and each.whole_s for each in gains)
                else []
            ),
        ),
        do=() if valid else (AGAIN,),
    )


def _named(name: str, each: LengthCost | StreamingGain, text: str, *, named: bool) -> str:
    at = f"{name}, {load_text(each.level, AXES[each.axis].unit)}"
    return f"{at}: {text[0].lower()}{text[1:]}" if named else text


def cost(found: LengthCost) -> str:
    """What a token adds to a latency, or why that is not known."""
    latency = _LATENCY[found.kind]
    if found.slope is None or found.slope_half is None or found.lengths is None:
        have = f"{found.measured} of {found.runs} runs are valid and have {latency}"
        return f"Cost per {found.kind} token: not known: {have}, and a line takes {FEWEST_POINTS} lengths."
    slope = with_half(found.slope, found.slope_half)
    if abs(found.slope) <= found.slope_half:
        return f"Cost per {found.kind} token: not significant ({slope} ms, an interval that includes 0)."
    low, high = found.lengths
    article, what = ("An", "answer") if found.kind == "output" else ("A", "prompt")
    mean = f"in the mean of {what}s of {low:,} to {high:,} tokens (R² {found.r_squared:.2f})"
    return f"{article} {found.kind} token adds {slope} ms to {latency}, {mean}."


def with_half(value: float, half: float) -> str:
    """A number with half of its interval, of which two digits count: `12.4 ± 8.8`."""
    exact = half <= 1e-9 * abs(value)  # but for the last digits of floating-point numbers
    digits = 3 if exact else max(0, 1 - math.floor(math.log10(half)))
    return f"{value:,.{digits}f} ± {half:,.{digits}f}".replace("-", "−")


def _gain(found: StreamingGain) -> str:
    case = f"({found.prompt:,} + {found.output:,} tokens)"
    if found.first_s is None or found.streamed_s is None or found.whole_s is None:
        return f"What streaming buys is not known: {found.valid} of {found.runs} runs are valid {case}."
    first = f"With streaming there is something to read after {found.first_s:.3g} s, without it after {found.whole_s:.3g} s"
    return f"{first} {case}; the whole answer takes {found.streamed_s:.3g} s with it."
