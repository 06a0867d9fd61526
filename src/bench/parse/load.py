"""The load of a run: what was asked, whether that is what the server got, what was in flight as both counted it, and how long the
server took to come back after a step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.axes import AXES
from bench.parse.server import FEWEST_SCRAPES, gauge_table, gauges
from bench.parse.steady import is_natural, whole_requests
from bench.runs.latencies import parts_of
from bench.runs.run import RunRecord
from bench.servers.metrics import find_catalogue
from bench.statistics.percentiles import percentile
from bench.workloads.endpoints import ENDPOINTS

# requests of a recovered window; derived: one of a server that is as before passes with a probability of 0.999 (`recovery`)
_WINDOW = 9


def recovery(requests: pl.DataFrame, *, step_start_s: float, step_end_s: float) -> tuple[bool | None, float | None]:
    """Whether TTFT came back to what it was before a step in the load, and how long after the step's end it did (s).

    Definition: docs/reference/metrics.md, "Recovery after a step". The median of nine passes over a few slow requests, and the P90
    keeps noise out: of a server that is as before the step, a window passes with a probability of 0.999 (at most 4 of 9 above a value
    that one of ten exceeds). Both are None where fewer than nine requests stand for it before or after the step.

    Args:
        requests: `scheduled_s` (s), `outcome`, `ttft_s` (s, null without a token).
        step_start_s, step_end_s: between which moments the load was higher (s).
    """
    ok, due = pl.col("outcome") == "ok", pl.col("scheduled_s")
    before = requests.filter((due < step_start_s) & ok)["ttft_s"].drop_nulls()
    after = (
        requests.filter(due >= step_end_s)
        .sort(due)
        .select(due, ttft_s=pl.when(ok).then("ttft_s").otherwise(float("inf")))
        .drop_nulls("ttft_s")
    )
    if min(len(before), len(after)) < _WINDOW:
        return None, None
    # Polars puts a window's median at its last row; the shift brings it to its first.
    back = after.filter(pl.col("ttft_s").rolling_median(_WINDOW).shift(1 - _WINDOW) <= percentile(before, 0.9))["scheduled_s"]
    return (True, float(back[0]) - step_end_s) if len(back) else (False, None)


_FEWEST = {"mean": FEWEST_SCRAPES, "median": 10}  # fewest scrapes that support each; convention
_STEP_S = 0.5  # time after which two answers come from different steps of the engine (s); tuned: benchmarks.verdicts
_LAGGING_STEPS = 40  # decode steps between two updates of SGLang's gauges; source: SGLang's `decode_log_interval`
_Times = npt.NDArray[np.float64]


def in_flight_figures(requests: pl.DataFrame, telemetry: pl.DataFrame, window: tuple[float, float]) -> dict[str, float | None]:
    """How many requests were in flight by both accounts, and how many of the client's the server did not have.

    A server's gauges are those of its last step. What cannot be missing from them is a request that was in flight at the client all
    the time from two steps before a scrape to that scrape: so many are *held* by the client, and the server has as many, running or
    waiting, unless something between the two holds them back. That a step was made shows in tokens that arrive; steps count as one
    where they are less than half a second apart.

    Args:
        requests: `sent_s`, `end_s` and `token_times_s` (s). telemetry: the samples of the engine's endpoint. window: of the load (s).

    Returns:
        `client_in_flight_mean`, `server_in_flight_mean`: requests, over the scrapes during the load. `held_back_requests`,
        `held_back_share`: medians of held − server's, in requests and as a share of those held (0–1), over the scrapes at which the
        client held two requests or more (a single one proves nothing). Null where fewer than five scrapes support a mean, or fewer
        than ten a median, and of gauges that come late.
    """
    late = find_catalogue(telemetry["name"].unique().to_list()).late
    both = gauges(telemetry.clear() if late else telemetry).filter(
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
    """When the number in flight changed (s), and the number before the first change and after each. Requests never sent count as 0, and
    one that ends at the moment another is sent makes room for it.
    """
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


def asked_figures(definition: Mapping[str, Any], requests: pl.DataFrame) -> dict[str, Any]:
    """What the run was to be, as plain columns: lengths as the mean of what was sent, whatever they were drawn from; without the
    requests that a closed loop begins with, which are on their way (`schedule`).

    Args:
        requests: `prompt_asked`, `output_asked` (tokens).
    """
    plain = {key: value for key, value in definition.items() if not isinstance(value, dict | list)}
    parts, classes = list(parts_of(definition)), definition.get("classes")
    # What a workload says of its classes, each of them may say otherwise.
    lengths = {key: None if classes else definition.get(f"{key}_tokens") for key in ("prompt", "output")}
    axis, level = definition["axis"], definition["level"]
    return {
        **plain,
        "family": definition.get("family", definition["workload"]),
        "stream": definition.get("stream", True),
        "endpoint": definition.get("endpoint", "completions"),
        "cache": _of_all(part.get("cache", "unique") for part in parts),
        "answers": "natural" if is_natural(definition) else "exact",
        "body": json.dumps(definition["body"], sort_keys=True) if definition.get("body") else None,
        "work": ENDPOINTS[definition.get("endpoint", "completions")].work.name,
        "prompts": _of_all((part.get("prompts") or {"source": "random"})["source"] for part in parts),
        "classes": json.dumps(classes) if classes else None,
        "turns": (definition.get("turns") or {"count": 1})["count"],
        **{f"{key}_fixed": x.get("tokens") if isinstance(x, dict) else x for key, x in lengths.items()},
        "prompt_tokens": requests["prompt_asked"].mean(),
        "prompt_tokens_p90": percentile(requests["prompt_asked"], 0.9),
        "output_tokens": whole_requests(definition, requests)["output_asked"].mean(),
        "num_requests": len(requests),
        "level": float(level),
        **{name: (int(level) if x.held else float(level)) if name == axis else None for name, x in AXES.items()},
    }


def _of_all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def load_figures(
    record: RunRecord, requests: pl.DataFrame, telemetry: pl.DataFrame, counters: Mapping[str, Any], window: tuple[float, float]
) -> dict[str, Any]:
    """The load that came about.

    Args:
        requests, telemetry: the tidy tables. counters: the rises of `prefix_hits` and `prefix_queries`.
        window: when the load began and ended (s).

    Returns:
        Columns of the summary's sections of load, prefix cache and recovery: rates (requests/s), requests, times (s) and shares
        (0–1). Null: what telemetry or answers do not say, retries that were not asked for, a recovery without a step, and expected
        hits where several engines have a cache each, or workers have roles.
    """
    sent, ends = requests["sent_s"].drop_nulls().sort(), requests["end_s"].drop_nulls().sort()
    asked = requests["prompt_asked"].sum() or 0
    answered = requests.filter(pl.col("outcome") == "ok")["prompt_asked"].sum() or 0  # the replay leaves out what failed
    hits, queries = counters["prefix_hits"], counters["prefix_queries"]
    roles = any(worker.role for worker in record.workers)
    # Hits are those of the prefill workers, and what an answer says was cached is what they passed on.
    implied, lru = (None, None) if roles else (record.prefix.expected_tokens, record.prefix.lru_tokens)
    step = record.definition.get("step")
    from_due = requests.with_columns(ttft_s=pl.col("first_token_s") - pl.col("scheduled_s"))
    times = {"step_start_s": step["start_s"], "step_end_s": step["start_s"] + step["duration_s"]} if step else {}
    recovered, recovery_s = recovery(from_due, **times) if step else (None, None)
    retries = record.definition.get("honour_retry_after")
    waits = requests.filter(pl.col("attempts") > 1)["waited_s"] if retries else pl.Series(dtype=pl.Float64)
    counted = in_flight_figures(requests, telemetry, window)
    if ENDPOINTS[record.definition.get("endpoint", "completions")].work.divided:
        counted = {name: value if name.startswith("client") else None for name, value in counted.items()}
    return {
        "offered_rate": _rate(requests["scheduled_s"].drop_nulls()),
        "achieved_rate": _rate(sent),
        "in_flight_peak": int(_course(requests)[1].max()),
        "retried": len(waits) if retries else None,
        "retry_wait_max_s": waits.max(),
        **standing_queue(sent, ends, telemetry),
        # A request that is held back is in flight to its user, but not at the server.
        **(dict.fromkeys(counted) if len(waits) else counted),
        "prefix_hit_rate": hits / queries if queries and hits is not None else None,
        "recovered": recovered,
        "recovery_s": recovery_s,
        "prefix_hit_rate_answers": _cached_share(requests),
        "prefix_hit_rate_expected": None if implied is None else implied / asked if asked else 0.0,
        "prefix_hit_rate_lru": None if lru is None or not answered else lru / answered,
    }


def _cached_share(requests: pl.DataFrame) -> float | None:
    """A share of the prompt tokens (0–1); None where an answer does not report it."""
    ok = requests.filter(pl.col("outcome") == "ok").select("prompt_tokens", "cached_tokens")
    if ok.is_empty() or ok["cached_tokens"].null_count() or ok["prompt_tokens"].null_count():
        return None
    return int(ok["cached_tokens"].sum() or 0) / max(1, int(ok["prompt_tokens"].sum() or 0))


def _rate(moments: pl.Series) -> float | None:
    if len(moments) < 2:
        return None
    span = float(moments.max() - moments.min())  # type: ignore[operator, arg-type]
    return (len(moments) - 1) / span if span else None


def standing_queue(sent: pl.Series, ends: pl.Series, telemetry: pl.DataFrame) -> dict[str, float | None]:
    """Requests that still wait once the load stands, and the share of the KV cache in use while any does; null if unknown.

    Of a burst: at the last scrape before the first answer ends. It queues for its prefill at first; who still waits when an answer is
    complete waits for room. Of a load that goes on: the medians over the scrapes in the second half of what is sent, but not before
    the first end; half of the time, then, so many wait.

    Args:
        sent, ends: ascending, in seconds since the run's start. telemetry: the samples of the engine's endpoint.
    """
    nothing: dict[str, float | None] = {"waiting_standing": None, "kv_usage_queued": None}
    if sent.is_empty() or ends.is_empty():
        return nothing
    first, last = ends[0], sent[-1]
    burst = last <= first
    low, high = (last, first) if burst else (max(first, sent.median()), last)
    scrapes = gauge_table(telemetry, low, high)
    if scrapes["waiting"].null_count() == len(scrapes) or len(scrapes) < (1 if burst else FEWEST_SCRAPES):
        return nothing
    there = scrapes.tail(1) if burst else scrapes
    queued = there.filter(pl.col("waiting") > 0)
    usage = queued["kv_usage"].median()
    return {"waiting_standing": there["waiting"].median(), "kv_usage_queued": usage}  # type: ignore[dict-item]
