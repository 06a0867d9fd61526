"""What the server counted during a run."""

from __future__ import annotations

from typing import Any

import polars as pl

from bench.telemetry import COUNTERS, GAUGES, HISTOGRAMS, METRICS, SHARES

__all__ = ["gauges", "server_figures"]


def gauges(telemetry: pl.DataFrame) -> pl.DataFrame:
    """The gauges over time, one row a scrape and gauge: `scrape`, `elapsed_s`, `gauge` (our name), `value`.

    Of several label sets (engines behind one endpoint) the values add up; of shares the highest counts. NaN is no value.
    """
    ours = {exposed: name for name, exposed in GAUGES.items()}
    return (
        telemetry.filter(pl.col("name").is_in(list(ours)) & pl.col("value").is_not_nan())
        .with_columns(gauge=pl.col("name").replace(ours))
        .group_by("scrape", "elapsed_s", "gauge")
        .agg(total=pl.col("value").sum(), highest=pl.col("value").max())
        .with_columns(value=pl.when(pl.col("gauge").is_in(SHARES)).then("highest").otherwise("total"))
        .select("scrape", "elapsed_s", "gauge", "value")
        .sort("scrape", "gauge")
    )


def server_figures(telemetry: pl.DataFrame, *, scraped: bool) -> dict[str, Any]:
    """The catalogue's metrics over the run: gauges as their peak, counters and histograms as what they rose by.

    A metric that no scrape has, or that one lacks (or tells as NaN) after it was first there, is named in `metrics_missing`. A
    counter that falls, or one of whose label sets goes away, has lost what it counted: it is null here, and named in
    `counters_fell`. Both make the run invalid.

    Args:
        telemetry: the samples of the engine's endpoint. scraped: whether any scrape succeeded, though it may have said nothing.
    """
    if telemetry.is_empty():
        missing = sorted(METRICS.values()) if scraped else []
        return dict.fromkeys(_figures()) | {"metrics_missing": missing, "counters_fell": []}
    scrapes = telemetry["scrape"].unique()
    exposed = {**METRICS, **{f"{name}_count": f"{metric}_count" for name, metric in HISTOGRAMS.items()}}
    told = telemetry.filter(pl.col("name").is_in(list(exposed.values())) & pl.col("value").is_not_nan())
    seen = {name: (n, first) for name, n, first in
            told.group_by("name").agg(n=pl.col("scrape").n_unique(), first=pl.col("scrape").min()).iter_rows()}  # fmt: skip
    missing = [name for name in METRICS.values() if name not in seen or seen[name][0] < (scrapes >= seen[name][1]).sum()]
    rises, fell = _rises(told.filter(~pl.col("name").is_in(list(GAUGES.values()))), scrapes)
    peaks = dict(gauges(telemetry).group_by("gauge").agg(pl.col("value").max()).iter_rows())
    figures: dict[str, Any] = {f"{name}_peak": peaks.get(name) for name in GAUGES}
    figures |= {name: rises.get(metric) for name, metric in COUNTERS.items()}
    for name, metric in HISTOGRAMS.items():
        count, total = rises.get(f"{metric}_count"), rises.get(f"{metric}_sum")
        figures[f"{name}_mean_s"] = total / count if count and total is not None else None
    return {**figures, "metrics_missing": sorted(missing), "counters_fell": fell}


def _figures() -> list[str]:
    return [*(f"{name}_peak" for name in GAUGES), *COUNTERS, *(f"{name}_mean_s" for name in HISTOGRAMS)]


def _rises(counters: pl.DataFrame, scrapes: pl.Series) -> tuple[dict[str, float], list[str]]:
    """What each counter rose by from the first scrape to the last, over all of its label sets, and the names of those that fell.

    A label set that comes later counts from 0.
    """
    first, last = scrapes.min(), scrapes.max()
    series = (
        counters.sort("scrape")
        .group_by("name", "labels")
        .agg(
            rise=pl.col("value").last()
            - pl.when(pl.col("scrape").first() == first).then(pl.col("value").first()).otherwise(0.0),
            fell=(pl.col("value").diff() < 0).any() | (pl.col("scrape").last() != last),
        )
        .group_by("name")
        .agg(pl.col("rise").sum(), pl.col("fell").any())
        .sort("name")
    )
    return dict(series.filter(~pl.col("fell")).select("name", "rise").iter_rows()), series.filter("fell")["name"].to_list()
