"""The time of a replayed server's next steps, by the requests that it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.predict.passes import Neighbours, cells, context_read, passes_of, prompt_read
from bench.predict.state import Limits, Request, State
from bench.predict.step_time import StepTime


class StepCost:
    """The cost of steps that are computed as a whole."""

    def __init__(self, limits: Limits, step: StepTime) -> None:
        self._limits, self._step = limits, step

    def take(self, request: Request) -> None:
        """Note a request that is admitted."""

    def free(self, requests: Iterable[Request]) -> None:
        """Note requests that one step ended."""

    def seconds(self, state: State, chunks: Sequence[tuple[Request, int]] = ()) -> float:
        """Time of one step (s). Args: chunks: of prompts, their tokens."""
        step = self._step
        if step.bare == step.prompts:
            return step.bare * self._seconds(state, chunks)
        bare = self._seconds(state, ())
        return step.bare * bare + step.prompts * (self._seconds(state, chunks) - bare)

    def _seconds(self, state: State, chunks: Sequence[tuple[Request, int]]) -> float:
        firsts, prefill, attended = self._of(chunks)
        return self._step.seconds(
            decodes=state.decodes, firsts=firsts, prefill=prefill, context=state.context, attended=attended
        )

    def _of(self, chunks: Sequence[tuple[Request, int]]) -> tuple[int, int, float]:
        """Prompts that end with these chunks, tokens of all of them, and what these read."""
        if not chunks:
            return 0, 0, 0.0
        return (
            sum(tokens == request.left for request, tokens in chunks),
            sum(tokens for _, tokens in chunks),
            sum(prompt_read(self._limits, request.start, tokens) for request, tokens in chunks),
        )

    def slope(self, state: State) -> float:
        """What each further step without prompts takes more than the one before (s)."""
        return self._step.bare * self._step.context_s * state.decodes

    def alike(self, state: State, steps: int) -> int:  # noqa: ARG002 - slots need it
        """How many of the next steps without prompts `seconds` and `slope` hold for."""
        return steps


class _SlotCost(StepCost):
    """The cost of slots' steps, which fall into passes."""

    def __init__(self, limits: Limits, step: StepTime) -> None:
        super().__init__(limits, step)
        self._neighbours = Neighbours(limits)

    def take(self, request: Request) -> None:
        self._neighbours.take(request.plan.index, alike=request.start > 0)

    def free(self, requests: Iterable[Request]) -> None:
        self._neighbours.free([request.plan.index for request in requests])

    def _seconds(self, state: State, chunks: Sequence[tuple[Request, int]]) -> float:
        firsts, prefill, attended = self._of(chunks)
        held = _held(state)
        decoding = self._neighbours.beside(held)
        prompts = self._neighbours.beside(request.plan.index for request, _ in chunks)
        beside = None if decoding is None or prompts is None else (decoding, prompts)
        return self._step.seconds(
            decodes=state.decodes,
            firsts=firsts,
            prefill=prefill,
            context=context_read(self._limits, held, decoding),
            attended=attended,
            passes=passes_of(self._limits, state.decodes, len(chunks), prefill, beside),
            in_flight=len(state.running) + len(state.waiting),
        )

    def slope(self, state: State) -> float:  # noqa: ARG002 - a step reads whole cells
        return 0.0

    def alike(self, state: State, steps: int) -> int:
        return min(steps, *(cells(held + 1) - held for held in _held(state).values()))


def cost_of(limits: Limits, step: StepTime) -> StepCost:
    """The cost of steps with these limits and step times."""
    return StepCost(limits, step) if limits.pass_tokens is None else _SlotCost(limits, step)


def _held(state: State) -> dict[int, int]:
    """Tokens that each decode holds."""
    return {index: request.base + state.steps for index, request in state.running.items() if not request.left}
