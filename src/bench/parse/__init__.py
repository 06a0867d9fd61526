"""Raw records become tidy tables, and one summary a run."""

from bench.parse.devices import DEVICE_SERIES, device_figures, device_samples
from bench.parse.latency import latency_columns, throughput_series
from bench.parse.percentiles import percentile, tail_text, upper_bound
from bench.parse.recovery import Recovery, recovery
from bench.parse.run import parse_run
from bench.parse.scrapes import series_name, telemetry_table, wide_table
from bench.parse.server import gauges

__all__ = [
    "DEVICE_SERIES",
    "Recovery",
    "device_figures",
    "device_samples",
    "gauges",
    "latency_columns",
    "parse_run",
    "percentile",
    "recovery",
    "series_name",
    "tail_text",
    "telemetry_table",
    "throughput_series",
    "upper_bound",
    "wide_table",
]
