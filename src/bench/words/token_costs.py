"""What a token costs and what streaming buys, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.analysis.lengths import FEWEST_BENT
from bench.analysis.token_costs import LengthCost, StreamingGain
from bench.axes import AXES
from bench.errors import count_text, is_are, listed
from bench.statistics import FEWEST_POINTS
from bench.words.answer import AGAIN, Answer
from bench.words.lengths import adds, squared, with_half
from bench.words.loads import load_text


def answer(costs: Sequence[LengthCost], gains: Sequence[StreamingGain]) -> Answer:
    """How lengths set latency, and what streaming buys."""
    asked = [
        *(["How do prompt and output length set latency"] if costs else []),
        *(["what does streaming buy"] if gains else []),
    ]
    question = ", and ".join(asked) + "?"
    names = _Names(costs, gains)
    return Answer(
        name="lengths",
        question=question[0].upper() + question[1:],
        lines=(*(_of(names(each), _cost(each)) for each in costs), *(_of(names(each), _gain(each)) for each in gains)),
        sure=_sure(costs, gains, names),
        do=(AGAIN,) if any(each.valid < each.runs for each in costs) or any(each.left_out for each in gains) else (),
    )


class _Names:
    """What distinguishes each cost and gain from the others: its deployment, workload and load, where those vary."""

    def __init__(self, costs: Sequence[LengthCost], gains: Sequence[StreamingGain]) -> None:
        every: list[LengthCost | StreamingGain] = [*costs, *gains]
        self._deployments = len({each.deployment for each in every}) > 1
        self._levels = len({(each.axis, each.level) for each in every}) > 1
        # Of one length and load, or of the same requests: what only the workload's name distinguishes.
        places = {(_about(each), each.deployment, each.axis, each.level, each.workload) for each in every}
        counts = Counter(place[:-1] for place in places)
        self._alike = {_about(each) for each in every if counts[_about(each), each.deployment, each.axis, each.level] > 1}

    def __call__(self, each: LengthCost | StreamingGain) -> str:
        parts = [each.deployment] if self._deployments else []
        parts += [each.workload] if _about(each) in self._alike else []
        parts += [load_text(each.level, AXES[each.axis].unit)] if self._levels else []
        return ", ".join(parts)


def _about(each: LengthCost | StreamingGain) -> object:
    return each.kind if isinstance(each, LengthCost) else (each.prompt, each.output)


def _of(name: str, text: str) -> str:
    return f"{name}: {text[0].lower()}{text[1:]}" if name else text


def _cost(found: LengthCost) -> str:
    if found.line is None or found.lengths is None:
        return f"Cost per {found.kind} token: not known, {_too_few(found)}, and a line takes {FEWEST_POINTS} lengths."
    if found.known is None:
        cost = with_half(found.line.slope, found.line.slope_half)
        return f"Cost per {found.kind} token: not significant ({cost} ms, an interval that includes 0)."
    low, high = found.lengths
    what = "prompt" if found.kind == "prompt" else "answer"
    return f"{adds(found.line, found.kind)} ({what}s of {low:,} to {high:,} tokens). {_bend(found, what)}"


def _too_few(found: LengthCost) -> str:
    """Why there is no line."""
    if found.measured == found.valid:
        return f"{count_text(found.valid, 'run', of=found.runs)} {is_are(found.valid)} valid"
    some = f"{count_text(found.measured, 'valid run', of=found.valid)} {'has' if found.measured == 1 else 'have'}"
    return f"{some} a TTFT, which only streaming shows" if found.kind == "prompt" else f"{some} an E2E latency"


def _bend(found: LengthCost, what: str) -> str:
    assert found.line
    curve = found.line.parabola
    if curve is None:
        return (
            "No bend shows over these lengths." if found.line.n >= FEWEST_BENT else "Too few lengths to see whether it bends."
        )
    grows = squared(found.line, found.kind)
    then = f": {grows[0].lower()}{grows[1:]}" if grows else ""
    return f"The longer the {what}, the {'less' if curve.bend < 0 else 'more'} a further token adds{then}."


def _gain(found: StreamingGain) -> str:
    case = f"({found.prompt:,} + {found.output:,} tokens)"
    if found.first_s is None or found.streamed_s is None or found.whole_s is None:
        return f"What streaming buys is not known: {_lacking(found)} {case}."
    return f"{gain_title(found)} {case}; the whole answer takes {found.streamed_s:.3g} s with it."


def gain_title(found: StreamingGain) -> str | None:
    """How much sooner there is something to read; None where that is not known."""
    if found.first_s is None or found.whole_s is None:
        return None
    return f"With streaming there is something to read after {found.first_s:.3g} s, without it after {found.whole_s:.3g} s"


def _lacking(found: StreamingGain) -> str:
    """Why there is no gain."""
    kinds = [kind for kind, runs in zip(("with", "without"), found.valid, strict=True) if not runs]
    if kinds:
        return f"no valid run {' or '.join(kinds)} it"
    if not found.pairs:
        return "no two runs of the same session and repeat are both valid"
    return "the runs have no TTFT" if found.first_s is None else "the runs have no E2E latency"


def _sure(costs: Sequence[LengthCost], gains: Sequence[StreamingGain], names: _Names) -> tuple[str, ...]:
    fits = [
        f"{count_text(each.measured, 'run', of=each.runs)} for {each.kind} length"
        f" ({f'{name}, ' if (name := names(each)) else ''}R² {(each.known.parabola or each.known).r_squared:.2f})"
        for each in costs
        if each.known
    ]
    sure = [f"± is half of a 95 % interval. The fits rest on {listed(fits)}."] if fits else []
    known = [each for each in gains if each.first_s is not None and each.whole_s is not None]
    if known and all(each.pairs == 1 for each in known):
        sure.append("Streaming: one run of each kind, so how far two such runs differ by chance is not known.")
    elif known:
        sure.append(f"Streaming: medians of {count_text(sum(each.pairs for each in known), 'pair')} of runs.")
    return tuple(sure)
