"""The part of a run in which its load was steady, and what was measured in it; and the requests with which a closed loop begins, as
if met on their way. Method and sources: docs/explanation/method.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.axes import AXES
from bench.parse.latency import by_chunk
from bench.parse.server import gauge_table
from bench.runs.latencies import parts_of
from bench.statistics.percentiles import RATE_BATCHES, percentile_of
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.endpoints.kind import Work


def is_natural(definition: Mapping[str, Any]) -> bool:
    """Whether answers end by themselves: those of all classes, or of none."""
    lengths = [part.get("output_tokens") for part in parts_of(definition)]
    return all(isinstance(length, Mapping) and length.get("distribution") == "natural" for length in lengths)


def is_begun(definition: Mapping[str, Any]) -> pl.Expr:
    """Whether a request, by its column `index`, is one of those with which a closed loop begins."""
    begins = (
        definition["arrival"] == "closed" and not (definition.get("turns") or is_natural(definition)) and "level" in definition
    )
    return pl.col("index") < int(definition["level"]) if begins else pl.lit(value=False)


def whole_requests(definition: Mapping[str, Any], requests: pl.DataFrame) -> pl.DataFrame:
    """The requests that are as long as the workload demands; all, where a closed loop has none but those it begins with."""
    whole = requests.filter(~is_begun(definition)) if "index" in requests.columns else requests
    return requests if whole.is_empty() else whole


def request_share(definition: Mapping[str, Any], requests: pl.DataFrame) -> pl.Expr:
    """Share of a whole request that each one is: 1, but for those with which a closed loop begins: their output ÷ the mean of the
    others, of its class where there are classes.

    Counted as whole ones they would raise the rate of a window of n latencies by up to 1 ÷ 2n: in a run of five, by a tenth.

    Args:
        requests: all of the run; `index`, `output_asked` (tokens), of classes `request_class`.
    """
    whole = whole_requests(definition, requests)
    usual = whole["output_asked"].mean()
    if not usual:
        return pl.lit(1.0)
    mean = pl.lit(usual)
    if definition.get("classes"):
        of_class = dict(whole.group_by("request_class").agg(pl.col("output_asked").mean()).iter_rows())
        mean = pl.col("request_class").replace_strict(of_class, default=usual, return_dtype=pl.Float64)
    return pl.when(is_begun(definition)).then(pl.col("output_asked") / mean).otherwise(1.0)


Floats = npt.NDArray[np.float64]

GROWS = 0.05  # growth of the requests in flight ÷ offered rate above which a load is not carried; convention
# fewest requests of a run that can show backlog growth: fewer pile up while a server still fills; tuned: benchmarks.search
FEWEST_GROWING = 150
_BINS = 200  # bins of series over the load's time; convention
_BATCH = 5  # observations in a batch; source: White, Simulation 69, 1997 (MSER-5)
_BATCHES = 20  # batches of in-flight means behind the error of their growth; convention
# median latencies in which an open loop fills a server (a closed loop begins full and takes one), and of the least window; convention
_FILLS = 2.0
_RAMP_LEAST = 0.1  # shortest ramp, as a share of the load's time; convention
# standard errors of a ramp: more than usual, as the cut was sought; measured: docs/explanation/method.md, "Steady window"
_SURE_RAMP = 4.0
_DRAINS = 0.9  # quantile of E2E: a request that is sent less than that before the last one may end in the drain; convention
_DRAIN_MOST = 0.25  # largest share of the window that is left out for it; convention
_HIGH = 0.95  # quantile of running requests that `steady_running_high` has; convention
_FEWEST = 10  # fewest requests of a window; convention
# correlation that a straight line takes away, times the number of values; derived: about Kendall's bias of a detrended series
_DETRENDED = 4
_LONGEST_MORE = 20.0  # longest recommended run ÷ the measured one; convention
# standard errors of backlog growth; derived: Student's t of `_BATCHES` − 2 degrees of freedom, without the 0.4 s that scipy takes to
# import
SURE_GROWTH = 2.1


@dataclass(frozen=True)
class SteadyWindow:
    """Where a run's load stands between its ramp and its drain. Times are seconds since the run's start.

    Attributes:
        begin_s, end_s: of the window; `end_s` is when the last request (or conversation) was sent.
        judged_until_s: latencies are those of requests sent until then, so that few of them end in the drain.
        why: None where the load is steady; `grows` where requests pile up; `unsure` where they may or may not; `short`
            where the window is too short for the latencies in it.
        growth, growth_error: requests that pile up a second, as a share of those offered, and its standard error; None for closed
            loops, whose load cannot grow.
        needs_s: how long the load should last to know; None unless `short` or `unsure`.
    """

    begin_s: float
    end_s: float
    judged_until_s: float
    why: str | None
    growth: float | None
    growth_error: float | None
    needs_s: float | None

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


def steady_window(requests: pl.DataFrame, *, held: bool) -> SteadyWindow | None:
    """The steady window of a load that goes on; None where too little was sent to look for one.

    It begins once the load can have filled the server, and later where the start of one of three series surely differs from the rest
    (`ramp`): the requests in flight and the output tokens over time, and E2E in the order of sending. The window ends with
    the last request that was sent, or the last conversation that began.

    Args:
        requests: one row a request: `sent_s`, `end_s`, `first_token_s`, `last_token_s`, `e2e_s` (s), `after`, `outcome`,
            `token_times_s`. held: whether a closed loop holds the load.
    """
    known = requests.filter(pl.col("sent_s").is_not_null()).sort("sent_s")
    roots = known.filter(pl.col("after").is_null())
    if roots.height < _FEWEST:
        return None
    sent, end = known["sent_s"].to_numpy(), known["end_s"].fill_null(known["end_s"].max()).to_numpy()
    begin, last = float(sent[0]), float(roots["sent_s"][-1])
    if last <= begin:
        return None
    ok = known.filter((pl.col("outcome") == "ok") & (pl.col("sent_s") <= last))
    flying = mean_in_flight(sent, end, np.linspace(begin, last, _BINS + 1))
    half = (begin + last) / 2
    lasts = conversation_s(known, roots)
    fills = begin + max((1.0 if held else _FILLS) * lasts, _RAMP_LEAST * (last - begin))
    ramps = [fills, *(begin + ramp(series) * (last - begin) / _BINS for series in (flying, _tokens(ok, begin, last)))]
    answered = ok.drop_nulls("e2e_s")
    if answered.height:
        ramps.append(float(answered["sent_s"][ramp(answered["e2e_s"].to_numpy())]))
    start = min(half, max(ramps))
    growth, error = (None, None) if held else backlog_growth(flying, last - begin, lasts, len(sent) / (last - begin))
    early = roots.head(max(_FEWEST, roots.height // 10)).select((pl.col("end_s") - pl.col("sent_s")).median()).item() or 0.0
    why, needs = judged_load(start, last, begin, lasts, float(early), growth, error)
    tail = ok.filter(pl.col("sent_s") >= start)["e2e_s"].quantile(_DRAINS) or 0.0
    return SteadyWindow(start, last, last - min(tail, _DRAIN_MOST * (last - start)), why, growth, error, needs)


def judged_load(
    start: float, last: float, begin: float, lasts: float, early: float, growth: float | None, error: float | None
) -> tuple[str | None, float | None]:
    """Why the load is not steady, and how long it should last (s); both as in `SteadyWindow`.

    Of an overload, latencies grow with the run, so that no run is long against them: it is looked for first, and is what surely
    piles up by more than is allowed, and by more than a server still fills by that gets its first requests (the share of the run that
    is one latency without load, `early`).

    Args:
        start, last: of the window (s). begin: of the load (s). lasts: median latency (s). growth, error: of the backlog; None for
            closed loops.
    """
    length = last - begin
    if growth is not None and error is not None and growth - SURE_GROWTH * error > max(GROWS, early / length):
        return "grows", None
    if last - start < _FILLS * lasts:
        return "short", (start - begin) + 2 * _FILLS * lasts
    if growth is None or error is None:
        return None, None
    if growth > GROWS and growth > SURE_GROWTH * error:
        return "grows", None
    if growth + SURE_GROWTH * error > 2 * GROWS:
        # The error of a slope falls with the 3/2 power of the time that it is taken over.
        return "unsure", length * min(_LONGEST_MORE, ((growth + SURE_GROWTH * error) / GROWS) ** (2 / 3))
    return None, None


def ramp(values: Floats) -> int:
    """How many values at the start of a series surely differ from the rest: up to where MSER-5 cuts, where the difference is largest.

    By itself MSER-5 cuts off whatever varies more than the rest. Of a queue that is a busy spell as often as a ramp, and latencies
    without the busy spells with which runs happen to begin are too good: in simulated open loops a fifth of the requests that
    miss a limit were lost.
    """
    size = _batch(len(values))
    batches = _batched(values, size)
    sure = [_apart(batches[:cut], batches[cut:]) for cut in range(1, mser(values) // size + 1)]
    return size * (1 + int(np.argmax(sure))) if sure and max(sure) > _SURE_RAMP else 0


def _apart(before: Floats, after: Floats) -> float:
    """By how many standard errors two parts of a series differ."""
    difference = abs(float(before.mean() - after.mean()))
    residuals = np.concatenate([before - before.mean(), after - after.mean()])
    squares = float(residuals @ residuals)
    if squares <= 1e-24 * float(before @ before + after @ after):
        return math.inf if difference else 0.0
    count = len(residuals)
    variance = squares / max(1, count - 2) * _alike(residuals) * (1 / len(before) + 1 / len(after))
    return difference / math.sqrt(variance)


def _batch(count: int) -> int:
    return _BATCH if count >= 4 * _BATCH else 1


def _batched(values: Floats, size: int) -> Floats:
    count = len(values) // size
    means: Floats = values[: count * size].reshape(count, size).mean(axis=1)
    return means


def mser(values: Floats) -> int:
    """Where a series reaches its steady state: how many values to cut off, half of them at most.

    The values are averaged in batches of five; cut are those batches without which the standard error of the mean of the rest is
    smallest (MSER-5).

    Source: White, An effective truncation heuristic for bias reduction in simulation output (Simulation 69, 1997); White, Cobb and
    Spratt, A comparison of five steady-state truncation heuristics (Winter Simulation Conference 2000).
    """
    size = _batch(len(values))
    batches = _batched(values, size)
    count = len(batches)
    if not count:
        return 0
    left = count - np.arange(count)
    sums, squares = np.cumsum(batches[::-1])[::-1], np.cumsum(batches[::-1] ** 2)[::-1]
    errors = ((squares - sums**2 / left) / left**2)[: count // 2 + 1]
    # Equal values have equal errors, but for rounding: the first of them counts.
    return int(np.argmax(errors <= errors.min() + 1e-12 * max(1.0, float(squares[0])))) * size


def mean_in_flight(sent: Floats, end: Floats, edges: Floats) -> Floats:
    """Mean requests in flight between each two of `edges`. Args: sent, end: of each request (s). edges: ascending (s)."""
    spent = np.array([np.sum(np.minimum(end, at) - np.minimum(sent, at)) for at in edges])
    flying: Floats = np.diff(spent) / np.diff(edges)
    return flying


def _tokens(ok: pl.DataFrame, begin: float, last: float) -> Floats:
    """Chunks of answers in each of `_BINS` parts of the time from `begin` to `last`."""
    times = ok.select(pl.col("token_times_s").explode())["token_times_s"].drop_nulls().to_numpy()
    return np.histogram(times, bins=_BINS, range=(begin, last))[0].astype(float)


def conversation_s(known: pl.DataFrame, roots: pl.DataFrame) -> float:
    """Median time from a conversation's first request to its last answer (s); of single requests, their E2E.

    Args:
        known: every request that was sent. roots: those of them that begin a conversation.
    """
    if roots.height == known.height:
        return float(known.select((pl.col("end_s") - pl.col("sent_s")).median()).item() or 0.0)
    number = pl.col("after").is_null().cum_sum().alias("conversation")  # turns stand next to each other
    each = known.sort("index").group_by(number).agg(lasts=pl.col("end_s").max() - pl.col("sent_s").min())
    return float(each["lasts"].median() or 0.0)  # type: ignore[arg-type]


def backlog_growth(flying: Floats, length_s: float, ramp_s: float, offered: float) -> tuple[float | None, float | None]:
    """Slope of the requests in flight over time, as a share of the `offered` rate, and its standard error.

    A straight line through batch means, from one latency after the start on.

    Args:
        flying: mean requests in flight in each of `_BINS` parts of the load. length_s: of the load. ramp_s: left out at its start.
            offered: requests/s.
    """
    kept = flying[min(_BINS // 2, math.ceil(_BINS * ramp_s / length_s)) :]
    size = len(kept) // _BATCHES
    batches = kept[: size * _BATCHES].reshape(_BATCHES, size).mean(axis=1)
    time = (np.arange(_BATCHES) + 0.5) * size * length_s / _BINS
    centred = time - time.mean()
    slope = float(centred @ batches / (centred @ centred))
    residuals = batches - batches.mean() - slope * centred
    squares = float(residuals @ residuals)
    if squares == 0:
        return slope / offered, 0.0
    error = math.sqrt(squares / (_BATCHES - 2) / float(centred @ centred) * _alike(residuals))
    return slope / offered, error / offered


def _alike(residuals: Floats) -> float:
    """By how much their neighbours' correlation r raises the variance of a mean: (1 + r) / (1 − r), at most as if all were one."""
    r = float(residuals[:-1] @ residuals[1:]) / float(residuals @ residuals) + _DETRENDED / len(residuals)
    r = min(1 - 2 / len(residuals), max(0.0, r))
    return (1 + r) / (1 - r)


def in_steady_state(window: SteadyWindow) -> pl.Expr:
    """The requests whose latencies count: sent in the window, and early enough not to end in the drain.

    Args (columns):
        `sent_s` (s).
    """
    return pl.col("sent_s").is_between(window.begin_s, window.judged_until_s)


def steady_figures(
    definition: Mapping[str, Any], requests: pl.DataFrame, telemetry: pl.DataFrame, *, stopped: bool = False
) -> tuple[SteadyWindow | None, dict[str, Any]]:
    """The steady window of a run and its numbers, all of which start with `steady`.

    Args:
        definition: the run's. requests: the tidy table. telemetry: the samples of the engine's endpoint.
        stopped: whether the run ended early since requests piled up. The rule that stopped it knew the arrivals still to come, so it
            decides that the load grows, even where those that were sent are too few to show it.

    Returns:
        The window, None where the run has none to look for: bursts, loads that change on purpose (`step`), and runs of fewer
        than ten requests. And its numbers, by column; none where no window was looked for.
    """
    if definition["arrival"] == "burst" or definition.get("step"):
        return None, {}
    window = steady_window(requests, held=AXES[definition["axis"]].held)
    if window is None:
        too_few = len(requests) > 0
        return None, {"steady": False, "steady_why": "short"} if too_few else {}
    if stopped:
        window = replace(window, why="grows", needs_s=None)
    judged = requests.filter(in_steady_state(window))
    begin, end = window.begin_s, window.end_s
    share = request_share(definition, requests)
    offered = requests.filter((pl.col("sent_s") >= begin) & (pl.col("sent_s") < end)).select(share.sum()).item()
    sent = requests["sent_s"].drop_nulls().to_numpy()
    ends = requests.filter(pl.col("sent_s").is_not_null())["end_s"].fill_null(end).to_numpy()
    ok = requests.filter(pl.col("outcome") == "ok")
    return window, {
        "steady": window.why is None,
        "steady_why": window.why,
        "steady_from_s": begin,
        "steady_until_s": end,
        "steady_judged_until_s": window.judged_until_s,
        "steady_growth": window.growth,
        "steady_growth_error": window.growth_error,
        "steady_needs_s": window.needs_s,
        "steady_requests": judged.height,
        "steady_failed": judged.filter(pl.col("outcome") != "ok").height,
        "steady_offered_rate": float(offered or 0.0) / window.length_s,
        **rates_between(ok, begin, end, share, ENDPOINTS[definition.get("endpoint", "completions")].work),
        "steady_in_flight": float(mean_in_flight(sent, ends, np.array([begin, end]))[0]),
        **gauges_between(telemetry, begin, end),
    }


def rates_between(ok: pl.DataFrame, begin: float, end: float, whole: pl.Expr, work: Work) -> dict[str, float | None]:
    """`steady_requests_per_s`, `steady_tokens_per_s` and `steady_error` of the answers between two moments.

    Args:
        whole: share of a request that each one is (0–1). work: which says what tokens are counted; without a count of each answer there
            are no tokens/s.
    """
    chunks = by_chunk(ok, share=whole, tokens=pl.col(work.counts)).filter(
        pl.col("token_times_s").is_between(begin, end, closed="left")
    )
    if chunks.is_empty():
        return {"steady_requests_per_s": 0.0, "steady_tokens_per_s": 0.0, "steady_error": None}
    times, share = chunks["token_times_s"].to_numpy(), chunks["share"].to_numpy()
    batches = np.histogram(times, bins=RATE_BATCHES, range=(begin, end), weights=share)[0]
    error = float(batches.std(ddof=1) / batches.mean() / math.sqrt(RATE_BATCHES))
    return {
        "steady_requests_per_s": float(share.sum()) / (end - begin),
        "steady_tokens_per_s": None if chunks["tokens"].null_count() else float(chunks["tokens"].sum()) / (end - begin),
        "steady_error": error,
    }


def gauges_between(telemetry: pl.DataFrame, begin: float, end: float) -> dict[str, float | None]:
    """What the server's gauges showed between two moments; null where it has none."""
    scrapes = gauge_table(telemetry, begin, end)
    running, waiting, usage = (pl.col(name) for name in ("running", "waiting", "kv_usage"))
    figures: dict[str, float | None] = scrapes.select(
        steady_running=running.mean(),
        steady_running_high=percentile_of(running, _HIGH),
        steady_waiting=waiting.mean(),
        steady_queued_share=(waiting > 0).mean(),
        steady_kv_usage=usage.mean(),
        steady_kv_usage_queued=usage.filter(waiting > 0).median(),
    ).row(0, named=True)
    return figures
