"""Requests in flight, as the client and as the server counted them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.parse.server import FEWEST_SCRAPES, gauges, lag_s

_FEWEST = {"mean": FEWEST_SCRAPES, "median": 10}  # fewest scrapes that support each; convention
_STEP_S = 0.5  # time after which two answers come from different steps of the engine (s); tuned: benchmarks.verdicts
_LAGGING_STEPS = 40  # decode steps between two updates of SGLang's gauges; source: SGLang's `decode_log_interval`
_Times = npt.NDArray[np.float64]


def in_flight_figures(requests: pl.DataFrame, telemetry: pl.DataFrame, window: tuple[float, float]) -> dict[str, float | None]:
    """How many requests were in flight by both accounts, and how many of the client's the server did not have.

    A server's gauges are those of its last step, so a request that the client has just sent is missing from them, and a peak that
    falls between two steps or two scrapes is never seen. What cannot be missing is a request that was in flight at the client all
    the time from two steps before a scrape to that scrape: so many are *held* by the client then, and the server has as many,
    running or waiting, unless something between the two holds them back. That a step was made shows in tokens that arrive; steps
    count as one where they are less than half a second apart.

    Args:
        requests: `sent_s`, `end_s` and `token_times_s` (s). telemetry: the samples of the engine's endpoint. window: of the load (s).

    Returns:
        `client_in_flight_mean`, `server_in_flight_mean`: requests, over the scrapes during the load.
        `held_back_requests`, `held_back_share`: medians of held − server's, in requests and as a share of those held, over the
        scrapes at which the client held two requests or more (a single one proves nothing).
        Null where fewer than five scrapes support a mean, or fewer than ten a median; and all of the server's where its gauges may be
        older than a step.
    """
    both = gauges(telemetry.clear() if lag_s(telemetry) else telemetry).filter(
        pl.col("gauge").is_in(["running", "waiting"]) & pl.col("elapsed_s").is_between(*window)
    )
    # One gauge alone does not give the sum.
    sums = both.group_by("elapsed_s").agg(pl.col("value").sum(), gauges=pl.len())
    counted = sums.filter(pl.col("gauges") == 2).sort("elapsed_s")
    at, server = counted["elapsed_s"].to_numpy(), counted["value"].to_numpy()
    moments, counts = _course(requests)
    client = counts[np.searchsorted(moments, at, side="right")]
    tokens = np.sort(requests["token_times_s"].explode().drop_nulls().to_numpy().astype(np.float64))
    held = _held(at, moments, counts, tokens, _step(telemetry, requests))
    several = held >= 2
    missing = (held - server)[several]
    return {
        "client_in_flight_mean": _over(client, "mean"),
        "server_in_flight_mean": _over(server, "mean"),
        "held_back_requests": _over(missing, "median"),
        "held_back_share": _over(missing / held[several], "median"),
    }


def _over(values: _Times, summary: str) -> float | None:
    return float(getattr(np, summary)(values)) if len(values) >= _FEWEST[summary] else None


def _course(requests: pl.DataFrame) -> tuple[_Times, _Times]:
    """When the number in flight changed (s), and the number before the first change and after each. Requests never sent count as 0."""
    known = requests.filter(pl.col("sent_s").is_not_null() & pl.col("end_s").is_not_null())
    sent, ends = np.sort(known["sent_s"].to_numpy()), np.sort(known["end_s"].to_numpy())
    moments = np.sort(np.concatenate([sent, ends]))
    counts = np.searchsorted(sent, moments, side="right") - np.searchsorted(ends, moments, side="right")
    return moments, np.concatenate([[0.0], counts])


def _held(at: _Times, moments: _Times, counts: _Times, tokens: _Times, step_s: float) -> _Times:
    """Of each moment in `at`, the fewest requests in flight since two steps before it; 0 where no two steps came before."""
    since = np.full(len(at), -np.inf)
    if len(tokens):
        earlier = np.concatenate([[-np.inf], tokens])
        since = at
        for _ in range(2):
            since = earlier[np.searchsorted(tokens, since - step_s, side="right")]
    first = np.searchsorted(moments, since, side="right")
    last = np.searchsorted(moments, at, side="right")
    return np.array([counts[i : j + 1].min() for i, j in zip(first, last, strict=True)], dtype=np.float64)


def _step(telemetry: pl.DataFrame, requests: pl.DataFrame) -> float:
    """How far apart two tokens are at least for the server's gauges to have been renewed between them (s)."""
    if not telemetry["name"].str.contains(r"^(?:ray_)?sglang").any():
        return _STEP_S
    gaps = requests.select(pl.col("token_times_s").list.diff(null_behavior="drop").explode())["token_times_s"]
    return max(_STEP_S, _LAGGING_STEPS * float(gaps.median() or 0.0))  # type: ignore[arg-type]
