"""What holds requests back while they wait: the bound on sequences or the KV cache, and what lifting either would bring."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from bench.analysis.evidence import Bottleneck, Evidence
from bench.analysis.server_load import ServerLoad, engines_of, mean_of

__all__ = ["APART", "PREEMPTED", "admission", "gains", "has_slots", "names", "no_room", "pinned", "request_bytes", "slots_of"]

# least share of scrapes with waiting requests where admission is the limit: enough to miss a percentile; tuned: benchmarks.capacity,
# seed 5
_QUEUED = 0.1
_STANDS = 0.5  # share of scrapes with waiting requests that counts as a standing queue; tuned: benchmarks.capacity, seed 5
_ALIKE = 1.05  # ratio below which two gains count as equal; tuned: benchmarks.capacity, seed 5
PREEMPTED = 0.02  # preemptions a request above which they are the cause; tuned: benchmarks.capacity, seed 5
# least ratio of running requests, or rates, between two loads that make a line; tuned: benchmarks.capacity, seed 5
APART = 1.2
_LITTLE = 0.3  # prefill share below which prefill cannot be what caps concurrency; tuned: benchmarks.capacity, seed 5
_PINNED = 0.02  # relative range of running requests below which an unknown limit holds them; tuned: benchmarks.capacity, seed 5
_FITS = 1.5  # free KV tokens ÷ a prompt's below which no prompt is admitted; tuned: benchmarks.capacity, seed 5
# factor meant by "more KV memory"; measured: docs/explanation/decisions.md: twice as much ties with faster decoding on every KV-bound
# server
_MORE_KV = 4.0


def admission(runs: pl.DataFrame, there: ServerLoad, alone: ServerLoad) -> tuple[Bottleneck | None, Bottleneck | None]:
    """The limit on which requests wait, where lifting it would raise the rate more than faster prompts or steps would.

    Returns:
        That limit, or None; and where speed would raise the rate more, the limit on which requests wait all the same, or None.
    """
    if (there.queued_share or 0.0) < _QUEUED or not there.running:
        return None, None
    slots, left = slots_of(runs), no_room(runs, there)
    if has_slots(runs):  # a slot reserves a batch position and its KV memory, so a full cache is not a separate limit
        there, left = replace(there, usage=None), None
    all_run = slots is not None and (there.running_high or 0.0) >= slots - 0.5
    gain = gains(there, alone, slots)
    fast, room = max(gain["prefill"], gain["decode"]), max(gain["sequences"], gain["kv"])
    waiting = math.ceil(mean_of(runs, "steady_waiting") or 0.0)
    here = Bottleneck(runs=names(runs), level=runs["level"][0], waiting=waiting, room=room)
    if left is not None and not all_run:
        free, prompt = left
        full = replace(
            here, evidence="held_by_cache", free_tokens=free, prompt_tokens=prompt, request_bytes=request_bytes(runs)
        )
        full = replace(full, gain=gain["kv"])
        return (None, full) if _ALIKE * gain["kv"] < fast else (full, None)
    if all_run or (slots is None and pinned(there)):
        evidence: Evidence = "pinned" if slots is None else "held_by_slots"
        bound = replace(here, evidence=evidence, slots=slots, running=there.running_high, gain=gain["sequences"])
        return (None, bound) if _ALIKE * gain["sequences"] < fast else (bound, None)
    if slots is not None and (there.queued_share or 0.0) >= _STANDS:
        return replace(here, evidence="full_steps"), None
    return None, None


def slots_of(runs: pl.DataFrame) -> int | None:
    """Sequences that may run in all engines together; None where it is not known."""
    slots = runs["max_num_seqs"][0]
    return None if slots is None else int(slots) * engines_of(runs)


def has_slots(runs: pl.DataFrame) -> bool:
    """Whether each request holds a slot of the KV cache: `max_num_seqs` is then the number of slots."""
    return bool(runs["kv_slots"].any())


def no_room(runs: pl.DataFrame, there: ServerLoad) -> tuple[float | None, float | None] | None:
    """Free tokens of a KV cache that admits no more, and the tokens of a prompt, each None where not known; None where it has room."""
    tokens, prompt = mean_of(runs, "kv_tokens"), mean_of(runs, "prompt_tokens")
    # The usage is that of the fullest engine, which has its part of the tokens.
    free = None if tokens is None or there.usage_queued is None else (1 - there.usage_queued) * tokens / engines_of(runs)
    if free is not None and prompt is not None and free < _FITS * prompt:
        return free, prompt
    full = (there.preempted or 0.0) > PREEMPTED or runs["saturated"].fill_null(False).any()
    return (None, None) if full else None


def pinned(there: ServerLoad) -> bool:
    """Whether an unknown limit caps the requests that run, as `max_num_seqs` would."""
    running, high = there.running or 0.0, there.running_high or 0.0
    return (there.prefill_share or 0.0) < _LITTLE and high <= (1 + _PINNED) * running + 0.5


def gains(there: ServerLoad, alone: ServerLoad, slots: int | None = None) -> dict[str, float]:
    """Factor by which the rate would rise, by cause: more sequences, four times the KV memory, prompts or decode steps twice as fast.

    Service time is a straight line over the requests that run, through the lowest level and this one; requests/s are the requests that
    run ÷ service time (Little, A proof for the queuing formula L = λW, 1961).
    """
    prefill = there.prefill_share or 0.0
    gains = {"prefill": 1 / (1 - prefill / 2), "decode": 1 / (1 - (1 - prefill) / 2)}
    # Each prompt takes its time, however many requests run.
    most = {"sequences": 1 / max(prefill, 1e-3), "kv": _MORE_KV / (1 + (_MORE_KV - 1) * prefill)}
    n, n0, s, s0 = there.running, alone.running, there.service_s, alone.service_s
    if n is None or n0 is None or s is None or s0 is None or n < APART * n0:
        return {**gains, **most}
    slope = max(1e-9, (s - s0) / (n - n0))
    fixed = max(0.0, s - slope * n)
    # With one limit lifted, the other is next: the KV cache, or `max_num_seqs`.
    held = math.inf if not there.usage else max(1.0, 1 / there.usage)
    run = _MORE_KV if slots is None else max(1.0, min(_MORE_KV, slots / n))
    line = {"sequences": s / (fixed / held + slope * n), "kv": run * s / (fixed + run * slope * n)}
    return {**gains, **{cause: min(most[cause], gain) for cause, gain in line.items()}}


def names(runs: pl.DataFrame) -> tuple[str, ...]:
    return tuple(runs["run"].to_list())


def request_bytes(runs: pl.DataFrame) -> float | None:
    """KV memory of one more request (bytes); None where those of a token are not known."""
    each = mean_of(runs, "kv_bytes_per_token")
    tokens = (mean_of(runs, "prompt_tokens") or 0.0) + (mean_of(runs, "output_tokens") or 0.0)
    return None if each is None else each * tokens
