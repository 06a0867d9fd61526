"""Scraped exposition text as tables: tidy, and the study's wide form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from prometheus_client.parser import text_string_to_metric_families

from bench.errors import BenchError

__all__ = ["TELEMETRY_SCHEMA", "read_scrapes", "series_name", "telemetry_table", "wide_table"]

TELEMETRY_SCHEMA = {
    "scrape": pl.Int32,
    "elapsed_s": pl.Float64,
    "endpoint": pl.String,
    "name": pl.String,
    "labels": pl.String,
    "value": pl.Float64,
}


def read_scrapes(path: Path) -> Iterator[dict[str, Any]]:
    """The scrapes in `telemetry.jsonl.gz`, in order; a file whose end was lost (a killed scraper) gives what it has."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        try:
            for line in file:
                yield json.loads(line)
        except (EOFError, json.JSONDecodeError):
            return
        except gzip.BadGzipFile as error:
            raise BenchError(f"{path}: {error}; discard the run (`bench discard`) and measure it again.") from None


def telemetry_table(path: Path, start: float) -> pl.DataFrame:
    """Every sample of every scrape.

    Args:
        path: the raw scrapes. start: the run's start on their clock (s).

    Returns:
        `scrape` (number), `elapsed_s` (middle of sending and receiving, since `start`; s), `endpoint`, `name`, `labels` (as
        `a="1",b="2"`, sorted), `value`. Scrapes that failed are left out.
    """
    columns: dict[str, list[Any]] = {name: [] for name in TELEMETRY_SCHEMA}
    for scrape in read_scrapes(path):
        if "text" not in scrape:
            continue
        elapsed = round((scrape["sent"] + scrape["received"]) / 2 - start, 6)
        for family in text_string_to_metric_families(scrape["text"]):
            for sample in family.samples:
                columns["scrape"].append(scrape["slot"])
                columns["elapsed_s"].append(elapsed)
                columns["endpoint"].append(scrape["endpoint"])
                columns["name"].append(sample.name)
                columns["labels"].append(_labels(sample.labels))
                columns["value"].append(sample.value)
    return pl.DataFrame(columns, schema=TELEMETRY_SCHEMA)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(labels.items()))


def series_name() -> pl.Expr:
    """Name and label set, a series' identity: `name{a="1"}`."""
    return (
        pl.when(pl.col("labels") == "")
        .then(pl.col("name"))
        .otherwise(pl.concat_str("name", pl.lit("{"), "labels", pl.lit("}")))
    )


def wide_table(telemetry: pl.DataFrame) -> pl.DataFrame:
    """The study's form: one row a scrape, `elapsed_s` first, then one column a series; the union of all series seen.

    A series that one scrape lacks is null there. Where there are several endpoints, the series carry theirs.
    """
    name = series_name()
    if telemetry["endpoint"].n_unique() > 1:
        name = pl.format("{} {}", "endpoint", name)
    named = telemetry.with_columns(series=name)
    wide = named.pivot(on="series", index=["scrape"], values="value", aggregate_function="first")
    times = named.group_by("scrape").agg(pl.col("elapsed_s").min())
    ordered = times.join(wide, on="scrape").sort("scrape").drop("scrape")
    return ordered.select("elapsed_s", *sorted(c for c in ordered.columns if c != "elapsed_s"))
