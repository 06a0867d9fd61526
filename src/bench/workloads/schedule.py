"""The requests of a run: when each is due, how long it is, and which other it follows. Nothing here knows a server."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from bench.axes import RATE
from bench.errors import BenchError
from bench.fields import MOST_REQUESTS
from bench.workloads.classes import dealt
from bench.workloads.gaps import GAPS
from bench.workloads.lengths import LengthDistribution, Lengths
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
    sources = {name: _Source(part, seed, name) for name, part in workload.parts.items()}
    shares = (
        _begun(int(level), f"{seed}/begun") if workload.arrival == "closed" and not (workload.turns or workload.natural) else []
    )
    turns = _Turns(workload, seed) if workload.turns else None
    requests: list[PlannedRequest] = []
    for conversation, (name, moment) in enumerate(mixture(workload, level, seed)):
        source = sources[name]
        share = shares[conversation] if conversation < len(shares) else 1.0
        requests.append(source.request(len(requests), conversation, moment, share))
        if turns and source.outputs:
            requests += turns.after(requests[-1], source.outputs)
    return requests


class _Source:
    def __init__(self, workload: Workload, seed: str, request_class: str | None) -> None:
        own = seed if request_class is None else f"{seed}/class/{request_class}"
        self._workload, self._class, self._count = workload, request_class, 0
        self._prompts = _draws(workload.prompt_tokens, f"{own}/prompts") if workload.prompts.sized else None
        self.outputs = _draws(workload.output_tokens, f"{own}/outputs") if workload.output_tokens else None

    def request(self, index: int, conversation: int, moment: float | None, share: float) -> PlannedRequest:
        """Args: share: of its output that is left (0–1)."""
        prompt, output = self._prompts.draw() if self._prompts else None, self.outputs.draw() if self.outputs else 0
        if share < 1 and self.outputs:
            output = max(1, round(output * share))
        drawn = self._count
        self._count += 1
        return PlannedRequest(
            index,
            conversation,
            prompt,
            output,
            moment,
            messages=(prompt,) if self._workload.turns and prompt else (),
            **_shared(self._workload, prompt or 0),
            request_class=self._class,
            drawn=drawn,
        )


class _Turns:
    def __init__(self, workload: Workload, seed: str) -> None:
        assert workload.turns is not None
        self._turns = workload.turns
        self._added = Lengths(self._turns.new_tokens, f"{seed}/turns") if self._turns.new_tokens else None

    def after(self, first: PlannedRequest, outputs: Lengths) -> list[PlannedRequest]:
        found, before = [], first
        for turn in range(1, self._turns.count):
            before = replace(
                before,
                index=before.index + 1,
                turn=turn,
                output_tokens=outputs.draw(),
                due_s=None,
                after=(before.index,),
                think_s=self._turns.think_s,
                **self._prompt(before),
            )
            found.append(before)
        return found

    def _prompt(self, before: PlannedRequest) -> dict[str, Any]:
        if self._added is None:
            return {}
        added = self._added.draw()
        messages = (*before.messages, before.output_tokens, added)
        return {"prompt_asked": sum(messages), "messages": messages, "reusable_tokens": before.prompt_tokens}


def _replayed(workload: Workload, level: float) -> list[PlannedRequest]:
    """The requests of a trace, `level` times as fast."""
    planned: list[PlannedRequest] = []
    earliest: list[float] = []
    for i, x in enumerate(workload.traced):
        due_s, think_s = None if x.arrival_s is None else x.arrival_s / level, x.after_s / level
        earliest.append(max((earliest[before] + think_s for before in x.after), default=due_s or 0.0))
        planned.append(
            PlannedRequest(
                i,
                x.root,
                x.prompt_tokens,
                x.output_tokens,
                due_s,
                x.after,
                think_s,
                **_shared(workload, x.prompt_tokens),
                blocks=x.blocks,
                block_tokens=x.block_tokens,
            )
        )
    if workload.cache != "unique":
        return planned
    order = sorted(planned, key=lambda request: earliest[request.index])
    known = dict(zip((request.index for request in order), _reusable(order), strict=True))
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


def at_least_s(planned: Sequence[PlannedRequest]) -> float:
    """Time until the last request leaves, however fast the answers are (s): moments, and times to think."""
    earliest: list[float] = []
    for request in planned:
        earliest.append(max((earliest[before] + request.think_s for before in request.after), default=request.due_s or 0.0))
    return max(earliest, default=0.0)


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


def _draws(length: LengthDistribution | None, seed: str) -> Lengths:
    assert length is not None  # a configuration without it is refused
    return Lengths(length, seed)


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
    count = max(1, round(expected))
    drawn = list(islice(_unit_arrivals(workload, seed), count + 1))
    stretch = expected / drawn[count]
    return [_moment(workload, rate, number * stretch) for number in drawn[:count]]


def _unit_arrivals(workload: Workload, seed: str) -> Iterator[float]:
    """Arrivals of the process at a rate of one; the first at 0."""
    draw, gap = random.Random(seed), GAPS[workload.arrival].draw  # noqa: S311 - a schedule, no secret
    total = 0.0
    while True:
        yield total
        total += gap(draw, workload.burstiness or 1.0)


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


def mixture(workload: Workload, level: float, seed: str) -> list[tuple[str | None, float | None]]:
    """The class of each request, and its moment (s since the run's start; None where an end lets it go), in the order of leaving.

    Each class has exactly its share of the requests, to the nearest whole number: drawn one by one, their numbers would differ from
    run to run, and the load with them where one class weighs more than another. The order is that of a shuffled deck, so that classes
    come in clusters as they do by chance.

    Args:
        level: requests in flight, or requests a second. seed: text.

    Source: of a Poisson process with a given number of arrivals, marks in a shuffled order are as independent processes with given
    numbers of arrivals (Kingman, Poisson Processes, 1993, 5).
    """
    shares = {name: each.share for name, each in workload.classes.items()}
    moments = _moments(workload, level, f"{seed}/arrivals")
    names = _deck(dealt(len(moments), shares), seed) if shares else [None] * len(moments)
    return list(zip(names, moments, strict=True))


def _moments(workload: Workload, level: float, seed: str) -> list[float | None]:
    if workload.axis == RATE:
        return list(arrivals(workload, level, seed))
    if workload.arrival == "burst":
        return [0.0] * int(level)
    assert isinstance(workload.num_requests, int)  # the plan has put a number in place of `auto`
    return [None] * workload.num_requests


def _deck(counts: dict[str, int], seed: str) -> list[str | None]:
    """The names, each as often as asked for, in an order drawn by chance: one more class leaves that of the others as it is."""
    cards = []
    for name, count in counts.items():
        draw = random.Random(f"{seed}/order/{name}")  # noqa: S311 - a schedule, no secret
        cards += [(draw.random(), name) for _ in range(count)]
    return [name for _, name in sorted(cards)]
