"""Where a curve turns: its regions A, B and C, its knee, their words and chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.axes import AXES
from bench.errors import count_text, listed, shown_share
from bench.findings.tables import Tables
from bench.parse.windows import level_value, level_values, with_rates_of_windows
from bench.report.figure import alt, figure
from bench.report.theme import (
    Span,
    curve_colour,
    in_order,
    is_log,
    level_axis,
    load_panel,
    nothing_to_show,
    with_curve,
)
from bench.runs.sentences import between_text, filled, numbers_text, sure_text
from bench.statistics.levels import FLAT, PROPORTIONAL, Floats, Levels
from bench.statistics.textbook import isotonic

FEWEST_LEVELS = 4  # fewest levels of a curve with regions; derived: of three, each would be its own region
Name = Literal["equilibrium", "saturation"]
POINTS: tuple[Name, ...] = ("equilibrium", "saturation")
Kind = Literal["peak", "flat", "left", "above", "below", "unknown"]


@dataclass(frozen=True)
class Point:
    """A turning point of a curve, or why there is none.

    Attributes:
        kind: `peak` or `flat` (found, with a fall after it or without), `left` (found: proportional growth left), `above` or
            `below` what was measured, `unknown`.
        at: the load; null unless found. low, high: the levels between which it lies, 95 times in 100; null where a side is open.
        why: what hides it, where it is unknown: `few` levels, tokens that are `uncounted`, `noise`, or `disorder`: throughput (for the
            equilibrium, that of a request) falls and comes back.
    """

    kind: Kind
    at: float | None = None
    low: float | None = None
    high: float | None = None
    why: Literal["few", "uncounted", "noise", "disorder"] | None = None


_FEW = Point("unknown", why="few")
_COLUMN = "throughput_tokens_per_s"


def regions(runs: pl.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """The equilibrium and saturation point of each curve, each with its interval, or the reason why there is none.

    Args:
        runs: summary rows; throughput is that of the steady windows where each valid run of a curve has one.

    Returns:
        By deployment and workload, what `saturation` in `bench/runs/analysis.toml` has of both points, of the levels and their noise.
    """
    found = {}
    runs = with_rates_of_windows(runs, _COLUMN)
    for (deployment, workload), group in runs.group_by("deployment", "workload", maintain_order=True):
        others = runs.filter((pl.col("workload") == workload) & (pl.col("deployment") != deployment))
        levels = Levels.of(group, _COLUMN, others.partition_by("deployment"))
        few = len(levels) < FEWEST_LEVELS
        first, second = equilibrium(levels, whole=AXES[group["axis"][0]].held), saturation_point(levels)
        if not len(levels) and group["valid"].any() and group[_COLUMN].null_count() == len(group):
            first = second = Point("unknown", why="uncounted")
        if first.at is not None and second.at is not None and (first.low or 0) <= second.at < first.at:
            first = replace(first, at=second.at)  # it is proportional as long as it grows
        top = float(levels.load[-1]) if len(levels) else None
        row = {
            "levels": len(levels),
            "top": top,
            "noise": None if few else levels.noise,
            "noise_of": None if few else levels.noise_of,
        }
        for name, point in zip(POINTS, (first, second), strict=True):
            row |= {f"{name}_{key}": value for key, value in vars(point).items()}
        found[str(deployment), str(workload)] = row
    return found


def equilibrium(levels: Levels, *, whole: bool) -> Point:
    """Where growth stops being proportional: each request gets less than 80 % of the throughput that one at the lowest level gets.

    The interval reaches from the highest level that keeps significantly more than 80 % to the lowest that keeps significantly less.
    Within it, the point is where the line through load ÷ throughput (never falling: neighbours out of order are averaged) crosses
    1 / 80 % of its first value.

    Args:
        whole: loads are numbers of requests. One request alone is then proportional by definition; any other lowest level must be
            less than half the point, for it may lie beyond the proportional part itself.
    """
    if len(levels) < FEWEST_LEVELS:
        return _FEW
    load = levels.load
    kept = levels.log - np.log(load)
    kept = kept - kept[0] - np.log(PROPORTIONAL)
    margin = levels.sure * levels.errors[0]
    margin[0] = 0.0  # the lowest level is the measure
    keeps, loses = np.flatnonzero(kept > margin), np.flatnonzero(kept < -margin)
    low = float(load[keeps.max()])
    if not len(loses):
        if keeps.max() == len(load) - 1:
            return Point("above", low=low)
        return Point("unknown", low=low, why="noise")
    high = float(load[loses.min()])
    if high <= low:
        return Point("unknown", why="disorder")
    time = np.exp(-isotonic(levels.log - np.log(load), levels.runs, rising=False))
    at = min(max(_crossing(load, time, time[0] / PROPORTIONAL), low), high)
    if at <= 2 * load[0] and not (whole and load[0] == 1):
        return Point("below", high=high)
    return Point("left", at, low, high)


def saturation_point(levels: Levels) -> Point:
    """Where more load stops buying throughput: the peak, where a significant fall follows; else the begin of a flat top.

    A level is before the peak if a higher one gives significantly more, after it if a lower one does: the peak lies between. Without
    a fall, a top is flat from the lowest level whose throughput every higher one exceeds by significantly less than 1 / 90 %, if it
    reaches to twice that load: doubling it buys less than 11 %. It begins where the line through the levels reaches 90 % of the top
    level, between the highest level that a higher one exceeds by significantly more than 1 / 90 % and that lowest one.
    """
    if len(levels) < FEWEST_LEVELS:
        return _FEW
    load, top = levels.load, float(levels.load[-1])
    more = levels.more()
    after, low = np.flatnonzero(np.tril(more).any(axis=1)), _highest(load, np.triu(more))
    if len(after):
        high = float(load[after[0]])
        if low is not None and low >= high:
            return Point("unknown", why="disorder")
        if after[0] == 1:
            return Point("below", high=high)
        between = (load < high) & (load >= (low or 0.0))
        return Point("peak", float(load[between][np.argmax(levels.log[between])]), low, high)
    much = np.triu(levels.more(1 / FLAT))
    low = _highest(load, much)
    # Every higher level must exceed it by significantly less, so each is tested by itself.
    within = levels.log[None, :] - levels.log[:, None] + levels.sure * levels.errors < -np.log(FLAT)
    flat = next((i for i in range(len(load) - 1) if within[i, i + 1 :].all()), None)
    if flat is not None and top >= 2 * load[flat]:
        rising = np.exp(isotonic(levels.log, levels.runs))
        at, high = _crossing(load, rising, FLAT * rising[-1]), float(load[flat])
        return Point("flat", min(max(at, low or 0.0), high), low, high)
    near = min(int(np.searchsorted(load, top / 2)), len(load) - 2)
    if much[near:-1, -1].any() and np.argmax(levels.log) == len(load) - 1:
        return Point("above", low=low)
    return Point("unknown", low=low, why="noise")


def _highest(load: Floats, any_of: npt.NDArray[np.bool_]) -> float | None:
    """The highest load with a true value in its row."""
    rows = np.flatnonzero(any_of.any(axis=1))
    return float(load[rows[-1]]) if len(rows) else None


def _crossing(load: Floats, values: Floats, goal: float) -> float:
    """The load at which the line through `values`, which never fall, reaches `goal`; the last load if it does not."""
    i = int(np.searchsorted(values, goal))
    if i == 0 or i == len(load):
        return float(load[min(i, len(load) - 1)])
    return float(load[i - 1] + (goal - values[i - 1]) / (values[i] - values[i - 1]) * (load[i] - load[i - 1]))


# P99 ÷ P50 from which a latency's tail has left its median; convention: TTFT of a burst that is computed in order has 2
APART = 3.0
FLATTENS = 0.5  # share of proportional throughput below which added load flattens; convention
_COLUMNS = ("ttft_p50_s", "ttft_p99_s", "throughput_requests_per_s")


def knees(runs: pl.DataFrame) -> dict[tuple[str, str], float]:
    """The knee of each curve that has one, by deployment and workload (in the load's unit).

    It is the lowest level from which on TTFT's P99 is three times its P50 or more, and at which the load above that of the best lower
    level brought less than half of its share of requests/s: ln(throughput ratio) ÷ ln(load ratio) < 0.5, all by `level_values`. A
    percentile is infinite where that share of requests failed, and such a tail has left its median too. Args: runs: summary rows.
    """
    levels = level_values(runs, _COLUMNS).filter(pl.all_horizontal(pl.col(_COLUMNS) > 0)).sort("level")
    found = {}
    for (deployment, workload), rows in levels.group_by("deployment", "workload"):
        load, rate = rows["level"].to_list(), rows["throughput_requests_per_s"].to_list()
        apart = (rows["ttft_p99_s"] >= APART * rows["ttft_p50_s"]).to_list()
        for i in range(1, len(load)):
            best = max(range(i), key=rate.__getitem__)
            flattens = math.log(rate[i] / rate[best]) < FLATTENS * math.log(load[i] / load[best])
            if all(apart[i:]) and flattens:
                found[str(deployment), str(workload)] = load[i]
                break
    return found


Row = Mapping[str, Any]
_PROPORTIONAL = shown_share(PROPORTIONAL)
# By what hides the point, or by what the curve does there.
_WHY = {
    ("equilibrium", "noise"): "hidden by noise of {noise:share}",
    ("equilibrium", "disorder"): f"throughput a request falls below {_PROPORTIONAL} and rises above it again: no single point",
    ("equilibrium", "above"): "still proportional at {top}, the highest load",
    ("equilibrium", "below"): "no level is significantly in the proportional range",
    ("saturation", "noise"): "hidden by noise of {noise:share}",
    ("saturation", "disorder"): "throughput falls and rises again: no single peak",
    ("saturation", "above"): "still rising at {top}, the highest load",
    ("saturation", "below"): "it falls from the lowest level on",
    ("saturation", "peak"): "then it falls",
    ("saturation", "flat"): "then flat: no fall seen",
}


def turning_point(row: Row, name: Name, unit: str = "") -> str:
    """A point for a cell of a table, such as `48 (40 to 56), then it falls`, or why there is none.

    Args:
        row: of `bench.findings.saturation`. unit: of the load, where nothing beside it says it.
    """
    after = f" {unit}" if unit else ""
    kind, at, low, high = (row[f"{name}_{key}"] for key in ("kind", "at", "low", "high"))
    why = _why(row, name, after)
    if at is not None:
        return f"{sure_text(at, low, high)[0]}{after} ({between_text(low, high) or 'no bounds'})" + (f", {why}" if why else "")
    if low is None and high is None:
        return why
    return f"{'at or below' if kind == 'below' else 'above'} {low if high is None else high:g}{after} ({why})"


def _why(row: Row, name: Name, after: str) -> str:
    """What the curve does there, or what hides the point. Args: after: a load, its unit."""
    why = row[f"{name}_why"]
    if why == "uncounted":
        return "the server does not count tokens"
    if why == "few":
        only = f"{count_text(row['levels'], 'level')} to compare" if row["levels"] else "no level with a valid run"
        return f"{only}; {FEWEST_LEVELS} are needed"
    return filled(_WHY.get((name, why or row[f"{name}_kind"]), ""), {**row, "top": f"{row['top']:g}{after}"})


def _finding(results: Tables) -> str | None:
    """At which loads throughput saturates; where that is not known of every curve, how high it gets."""
    at = in_order(results, results.saturation)["saturation_at"].to_list()
    if at and None not in at and len(at) <= _MOST:
        return f"Throughput stops growing at {numbers_text(at)} {AXES[results.axis].unit}"
    levels = with_curve(results, level_values(results.runs, [_COLUMN])).drop_nulls(_COLUMN)
    best = levels.sort(_COLUMN, descending=True).unique("curve", keep="first", maintain_order=True).head(_NAMED + 1)
    unit = f" {results.tokens_per_s}"
    most = [f"{row[_COLUMN]:,.0f}{unit * (not i)} on {row['curve']}" for i, row in enumerate(best.iter_rows(named=True))]
    return f"Throughput reaches {listed(most)}" if 0 < len(most) <= _NAMED else None


_POINTS = dict(zip(("A|B", "B|C"), POINTS, strict=True))
_NAMED, _MOST = 3, 5  # most curves that a title names, and most loads
_PEAK = "throughput_peak_tokens_per_s"


@figure(
    "throughput",
    title="Throughput against load",
    question="At which load does throughput stop scaling, and at which does it saturate?",
    reading="Up to A|B a request keeps 80 % of its throughput at the lowest level (A, spare); up to B|C more load still buys tokens "
    "(B, shared); beyond it buys none, or costs some (C, overload). Bars: 95 % intervals.",
    finding=_finding,
)
def throughput(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Mean throughput over load, with both points of each curve, beside the best second of each run."""
    runs = with_curve(results, results.runs)
    if runs[_COLUMN].is_null().all():
        return nothing_to_show("no run counts its tokens")
    over = _turns(results, _points(results, runs))
    mean = _panel(results, runs, _COLUMN, "mean", over)
    if runs[_PEAK].is_null().all():
        return mean
    return alt.concat(mean, _panel(results, runs, _PEAK, "best second of each run"), columns=2)


def _panel(results: Tables, runs: pl.DataFrame, column: str, heading: str, over: Sequence[alt.Chart] = ()) -> alt.LayerChart:
    span = Span.of(runs[column], log=False)
    return load_panel(results, runs, column, results.tokens_per_s, heading=heading, span=span, over=over)


def _points(results: Tables, runs: pl.DataFrame) -> pl.DataFrame:
    """Each point on its curve's line, as it is drawn. An interval's open side ends where the levels do."""
    log, rows = is_log(results), []
    for row in with_curve(results, results.saturation).iter_rows(named=True):
        line = runs.filter("valid", curve=row["curve"]).group_by("level").agg(level_value(_COLUMN)).drop_nulls().sort("level")
        loads, heights = line["level"].to_list(), line[_COLUMN].to_list()
        for point, name in _POINTS.items():
            at, low, high = (row[f"{name}_{key}"] for key in ("at", "low", "high"))
            if at is not None:
                height = np.interp(math.log(at), np.log(loads), heights) if log else np.interp(at, loads, heights)
                ends = low or loads[0], high or loads[-1]
                rows.append((row["curve"], point, at, *ends, turning_point(row, name), float(height)))
    schema = dict.fromkeys(("curve", "point", "level", "low", "high", "text", _COLUMN), pl.Float64)
    return pl.DataFrame(rows, schema=schema | dict.fromkeys(("curve", "point", "text"), pl.String), orient="row")


def _turns(results: Tables, points_of: pl.DataFrame) -> list[alt.Chart]:
    base, x = alt.Chart(points_of), level_axis(results)
    y = alt.Y(f"{_COLUMN}:Q", title=results.tokens_per_s)
    tooltip = ["curve:N", "point:N", alt.Tooltip("text:N", title="load")]
    return [
        base.mark_rule(strokeWidth=6, opacity=0.3, strokeCap="round", clip=True).encode(
            x=level_axis(results, "low"), x2="high:Q", y=y, color=curve_colour(results)
        ),
        base.mark_point(shape="diamond", fill="white", color="black", size=110, strokeWidth=1.5, opacity=1).encode(
            x=x, y=y, tooltip=tooltip
        ),
        base.mark_text(dy=14, fontSize=12, fontWeight="bold").encode(x=x, y=y, text="point:N"),
    ]
