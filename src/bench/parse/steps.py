"""The share of an engine's steps that goes into prompts, from the moments at which tokens came. See docs/reference/metrics.md."""

from __future__ import annotations

import numpy as np
import polars as pl

__all__ = ["APART", "SHORT", "step_figures"]

APART = 0.25  # gap between stamps of two steps ÷ the shortest gaps between a request's tokens; convention
SHORT = 0.1  # quantile of the gaps between a request's tokens that counts as the shortest; convention
_FEWEST = 30  # fewest steps behind three coefficients; convention
_LONGEST = 20.0  # longest step ÷ the median one, beyond which it is a pause; convention


def step_figures(ok: pl.DataFrame, begin: float, end: float) -> dict[str, float | None]:
    """The engine's steps between two moments, and the share of their time that prompts take.

    Tokens of one step come together: stamps of all requests, in order, fall apart into groups. The time from one group to the next,
    where some request is in both, is that of a step; the prompts whose first token is in the second were computed in it. The time of
    a step is a straight line in its prompt tokens and in the requests that got a token (least squares, no slope below 0); what is due
    to prompts is the slope × their tokens. A prompt that is computed in chunks over several steps counts for the last of them; where
    chunks fill every step, all steps are alike, and the line shows nothing about prompts.

    Args:
        ok: answered requests: `token_times_s`, `prompt_asked`. begin, end: s since the run's start.

    Returns:
        `steady_steps` (number), `steady_step_s` (mean time of a step without its prompts, s) and `steady_prefill_share` (of the steps'
        time, 0–1); null where fewer than 30 steps are seen.
    """
    nothing: dict[str, float | None] = {"steady_steps": None, "steady_step_s": None, "steady_prefill_share": None}
    stamps = (
        ok.filter(pl.col("token_times_s").list.len() > 1)
        .with_row_index("request")
        .select("request", "prompt_asked", time="token_times_s", first=pl.col("token_times_s").list.first())
        .explode("time")
        .filter(pl.col("time").is_between(begin, end))
        .sort("time")
    )
    if stamps.height < _FEWEST:
        return nothing
    gaps = stamps.select(gap=pl.col("time").diff().over("request"))["gap"].drop_nulls()
    short = gaps.quantile(SHORT)
    if not short:
        return nothing
    groups = (
        stamps.with_columns(step=(pl.col("time").diff().fill_null(0.0) > APART * short).cum_sum())
        .with_columns(before=pl.col("step").shift().over("request"))
        .group_by("step", maintain_order=True)
        .agg(
            at=pl.col("time").max(),
            requests=pl.len(),
            goes_on=(pl.col("before") == pl.col("step") - 1).any(),
            prompts=pl.col("prompt_asked").filter(pl.col("time") == pl.col("first")).sum(),
        )
        .with_columns(took=pl.col("at").diff())
        .filter("goes_on")
    )
    steps = groups.filter(pl.col("took") <= _LONGEST * pl.col("took").median())
    if steps.height < _FEWEST:
        return nothing
    took, prompts = steps["took"].to_numpy(), steps["prompts"].to_numpy().astype(float)
    slope = _slope(took, prompts, steps["requests"].to_numpy().astype(float))
    share = float(np.clip(slope * prompts.sum() / took.sum(), 0.0, 1.0))
    return {
        "steady_steps": float(steps.height),
        "steady_step_s": float(took.mean()) * (1 - share),
        "steady_prefill_share": share,
    }


def _slope(took: np.ndarray, prompts: np.ndarray, requests: np.ndarray) -> float:
    """Seconds a prompt token: of the line with requests beside it, or without, where more requests would make steps shorter."""
    if not prompts.any():
        return 0.0
    ones = np.ones_like(took)
    (_, slope, of_requests), *_ = np.linalg.lstsq(np.column_stack([ones, prompts, requests]), took, rcond=None)
    if of_requests < 0:
        (_, slope), *_ = np.linalg.lstsq(np.column_stack([ones, prompts]), took, rcond=None)
    return max(0.0, float(slope))
