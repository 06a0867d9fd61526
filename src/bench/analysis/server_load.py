"""The server's resources at one load: requests that run and wait, the time of a step, and the share that prompts take of it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

__all__ = ["ServerLoad", "engines_of", "mean_of", "server_load"]

_MOST = 0.95  # largest prefill share of step time that is reported; tuned: benchmarks.capacity
_NEAR = 0.5  # lowest load, as a share, whose prefill time is taken over; tuned: benchmarks.capacity


@dataclass(frozen=True)
class ServerLoad:
    """What the runs of a level show, in the mean; None where it is not known.

    Attributes:
        running, running_high, queued_share, usage, usage_queued, preempted (a request): of the server's gauges and counters.
        step_s: a step without its prompts; prefill_share: of the steps' time, that prompts take (0–1). gap_s: the mean time between
        tokens. service_s: of a request once it is admitted. rps: requests/s.
    """

    load: float
    running: float | None
    running_high: float | None
    queued_share: float | None
    usage: float | None
    usage_queued: float | None
    preempted: float | None
    step_s: float | None
    gap_s: float | None
    service_s: float | None
    prefill_share: float | None
    rps: float | None


def server_load(runs: pl.DataFrame, curve: pl.DataFrame) -> ServerLoad:
    """Args: curve: the runs of all levels; the lowest is where a prompt waits for the fewest others."""
    preempted, requests = mean_of(runs, "preemptions"), mean_of(runs, "requests")
    gap, output, rps = (
        mean_of(runs, "steady_tpot_mean_s"),
        mean_of(runs, "output_tokens"),
        mean_of(runs, "steady_requests_per_s"),
    )
    alone = curve.filter(pl.col("level") == pl.col("level").min())
    share = _prefill_share(runs, alone, gap, rps)
    if share is not None and rps:
        for lower in _lower(curve, runs["level"][0]):
            rate = mean_of(lower, "steady_requests_per_s")
            there = _prefill_share(lower, alone, mean_of(lower, "steady_tpot_mean_s"), rate)
            share = max(share, min(_MOST, there * rps / rate) if there and rate else 0.0)
    prompt = None if share is None or not rps else share / rps
    return ServerLoad(
        load=float(runs["level"][0]),
        running=mean_of(runs, "steady_running"),
        running_high=mean_of(runs, "steady_running_high"),
        queued_share=mean_of(runs, "steady_queued_share"),
        usage=mean_of(runs, "steady_kv_usage"),
        usage_queued=mean_of(runs, "steady_kv_usage_queued"),
        preempted=None if preempted is None or not requests else preempted / requests,
        step_s=None if gap is None or share is None else gap * (1 - share),
        gap_s=gap,
        service_s=None if gap is None or output is None or prompt is None else gap * (output - 1) + prompt,
        prefill_share=share,
        rps=rps,
    )


def _lower(curve: pl.DataFrame, level: float) -> list[pl.DataFrame]:
    """The runs of each level from half of `level` up to it: a prompt's time shows there where chunks of prompts fill every step."""
    near = curve.filter((pl.col("level") >= _NEAR * level) & (pl.col("level") < level))
    return near.partition_by("level", maintain_order=True)


def _prefill_share(runs: pl.DataFrame, alone: pl.DataFrame, gap: float | None, rps: float | None) -> float | None:
    """Share of the engine's steps that prompts take (0–1): the larger of two estimates, each of which can be too low.

    That of the steps (docs/reference/metrics.md), which is blind where chunks of prompts fill each step. And the lower of two
    bounds: requests/s × the time of a prompt at the lowest level, and by what the mean gap between tokens exceeds a short one (P10).
    """
    if engines_of(runs) > 1:
        return None  # their steps interleave
    known = [share for share in (mean_of(runs, "steady_prefill_share"),) if share is not None]
    short, each, low = (
        mean_of(runs, "steady_itl_p10_s"),
        mean_of(alone, "steady_ttft_per_token_p10_s"),
        mean_of(alone, "steady_itl_p10_s"),
    )
    if None not in (short, each, low, gap, rps) and gap:
        prompt = max(0.0, (each or 0.0) * (mean_of(runs, "prompt_tokens") or 0.0) - (low or 0.0))
        known.append(min(_MOST, (rps or 0.0) * prompt, max(0.0, 1 - (short or 0.0) / gap)))
    return max(known, default=None)


def engines_of(runs: pl.DataFrame) -> int:
    """Engines behind the endpoint, each with its own sequences and KV cache."""
    return int(runs["engines"][0] or 1)


def mean_of(runs: pl.DataFrame, column: str) -> float | None:
    return runs[column].mean()  # type: ignore[return-value]
