"""Costs, revenue and profit over the load, and their chart."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import polars as pl

from bench.findings.sizing import HOUR_S, gpus_of
from bench.findings.tables import Tables
from bench.models.catalogue import Accelerator
from bench.report.blocks import Column, Section, Table, Text
from bench.report.figure import alt, figure
from bench.report.theme import NEUTRAL, level_axis, nothing_to_show, panels_a_row, with_curve
from bench.study.decision import Decision

if TYPE_CHECKING:
    from bench.findings.view import View

_KWH = 3.6e6  # joules of a kilowatt-hour; derived


def gpu_hour(decision: Decision, device: Accelerator | None) -> float | None:
    """USD an hour of one GPU, or of the machine of an engine on a CPU: the decision's, else the device's; None without either."""
    return decision.price_per_hour or (device.price_per_hour if device else None)


def economics(runs: pl.DataFrame, decision: Decision, device: Accelerator | None) -> pl.DataFrame:
    """Each run with what its load would cost and earn, were it there for an hour.

    Revenue R = price ÷ 10⁶ × output tokens/s × 3,600. Cost C = fixed (GPUs × price an hour) + energy (W ÷ 1,000 × price a kWh) +
    requests/s × 3,600 × price ÷ 10⁶. Energy: the mean power measured of all GPUs; else GPUs × the device's board power, which is
    the most that they draw; of a CPU without either, none. Profit Π = R − C.

    Rates are those of the steady window, and of a burst those of the whole run.

    Args:
        runs: summary rows.

    Returns:
        The rows with `fixed_per_h`, `energy_per_h`, `requests_per_h`, `cost_per_h`, `revenue_per_h`, `profit_per_h` (USD an hour; cost
        and what follows null without the number of GPUs or a price of them, revenue and profit without one of tokens),
        `cost_per_million_tokens` (USD), and `priced_tokens_per_s`, the output tokens/s that they are for.
    """
    gpus = pl.Series([gpus_of(run) for run in runs.select("gpus").iter_rows(named=True)], dtype=pl.Int64)
    board = pl.lit(device.power_w if device else None, dtype=pl.Float64) * pl.lit(gpus)
    watts = pl.coalesce(pl.col("gpu_power_mean_w"), board).fill_null(0.0)
    tokens, requests = (
        pl.coalesce(f"steady_{unit}_per_s", f"throughput_{unit}_per_s") * HOUR_S for unit in ("tokens", "requests")
    )
    return (
        runs.with_columns(
            fixed_per_h=pl.lit(gpus) * pl.lit(gpu_hour(decision, device), dtype=pl.Float64),
            energy_per_h=watts * HOUR_S / _KWH * decision.energy_price_per_kwh,
            requests_per_h=requests * decision.cost_per_million_requests / 1e6,
            revenue_per_h=tokens * pl.lit(decision.price_per_million_tokens, dtype=pl.Float64) / 1e6,
        )
        .with_columns(cost_per_h=pl.sum_horizontal("energy_per_h", "requests_per_h") + pl.col("fixed_per_h"))
        .with_columns(
            priced_tokens_per_s=tokens / HOUR_S,
            profit_per_h=pl.col("revenue_per_h") - pl.col("cost_per_h"),
            cost_per_million_tokens=pl.col("cost_per_h") / tokens * 1e6,
        )
    )


def lasting(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs whose load goes on; all, where every one is a burst: nobody's traffic is a burst for an hour."""
    on = runs.filter(pl.col("arrival") != "burst")
    return runs if on.is_empty() else on


def best_points(priced: pl.DataFrame) -> pl.DataFrame:
    """The level of each curve that leaves the most profit, and the lowest that earns its cost.

    Args:
        priced: rows of `economics`; invalid runs are left out, repeats of a level stand for it by their mean.

    Returns:
        One row a deployment and workload that has a profit: `best_at` (level), and there `fixed_per_h`, `variable_per_h` (energy and
        requests), `cost_per_h`, `revenue_per_h`, `profit_per_h` (USD an hour), `priced_tokens_per_s` and `cost_per_million_tokens`
        (USD); `break_even_at`, the lowest level that earns its cost (null where none does), and `break_even_tokens_per_s`, the output
        tokens/s at which R = C with the costs of the best level.
    """
    curve = ["deployment", "workload"]
    known = lasting(priced.filter(pl.col("valid") & (pl.col("priced_tokens_per_s") > 0)).drop_nulls("profit_per_h"))
    means = pl.col("fixed_per_h", "cost_per_h", "revenue_per_h", "profit_per_h", "priced_tokens_per_s").mean()
    levels = known.group_by(*curve, "level", maintain_order=True).agg(means)
    earns = levels.filter(pl.col("profit_per_h") >= 0).group_by(curve).agg(break_even_at=pl.col("level").min())
    best = levels.sort("profit_per_h", "level", descending=[True, False]).unique(curve, keep="first")
    found = known.select(curve).unique(maintain_order=True).join(best, on=curve, maintain_order="left")
    return found.rename({"level": "best_at"}).join(earns, on=curve, how="left", maintain_order="left").with_columns(
        variable_per_h=pl.col("cost_per_h") - pl.col("fixed_per_h"),
        break_even_tokens_per_s=pl.col("cost_per_h") / pl.col("revenue_per_h") * pl.col("priced_tokens_per_s"),
        cost_per_million_tokens=pl.col("cost_per_h") / (pl.col("priced_tokens_per_s") * HOUR_S) * 1e6,
    )  # fmt: skip


_LINES = {
    "fixed_per_h": "fixed cost",
    "variable_per_h": "variable cost",
    "cost_per_h": "total cost",
    "revenue_per_h": "revenue",
    "profit_per_h": "profit",
}
_DASHES = [[1, 4], [4, 3], [9, 2, 2, 2], [12, 4], [1, 0]]


def price_note(decision: Decision, device: Accelerator | None, runs: pl.DataFrame) -> str:
    """Where the price of a GPU is from, and how old it was when `runs` were measured; empty without a price."""
    if decision.price_per_hour:
        return f" {decision.price_per_hour:g} USD an hour of a GPU (or machine) is the study's own price."
    if device is None or device.price_per_hour is None:
        return ""
    measured = max(runs["started"].drop_nulls(), default="")[:10]
    remark = device.price_remark(date.fromisoformat(measured) if measured else date.today())
    return f" {device.price_per_hour:g} USD an hour of a GPU: {remark}."


@figure(
    "economics",
    title="Costs, revenue and profit against demand",
    question="From which load on does an instance earn what it costs?",
    reading="Fixed, variable and total cost, revenue, and profit (thick), at the study's prices. Diamond: the load that earns "
    "the most; upright: what is sustained within the SLOs.",
    invalid="Left out",
)
def economics_chart(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """What an instance costs and earns over load, a panel a curve."""
    priced = lasting(results.priced.filter("valid").drop_nulls("profit_per_h"))
    if priced.is_empty():
        valid = results.priced["valid"].any()
        return nothing_to_show("no price of an hour and of tokens is given" if valid else "no run is valid")
    best = {(row["deployment"], row["workload"]): row for row in best_points(priced).to_dicts()}
    points = {(row["deployment"], row["workload"]): row["operate_at"] for row in results.points.to_dicts()}
    parts = with_curve(results, priced).partition_by("deployment", "workload", as_dict=True)
    panels = [_panel(results, part, best[curve], points.get(curve)) for curve, part in parts.items() if curve in best]
    return alt.concat(*panels, columns=panels_a_row(len(panels), most=3))


def _panel(results: Tables, part: pl.DataFrame, best: dict[str, float], operated: float | None) -> alt.LayerChart:
    costs = part.with_columns(variable_per_h=pl.col("cost_per_h") - pl.col("fixed_per_h"))
    levels = costs.group_by("curve", "level", maintain_order=True).agg(pl.col(*_LINES).mean()).sort("level")
    rows = levels.unpivot(on=list(_LINES), index=["curve", "level"], variable_name="line", value_name="usd")
    x, y = level_axis(results), alt.Y("usd:Q", title="USD an hour")
    kinds = list(_LINES.values())
    base = alt.Chart(rows.with_columns(pl.col("line").replace(_LINES)))
    scale, legend = alt.Scale(domain=kinds, range=_DASHES), alt.Legend(symbolSize=1200)  # as long as two of the longest dash
    dash = alt.StrokeDash("line:N", sort=kinds, title=None, scale=scale, legend=legend)
    width = alt.condition("datum.line == 'profit'", alt.value(3), alt.value(1.5))
    diamond = alt.Chart(pl.DataFrame({"level": [best["best_at"]], "usd": [best["profit_per_h"]]}))
    operating = pl.DataFrame({"level": [] if operated is None else [operated]}, schema={"level": pl.Float64})
    layers = [
        alt.Chart(operating).mark_rule(color=NEUTRAL).encode(x=x),
        base.mark_line(color="black").encode(x=x, y=y, strokeDash=dash, strokeWidth=width, detail="line:N"),
        base.mark_point(size=60, opacity=0).encode(
            x=x, y=y, tooltip=["curve:N", "line:N", "level:Q", alt.Tooltip("usd:Q", title="USD an hour", format=".4f")]
        ),
        diamond.mark_point(shape="diamond", fill="white", color="black", size=130, opacity=1).encode(x=x, y=y),
    ]
    title = alt.TitleParams(part["curve"][0], fontSize=15, anchor="start")
    return alt.LayerChart(layer=layers, width=280, height=240, title=title)


def section(view: View) -> Section:
    results, counted = view.results, view.results.counted
    decision = results.decision
    within = {(curve.deployment, curve.workload): curve.there["profit_per_h"] for curve in view.curves}
    rows = view.of_curves(
        {**row, "within": within[row["deployment"], row["workload"]]} for row in best_points(results.priced_curves).to_dicts()
    )
    if not rows:
        return Section("economics", "Economics", [])
    columns = [
        Column("curve", "curve"),
        Column("earns its cost from", "break_even_at", "%g"),
        Column("earns the most at", "best_at", "%g"),
        Column("fixed cost", "fixed_per_h", "%.2g"),
        Column("variable cost", "variable_per_h", "%.2g"),
        Column("revenue", "revenue_per_h", "%.2g"),
        Column("profit", "profit_per_h", "%.2g"),
        Column("tokens/s there", "priced_tokens_per_s", "%.0f"),
        Column(f"USD a million {counted} there", "cost_per_million_tokens", "%.3g"),
        Column("break-even (tokens/s)", "break_even_tokens_per_s", "%.0f"),
        Column("profit within the SLOs", "within", "%.2g"),
    ]
    kwh, requests = decision.energy_price_per_kwh, decision.cost_per_million_requests
    variable = f" energy at {kwh:g} USD a kWh" if kwh else ""
    variable += f" {requests:g} USD a million requests" if requests else ""
    meaning = (
        f"Revenue: {counted}/s × {decision.price_per_million_tokens:g} USD a million. Fixed: GPUs (or machines) × "
        f"price an hour. Variable:{variable or ' none'}. The best load may miss the SLOs."
        + price_note(decision, results.device, results.runs)
    )
    table = Table("The load that earns the most on one instance (USD an hour)", columns, rows)
    return Section("economics", "Economics", [table, Text(meaning)])
