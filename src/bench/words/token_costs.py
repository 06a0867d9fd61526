"""What a token costs and what streaming buys, in words."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.lengths import Line
from bench.analysis.token_costs import FEWEST_LENGTHS, LengthCost, StreamingGain
from bench.words.answer import AGAIN, Answer, listed
from bench.words.lengths import with_half
from bench.words.loads import count_text

__all__ = ["answer"]

_ENOUGH = 5  # lengths from which on a bend could show
_SHORTER = 1.5  # one kind of token has to cost so many times the other before advice follows
_HARDLY = 0.8  # of the whole time: from there on streaming brings the first words no sooner to speak of


def answer(costs: Sequence[LengthCost], gains: Sequence[StreamingGain]) -> Answer:
    """How lengths set latency, and what streaming buys."""
    several = len({*(each.deployment for each in costs), *(each.deployment for each in gains)}) > 1
    asked = [
        *(["How do prompt and output length set latency"] if costs else []),
        *(["what does streaming buy"] if gains else []),
    ]
    question = ", and ".join(asked) + "?"
    return Answer(
        name="lengths",
        question=question[0].upper() + question[1:],
        lines=(*(_cost(each, several) for each in costs), *(_gain(each, several) for each in gains)),
        sure=_sure(costs, gains),
        do=_do(costs, gains, several),
    )


def _of(deployment: str, several: bool, text: str) -> str:
    return f"{deployment}: {text[0].lower()}{text[1:]}" if several else text


def _cost(found: LengthCost, several: bool) -> str:
    token = "prompt token" if found.kind == "prompt" else "output token"
    if found.line is None or found.lengths is None:
        few = f"{found.valid} of {found.runs} runs are valid, and a line takes {FEWEST_LENGTHS} lengths"
        return _of(found.deployment, several, f"What {_article(token)} costs is not known: {few}.")
    cost = with_half(found.line.slope, found.line.slope_half)
    if found.known is None:
        return _of(
            found.deployment,
            several,
            f"What {_article(token)} costs is not known: {cost} ms may be nothing, or less than nothing.",
        )
    low, high = found.lengths
    when, what = (" before the answer begins", "prompts") if found.kind == "prompt" else ("", "answers")
    text = f"{_article(token).capitalize()} costs {cost} ms{when} ({what} of {low:,} to {high:,} tokens)."
    return _of(found.deployment, several, f"{text} {_bend(found.line, high)}")


def _article(token: str) -> str:
    return f"an {token}" if token[0] in "aeiou" else f"a {token}"


def _bend(found: Line, longest: int) -> str:
    curve = found.parabola
    if curve is None:
        return "No bend shows over these lengths." if found.n >= _ENOUGH else "Too few lengths to see whether it bends."
    if curve.bend < 0:
        return "That is the mean: long ones cost less than in proportion."
    share = f"{100 * curve.bend:.0f} %" if curve.bend < 1 else "all"
    return (
        f"That is the mean: long ones cost more than in proportion (the square of the length makes {share} of the latency at "
        f"{longest:,} tokens)."
    )


def _gain(found: StreamingGain, several: bool) -> str:
    case = f"({found.prompt:,} + {found.output:,} tokens)"
    lacking = [kind for kind, runs in zip(("with", "without"), found.runs, strict=True) if not runs]
    if found.first_s is None or found.streamed_s is None or found.whole_s is None:
        kinds = " or ".join(lacking) or "with"
        return _of(found.deployment, several, f"What streaming buys is not known: no valid run {kinds} it {case}.")
    text = (
        f"With streaming there is something to read after {found.first_s:.2g} s, without it after {found.whole_s:.2g} s {case}; "
        f"the whole answer takes {found.streamed_s:.2g} s with it."
    )
    return _of(found.deployment, several, text)


def _sure(costs: Sequence[LengthCost], gains: Sequence[StreamingGain]) -> tuple[str, ...]:
    fits = [
        f"{each.valid} of {each.runs} runs for {each.kind} length (R² {(each.known.parabola or each.known).r_squared:.2f})"
        for each in costs
        if each.known
    ]
    sure = [f"± is half of a 95 % interval. The fits rest on {listed(fits)}."] if fits else []
    known = [each for each in gains if each.first_s is not None and each.whole_s is not None]
    if known and all(each.runs == (1, 1) for each in known):
        sure.append("Streaming: one run of each kind, so how far two such runs differ by chance is not known.")
    elif known:
        runs = sum(sum(each.runs) for each in known)
        sure.append(f"Streaming: medians of {count_text(runs, 'run')}.")
    return tuple(sure)


def _do(costs: Sequence[LengthCost], gains: Sequence[StreamingGain], several: bool) -> tuple[str, ...]:
    do = []
    slopes = {(each.deployment, each.kind): each.known.slope for each in costs if each.known}
    for deployment in dict.fromkeys(each.deployment for each in costs):
        prompt, output = slopes.get((deployment, "prompt")), slopes.get((deployment, "output"))
        if prompt and output and prompt > 0 and output > 0:
            if output > _SHORTER * prompt:
                text = f"An output token takes as long as {output / prompt:.2g} prompt tokens: to answer sooner, shorten answers first."
                do.append(_of(deployment, several, text))
            elif prompt > _SHORTER * output:
                text = f"A prompt token takes as long as {prompt / output:.2g} output tokens: to answer sooner, shorten prompts first."
                do.append(_of(deployment, several, text))
    for each in gains:
        if each.first_s is None or each.whole_s is None:
            continue
        share = each.first_s / each.whole_s
        case = f"{each.prompt:,} + {each.output:,} tokens"
        text = (
            f"Stream answers: readers of {case} wait {100 * share:.0f} % of the time."
            if share < _HARDLY
            else f"Streaming hardly helps here: the first words of {case} come after {100 * share:.0f} % of the time."
        )
        do.append(_of(each.deployment, several, text))
    if any(each.valid < each.runs for each in costs) or any(0 in each.runs for each in gains):
        do.append(AGAIN)
    return tuple(do)
