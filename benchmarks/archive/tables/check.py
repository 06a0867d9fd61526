"""Whether both sides made the same tables."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal

__all__ = ["check_same"]

_TOLD = [
    *("deployment", "run", "level", "repeat", "requests", "ok", "duration_s"),
    *("throughput_tokens_per_s", "throughput_peak_tokens_per_s", "preemptions", "server_generation_tokens"),
    *(f"{name}_{what}_s" for name in ("ttft", "e2e", "tpot", "itl") for what in ("mean", "p50", "p90", "p95", "p99")),
    *("kv_usage_peak", "running_peak", "waiting_peak", "server_ttft_mean_s", "server_e2e_mean_s"),
]


def check_same(ours: Path, theirs: Path) -> int:
    """Compare the summaries of all runs and the telemetry of each; the number of samples that are equal.

    Raises:
        AssertionError: they differ; it says in what.
    """
    mine, its = (
        pl.read_parquet(results / "summary.parquet").select(_TOLD).sort("deployment", "run") for results in (ours, theirs)
    )
    assert_frame_equal(mine, its, check_dtypes=False, rel_tol=1e-9)
    samples = 0
    for path in sorted(ours.glob("runs/*/*/telemetry.parquet")):
        columns = ["scrape", "elapsed_s", pl.col("name", "labels").cast(pl.String), "value"]
        mine, its = (pl.read_parquet(results / path.relative_to(ours)).select(columns) for results in (ours, theirs))
        assert_frame_equal(mine, its, check_dtypes=False, check_exact=True)
        samples += len(mine)
        mine, its = (pl.read_csv((results / path.relative_to(ours)).with_name("metrics.csv")) for results in (ours, theirs))
        assert_frame_equal(mine, its, check_column_order=False, check_dtypes=False)
    return samples
