"""The requests of a run: when each is due, how long it is, and which other it follows. Nothing here knows a server."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from typing import Any

from bench.axes import RATE
from bench.errors import BenchError
from bench.fields import MOST_REQUESTS
from bench.workloads.classes import dealt
from bench.workloads.gaps import GAPS
from bench.workloads.lengths import draws
from bench.workloads.workload import Workload


@dataclass(frozen=True)
class PlannedRequest:
    """One request to be.

    Attributes:
        index: its number in the run. conversation: number of the conversation that it is a turn of; its own where it has one turn.
        prompt_asked, output_tokens: its lengths; the former None where the source of prompts has its own, the latter 0 where answers
            are no tokens.
        due_s: when it leaves (s since the run's start); None where an end lets it go.
        after, think_s: indices of the requests that it waits for, as the turn before it, and the time between the last one's end and
            this one (s).
        shared_tokens: tokens at the prompt's beginning that all prompts of the run have.
        reusable_tokens: tokens at its beginning that some request before it had: what a prefix cache can serve.
        turn: its number in its conversation. messages: tokens of the messages that its prompt has where they are asked for: what users
            said and what was answered, by turns.
        blocks: numbers of its prompt's blocks, each of `block_tokens` but for the last, which prompts share; empty where
            `conversation` and `shared_tokens` say what they share.
        request_class: its class; None where the workload has none. drawn: number of its conversation in that class, by which its prompt
            is drawn.
    """

    index: int
    conversation: int
    prompt_asked: int | None
    output_tokens: int
    due_s: float | None = None
    after: tuple[int, ...] = ()
    think_s: float = 0.0
    shared_tokens: int = 0
    reusable_tokens: int = 0
    turn: int = 0
    messages: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    request_class: str | None = None
    drawn: int = 0

    @property
    def tokens(self) -> int:
        """What throughput counts of it, as far as it is known: its output, or its prompt where answers are no tokens."""
        return self.output_tokens or self.prompt_asked or 0

    @property
    def prompt_tokens(self) -> int:
        """The prompt's length.

        Raises:
            BenchError: it is not known.
        """
        if self.prompt_asked is None:
            raise BenchError(
                "Prompts of a file have lengths that only the server's count shows, so nothing is predicted of them."
            )
        return self.prompt_asked


def schedule(workload: Workload, level: float, seed: str) -> list[PlannedRequest]:
    """The requests of a run at `level`, the same for the same seed on any machine.

    Turns of one conversation stand next to each other; otherwise the order is that of their moments.

    Args:
        level: requests in flight, requests a second, or the time scale of a trace. seed: text; it draws gaps and lengths.

    Raises:
        BenchError: they are more than one client sends.
    """
    if workload.trace:
        return _replayed(workload, level)
    if workload.sent(level) * workload.turn_count > MOST_REQUESTS:
        raise BenchError(str(workload.excess(level)))
    parts = {name: _Draws(each, f"{seed}/class/{name}" if name else seed) for name, each in workload.parts.items()}
    midway = workload.arrival == "closed" and not (workload.turns or workload.natural)  # whether its first requests are met so
    shares = _begun(int(level), f"{seed}/begun") if midway else []
    requests: list[PlannedRequest] = []
    for conversation, (name, moment) in enumerate(_mixture(workload, level, seed)):
        part = parts[name]
        prompt, output = part.prompt(), part.output() or 0
        if conversation < len(shares) and output:
            output = max(1, round(output * shares[conversation]))
        first = PlannedRequest(
            len(requests),
            conversation,
            prompt,
            output,
            moment,
            messages=(prompt,) if workload.turns and prompt else (),
            **_shared(part.workload, prompt or 0),
            request_class=name,
            drawn=next(part.number),
        )
        requests += part.conversation(first)
    return requests


class _Draws:
    """What draws the lengths of a workload's requests, or of one class's."""

    def __init__(self, workload: Workload, seed: str) -> None:
        turns = workload.turns
        self.workload, self.number = workload, count()
        self.prompt = draws(workload.prompt_tokens, f"{seed}/prompts")
        self.output = draws(workload.output_tokens, f"{seed}/outputs")
        self._added = draws(turns.new_tokens if turns else None, f"{seed}/turns")

    def conversation(self, request: PlannedRequest) -> Iterator[PlannedRequest]:
        """A first request and its further turns, whose prompts hold all that was said before, where their lengths are known."""
        yield request
        for turn in range(1, self.workload.turn_count):
            added = self._added()
            history: dict[str, Any] = {}
            if added is not None:
                messages = (*request.messages, request.output_tokens, added)
                history = {"prompt_asked": sum(messages), "messages": messages, "reusable_tokens": request.prompt_tokens}
            request = replace(
                request,
                index=request.index + 1,
                turn=turn,
                output_tokens=self.output() or 0,
                due_s=None,
                after=(request.index,),
                think_s=self.workload.think_s,
                **history,
            )
            yield request


def _replayed(workload: Workload, level: float) -> list[PlannedRequest]:
    """The requests of a trace, `level` times as fast."""
    planned = [
        PlannedRequest(
            i,
            x.root,
            x.prompt_tokens,
            x.output_tokens,
            None if x.arrival_s is None else x.arrival_s / level,
            x.after,
            x.after_s / level,
            **_shared(workload, x.prompt_tokens),
            blocks=x.blocks,
            block_tokens=x.block_tokens,
        )
        for i, x in enumerate(workload.traced)
    ]
    if workload.cache != "unique":
        return planned
    earliest = _earliest(planned)
    order = sorted(range(len(planned)), key=earliest.__getitem__)
    known = dict(zip(order, _reusable(planned[i] for i in order), strict=True))
    return [replace(request, reusable_tokens=known[request.index]) for request in planned]


def _reusable(requests: Iterable[PlannedRequest]) -> Iterator[int]:
    """Of each request, the tokens with which its prompt and one before it begin. Args: requests: in the order of sending."""
    sent: dict[int, int] = {}  # most tokens of a block that some prompt had
    for request in requests:
        common = 0
        for place, block in enumerate(request.blocks):
            mine = min(request.block_tokens, request.prompt_tokens - place * request.block_tokens)
            had = sent.get(block, 0)
            common += min(mine, had)
            sent[block] = max(mine, had)
        yield common


def _earliest(planned: Iterable[PlannedRequest]) -> list[float]:
    """When each request leaves if answers take no time (s): its moment, or its time to think after the last that it waits for."""
    found: list[float] = []
    for request in planned:
        found.append(max((found[before] + request.think_s for before in request.after), default=request.due_s or 0.0))
    return found


def at_least_s(planned: Sequence[PlannedRequest]) -> float:
    """Time until the last request leaves, however fast the answers are (s): moments, and times to think."""
    return max(_earliest(planned), default=0.0)


def _begun(count: int, seed: str) -> list[float]:
    """What is left of the outputs of the requests with which a closed loop begins (0–1), as if they had been met on their way.

    Whole requests that begin together end together, and their successors too: a convoy, whose TTFT is that of bursts, for longer
    than most runs last. In a closed loop that has gone on for long the rest of each request is anything from nothing to all of it.

    Source: the equilibrium renewal process, whose residual lives are uniform for lives of one length (Cox, Renewal Theory, 1962, 5).
    """
    draw = random.Random(seed)  # noqa: S311 - a schedule, no secret
    parts = [(i + draw.random()) / count for i in range(count)]
    draw.shuffle(parts)
    return parts


def _shared(workload: Workload, prompt_tokens: int) -> dict[str, Any]:
    share = 1.0 if workload.cache == "repeated" else workload.shared_prefix or 0.0
    tokens = int(prompt_tokens * share)
    return {"shared_tokens": tokens, "reusable_tokens": tokens}


def expected_cached_tokens(requests: Iterable[PlannedRequest], block_size: int) -> int:
    """Prompt tokens that a prefix cache which holds all that is reusable serves.

    Whole blocks only, and never a prompt's last token, which the engine computes in order to answer.

    Source: vLLM's `get_computed_blocks` (the longest cache hit is the prompt's length − 1).
    """
    return sum(min(x.reusable_tokens, x.prompt_tokens - 1) // block_size * block_size for x in requests if x.reusable_tokens)


def arrivals(workload: Workload, rate: float, seed: str) -> list[float]:
    """Moments at which an open loop's requests are due (s since the run's start), rising; the first is at 0.

    The gaps are drawn at a rate of one, stretched so that exactly as many arrive as the rate promises, and their sum is carried
    through the inverse of the expected number of arrivals: a step bends the pattern without another draw. Unstretched, a
    Poisson stream of 100 requests offers 10 % more or less than its level, and a curve drawn over levels bends by chance.

    Args:
        workload: an open loop, for `num_requests` or `duration_s`. rate: requests a second. seed: text.

    Source: a Poisson process given its number of arrivals is that many uniform moments in order, which is what exponential gaps
    divided by the moment of the arrival after the last one are (Devroye, Non-Uniform Random Variate Generation, V.2). Time rescaling
    of a point process (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 7.4). Gamma gaps of shape
    `burstiness` and mean 1, as in vLLM's benchmark. Python promises the same `random()` for a seed in every version, and no such
    thing of `gammavariate`: a test holds its draws.
    """
    expected = workload.sent(rate)
    draw, gap = random.Random(seed), GAPS[workload.arrival].draw  # noqa: S311 - a schedule, no secret
    gaps = (gap(draw, workload.burstiness or 1.0) for _ in range(max(1, round(expected))))
    *drawn, end = accumulate(gaps, initial=0.0)
    stretch = expected / end
    return [_moment(workload, rate, number * stretch) for number in drawn]


def _moment(workload: Workload, rate: float, number: float) -> float:
    """The moment by which `number` arrivals are expected."""
    if step := workload.step:
        before, during = rate * step.start_s, rate * step.factor * step.duration_s
        if number <= before:
            return number / rate
        if number <= before + during:
            return step.start_s + (number - before) / (rate * step.factor)
        return step.start_s + step.duration_s + (number - before - during) / rate
    return number / rate


def _mixture(workload: Workload, level: float, seed: str) -> Iterable[tuple[str | None, float | None]]:
    """The class of each request, and its moment (s since the run's start; None where an end lets it go), in the order of leaving.

    Each class has exactly its share of the requests, to the nearest whole number: drawn one by one, their numbers would differ from
    run to run, and the load with them where one class weighs more than another. The order is that of a shuffled deck, so that classes
    come in clusters as they do by chance; one more class leaves the order of the others as it is.

    Source: of a Poisson process with a given number of arrivals, marks in a shuffled order are as independent processes with given
    numbers of arrivals (Kingman, Poisson Processes, 1993, 5).
    """
    moments: list[float | None]
    if workload.axis == RATE:
        moments = [*arrivals(workload, level, f"{seed}/arrivals")]
    else:
        moments = [0.0 if workload.arrival == "burst" else None] * int(workload.sent(level))
    cards: list[tuple[float, str]] = []
    for name, number in dealt(len(moments), {name: each.share for name, each in workload.classes.items()}).items():
        draw = random.Random(f"{seed}/order/{name}")  # noqa: S311 - a schedule, no secret
        cards += [(draw.random(), name) for _ in range(number)]
    names = [name for _, name in sorted(cards)] if cards else [None] * len(moments)
    return zip(names, moments, strict=True)
