"""Raw records become tidy tables, and one summary a run."""

from bench.parse.latency import latency_columns, percentile, throughput_series
from bench.parse.run import parse_run
from bench.parse.scrapes import series_name, telemetry_table, wide_table

__all__ = [
    "latency_columns",
    "parse_run",
    "percentile",
    "series_name",
    "telemetry_table",
    "throughput_series",
    "wide_table",
]
