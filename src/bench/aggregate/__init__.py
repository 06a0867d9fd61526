"""The summary table, one row a run, and every run's course over time."""

from bench.aggregate.table import aggregate, summary_frame, timeseries_frame, verdict_columns

__all__ = ["aggregate", "summary_frame", "timeseries_frame", "verdict_columns"]
