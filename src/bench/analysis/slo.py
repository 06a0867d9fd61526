"""What load meets the SLOs: goodput, and C_max with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from bench.analysis.levels import Levels
from bench.study import Slo

__all__ = ["goodput", "load_text", "meets", "operating_points"]

_FEWEST_LEVELS = 4  # of a curve without repeats, whose noise its neighbours have to tell
_ROUNDED = 1 + 1e-9  # what a mean of logarithms loses is no miss
_CARRIED = {
    "goodput_rps": "goodput_requests_per_s",
    "tokens_per_s": "throughput_tokens_per_s",
    "latency_s": "e2e_mean_s",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "in_flight": "client_in_flight_mean",
    "in_flight_peak": "in_flight_peak",
}
_WORDS = dict.fromkeys(("deployment", "workload", "axis", "unit", "kind", "missed", "told", "noise_of"), pl.String)
_NUMBERS = dict.fromkeys(
    (
        "c_max",
        "operate_at",
        "room_at",
        "usable_rps",
        "usable_low",
        "low",
        "high",
        "missed_at",
        "highest",
        "noise",
        "runs",
        "runs_met",
        *_CARRIED,
    ),
    pl.Float64,
)


def meets(slos: Sequence[Slo]) -> pl.Expr:
    """Whether a request met every limit, each by itself: a percentile says which share has to, and not which request.

    A request that failed met none. What a request does not have, as an answer of one token has no TPOT, it does not miss.

    Args (columns):
        `outcome`, and of each SLO `ttft_s`, `tpot_s` or `e2e_s` (s).
    """
    met = pl.col("outcome") == "ok"
    for slo in slos:
        met &= pl.col(f"{slo.metric}_s").is_null() | (pl.col(f"{slo.metric}_s") <= slo.limit_s)
    return met


def goodput(requests: pl.DataFrame, slos: Sequence[Slo], duration_s: float | None) -> dict[str, float | None]:
    """Of one run: `goodput_requests_per_s`, those that met every limit, and `slo_share`, their share of all (0–1).

    Args:
        requests: the columns of `meets`. duration_s: of the run (s); null where nothing came.
    """
    if requests.is_empty():
        return {"goodput_requests_per_s": None, "slo_share": None}
    met = requests.filter(meets(slos)).height
    return {"goodput_requests_per_s": met / duration_s if duration_s else None, "slo_share": met / requests.height}


def operating_points(runs: pl.DataFrame, slos: Sequence[Slo]) -> pl.DataFrame:
    """`C_max` of each curve: the highest level below the first that misses an SLO, and what is carried there.

    A level meets an SLO where the geometric mean of its valid runs' percentiles is within the limit. It surely meets it where that
    mean's 95 % interval, by the noise of a run as `Levels` has it, ends within the limit, and so does the bound of each run that has
    one; it surely misses it where the interval begins beyond. Nothing is told of loads between those that were measured.

    An instance is operated at the level up to `C_max` that carries the most requests/s, of those at which the KV cache is not
    full: where it is, requests wait or are preempted, and a laxer SLO must never lower what an instance carries.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `turns`, `level`, `repeat`, `valid`, `saturated`,
            `throughput_requests_per_s`, `e2e_mean_s` and the SLOs' columns); invalid runs are left out.

    Returns:
        One row a deployment and workload: `unit` (of the level); `kind` (`found`; `above`: all levels meet them; `below`: the lowest
        misses; `unknown`: no valid run; `unjudged`: a level is without an SLO's latency); `c_max` (the level; null unless found or
        above); `low`, `high`: C_max lies from the highest level up to which all surely meet to below the lowest that surely misses,
        null where a side is open; `missed_at` (the lowest level that misses), `missed` (what it misses, in words), `highest` (level
        with a valid run), `told` (C_max in words); `noise` of a run (relative; of the noisiest SLO) and `noise_of`, as `Levels` has
        them; `runs` at C_max and `runs_met`, those of them that meet all by themselves; `operate_at`, `room_at` (the highest
        level up to C_max without a full KV cache), `usable_low` (requests/s at
        `low`, where that is below it), and of the runs there the means `usable_rps` and `goodput_rps` (requests/s),
        `tokens_per_s`, `latency_s` (E2E, s), `prompt_tokens`, `output_tokens`, `in_flight`, `in_flight_peak` (requests).
    """
    rows = []
    for (deployment, workload), group in runs.group_by("deployment", "workload", maintain_order=True):
        others = runs.filter((pl.col("workload") == workload) & (pl.col("deployment") != deployment))
        row = _point(group.filter("valid"), others, slos)
        axis = group["axis"][0]
        unit = _unit(axis, "turns" in group.columns and bool((group["turns"] > 1).any()))
        rows.append({"deployment": deployment, "workload": workload, "axis": axis, "unit": unit, **row, "told": _told(row)})
    return pl.DataFrame(rows, schema={**_WORDS, **_NUMBERS})


def _beyond(value: float, limit: float) -> str:
    """A value with as many digits as show that it is over the limit."""
    return next((text for digits in range(3, 9) if float(text := f"{value:.{digits}g}") > limit), f"{value:.9g}")


def load_text(level: float, unit: str) -> str:
    """A load in words, such as `1 request in flight`."""
    return f"{level:g} {unit.replace('s in flight', ' in flight') if level == 1 else unit}"


def _unit(axis: str, conversations: bool) -> str:
    what = "conversations" if conversations else "requests"
    return {"concurrency": f"{what} in flight", "request_rate": f"{what}/s"}.get(axis, "times the trace's speed")


def _point(valid: pl.DataFrame, others: pl.DataFrame, slos: Sequence[Slo]) -> dict[str, Any]:
    """One curve."""
    ladder: list[float] = valid["level"].unique().sort().to_list()
    if not ladder:
        return {"kind": "unknown"}
    misses: dict[float, list[str]] = {level: [] for level in ladder}
    sure, surely_missed, noises = set(ladder), set(), []
    met = pl.lit(True)
    for slo in slos:
        if missing := _without(valid, slo):
            return {"kind": "unjudged", "missed_at": missing[0], "missed": f"{slo} cannot be judged"}
        levels, judged = _judge(valid, others, slo)
        noises.append((levels.noise, levels.noise_of))
        met &= pl.col(slo.column).is_null() | (pl.col(slo.column) <= slo.limit_s * _ROUNDED)
        for level, value, low, high in judged.iter_rows():
            if value > slo.limit_s * _ROUNDED:
                misses[level].append(f"{slo} ({_beyond(value, slo.limit_s)} s)")
            if high is None or high > slo.limit_s:
                sure.discard(level)
            if low is not None and low > slo.limit_s:
                surely_missed.add(level)
    first = next((i for i, level in enumerate(ladder) if misses[level]), len(ladder))
    unsure = next((i for i, level in enumerate(ladder) if level not in sure), len(ladder))
    meeting = ladder[:first]
    roomy = _with_room(valid, meeting)
    operate = max(roomy, key=lambda level: _usable(valid.filter(pl.col("level") == level)) or 0.0, default=None)
    there, top = (valid.filter(pl.col("level").is_in([level])) for level in (operate, meeting[-1] if meeting else None))
    low = ladder[unsure - 1] if unsure else None
    noise, noise_of = max(noises, default=(None, None))
    return {
        "kind": "above" if first == len(ladder) else "found" if first else "below",
        "c_max": meeting[-1] if meeting else None,
        "operate_at": operate,
        "room_at": roomy[-1] if roomy else None,
        "usable_rps": _usable(there) if operate is not None else None,
        "usable_low": _usable(valid.filter(pl.col("level") == low)) if low is not None and low < (operate or 0) else None,
        "low": low,
        "high": min(surely_missed, default=None),
        "missed_at": ladder[first] if first < len(ladder) else None,
        "missed": ", ".join(misses[ladder[first]]) if first < len(ladder) else None,
        "highest": ladder[-1],
        "noise": noise,
        "noise_of": noise_of,
        "runs": top.height or None,
        "runs_met": top.filter(met).height if top.height else None,
        **{key: there[column].mean() if column in there.columns else None for key, column in _CARRIED.items()},
    }


def _with_room(valid: pl.DataFrame, meeting: Sequence[float]) -> list[float]:
    """The levels among those that meet the SLOs at which the KV cache is not full; all of them where it always is."""
    full = valid.filter("saturated")["level"].unique().to_list()
    return [level for level in meeting if level not in full] or list(meeting)


def _usable(runs: pl.DataFrame) -> float | None:
    """Requests/s that the runs of a level carried, in the mean.

    Of an open loop without a standing queue, those that came: its end, in which answers are only drained, is no load. Else those of the
    whole run, as a burst's tail is part of it.
    """
    carried = pl.col("throughput_requests_per_s")
    if {"achieved_rate", "waiting_standing"} <= set(runs.columns):
        keeps_up = (pl.col("axis") != "concurrency") & (pl.col("waiting_standing") == 0)
        carried = pl.when(keeps_up).then(pl.coalesce("achieved_rate", carried)).otherwise(carried)
    return runs.select(carried.mean()).item()  # type: ignore[no-any-return]


def _without(valid: pl.DataFrame, slo: Slo) -> list[float]:
    """Levels of which no run has the SLO's latency: answers that are not streamed have no TTFT, those of a single token no TPOT."""
    if slo.column not in valid.columns:
        return valid["level"].unique().sort().to_list()
    told = valid.group_by("level").agg(known=pl.col(slo.column).is_not_null().any())
    return told.filter(~pl.col("known"))["level"].sort().to_list()


def _judge(valid: pl.DataFrame, others: pl.DataFrame, slo: Slo) -> tuple[Levels, pl.DataFrame]:
    """The levels with their noise, and of each the `value` of the SLO's percentile, and its interval, `low` and `high` (s; null
    where the noise is not known)."""
    known = valid.filter(pl.col(slo.column) > 0)  # 0, of tokens that came in one piece, misses nothing
    levels = Levels.of(known, slo.column, others.partition_by("deployment"), absolute=True)
    half = levels.sure * levels.noise / levels.runs**0.5
    noisy = levels.noise_of == "neighbours" and len(levels) < _FEWEST_LEVELS
    bound = pl.col(slo.bound) if slo.bound in known.columns else pl.lit(None, dtype=pl.Float64)
    bounds = known.group_by("level").agg(bound=bound.max()).sort("level")["bound"].to_list()
    rows = []
    for i, (level, log) in enumerate(zip(levels.load, levels.log, strict=True)):
        value = math.exp(log)
        low, high = (None, None) if noisy else (value * math.exp(-half[i]), value * math.exp(half[i]))
        rows.append((float(level), value, low, None if high is None else max(high, bounds[i] or 0.0)))
    return levels, pl.DataFrame(rows, schema=["level", "value", "low", "high"], orient="row")


def _told(row: dict[str, Any]) -> str:
    """C_max in words, such as `16 (at least 15, below 20)`."""
    if row["kind"] == "unknown":
        return "no valid run"
    if row["kind"] == "unjudged":
        return f"{row['missed']}: no run at {row['missed_at']:g} has that latency"
    sides = [f"{word} {row[key]:g}" for word, key in (("at least", "low"), ("below", "high")) if row[key] is not None]
    if row["kind"] == "below":
        return f"below {row['missed_at']:g}, the lowest level"
    if row["kind"] == "above":
        low = row["low"]
        return f"{row['c_max']:g} or more" + (
            " (no interval)" if low is None else f" (surely {low:g})" if low < row["c_max"] else ""
        )
    return f"{row['c_max']:g} ({', '.join(sides) or 'no interval'})"
