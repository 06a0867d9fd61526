"""Two sets of runs, pair by pair: how far the candidate is from the baseline, and whether chance explains it.

Definitions, and how often a verdict is wrong or missed: docs/metrics.md, Comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from bench.analysis.locked import differences
from bench.analysis.repeats import CONFIDENCE, student_t
from bench.errors import BenchError

__all__ = ["CONFIGURATION", "METRICS", "Comparison", "Metric", "compare", "compare_with_baseline", "overall", "regressions"]


@dataclass(frozen=True)
class Metric:
    """What a metric is called, and which way is better."""

    title: str
    higher_is_better: bool


METRICS = {
    "throughput_tokens_per_s": Metric("output tokens/s", True),
    "throughput_requests_per_s": Metric("requests/s", True),
    "ttft_p50_s": Metric("TTFT P50", False),
    "ttft_p99_s": Metric("TTFT P99", False),
    "tpot_p50_s": Metric("TPOT P50", False),
    "e2e_p50_s": Metric("E2E P50", False),
}
# What repeats have in common. A workload's name holds the lengths that a ladder gives it.
CONFIGURATION = ("deployment", "workload", "axis", "level")
# `nth` tells runs apart that have the same repeat, as those of `bench workload` do.
_RUN = (*CONFIGURATION, "repeat", "nth")


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline.

    Attributes:
        pairs: one row a metric and pair of runs: `CONFIGURATION`, `repeat`, `nth`, `metric`, `log_ratio` (ln candidate / baseline).
        overall: one row a metric, see `overall`. configurations: one row a metric and configuration, likewise, at 95 % each.
        runs, invalid: runs of the baseline and of the candidate; how many of them were left out as invalid.
        alone: valid runs without a counterpart: `side` (`baseline` or `candidate`) and what tells runs apart.
        absent: metrics of which no pair has a value.
        differences: what should be the same in both and is not, in words.
    """

    pairs: pl.DataFrame
    overall: pl.DataFrame
    configurations: pl.DataFrame
    runs: tuple[int, int]
    invalid: tuple[int, int]
    alone: pl.DataFrame
    absent: list[str]
    differences: list[str]

    @property
    def matched(self) -> int:
        """Pairs of runs."""
        return self.pairs.select(_RUN).n_unique()


def compare(baseline: pl.DataFrame, candidate: pl.DataFrame, metrics: Sequence[str] = tuple(METRICS)) -> Comparison:
    """Compare the runs of `candidate` with those of `baseline` that have the same workload, load and repeat.

    Deployments are matched by name; where each side has one, they are matched whatever they are called.

    Args:
        baseline, candidate: summary rows. metrics: keys of `METRICS`; the more are looked at, the wider is each interval.

    Raises:
        BenchError: several deployments, and none in common.
    """
    baseline, candidate = (side.with_columns(own=pl.col("deployment")) for side in (baseline, candidate))
    baseline = _called_alike(baseline, candidate)
    ours, theirs = (_numbered(_with_columns(side.filter("valid"), metrics)) for side in (baseline, candidate))
    both = _in_order(ours.join(theirs, on=_RUN, suffix="_candidate", maintain_order="left"))
    pairs = pl.concat([_log_ratios(both, metric) for metric in metrics])
    found = set(pairs["metric"])
    return Comparison(
        pairs=pairs,
        overall=overall(pairs),
        configurations=_verdicts(_intervals(pairs, ("metric", *CONFIGURATION), CONFIDENCE)),
        runs=(baseline.height, candidate.height),
        invalid=(baseline.height - ours.height, candidate.height - theirs.height),
        alone=pl.concat(
            side.join(other, on=_RUN, how="anti").select(
                pl.lit(name).alias("side"), pl.col("own").alias("deployment"), *_RUN[1:]
            )
            for name, side, other in (("baseline", ours, theirs), ("candidate", theirs, ours))
        ),
        absent=[metric for metric in metrics if metric not in found],
        differences=differences(both),
    )


def compare_with_baseline(runs: pl.DataFrame, metrics: Sequence[str] = tuple(METRICS)) -> dict[str, Comparison]:
    """Each deployment of a study that has a load in common with its baseline, compared with it.

    Args:
        runs: summary rows, with `baseline` (true for the runs of the deployment that the study names so).

    Returns:
        The comparisons by deployment, in the study's order; none where the study names no baseline.
    """
    baseline, others = runs.filter("baseline"), runs.filter(~pl.col("baseline"))
    load = ["workload", "axis", "level"]
    names = others.join(baseline, on=load, how="semi", maintain_order="left")["deployment"].unique(maintain_order=True)
    return {name: compare(baseline, others.filter(pl.col("deployment") == name), metrics) for name in names}


def overall(pairs: pl.DataFrame, *, by: Sequence[str] = ("metric",)) -> pl.DataFrame:
    """The effect on each metric over all pairs, with intervals that hold for all of the metrics together.

    The repeats of a configuration share what is particular to it, so they are averaged first: the sample is the k configurations' mean
    log ratios. The interval is mean ± t · s / √k, with t Student's for k − 1 degrees of freedom at 1 − 0.05 / m, for m metrics. Where
    there is a single configuration, its repeats are the sample.

    Args:
        pairs: `by`, `CONFIGURATION`, `log_ratio`. by: the columns that tell comparisons apart, `metric` among them.

    Returns:
        One row a value of `by`: `levels` (configurations), `pairs`, `ratio` (candidate / baseline), `low`, `high` (null for a sample of
        one), `verdict` (`better` and `worse` where the interval lies on one side of 1, else `no evidence`).
    """
    configurations = pairs.group_by(*by, *CONFIGURATION, maintain_order=True).agg(
        pl.col("log_ratio").mean(), pairs=pl.len().cast(pl.Int64)
    )
    counts = configurations.group_by(by, maintain_order=True).agg(levels=pl.len().cast(pl.Int64), pairs=pl.col("pairs").sum())
    several = counts.filter(pl.col("levels") > 1)
    columns = [*by, "log_ratio"]
    sample = pl.concat(
        [
            configurations.join(several, on=by, how="semi").select(columns),
            pairs.join(several, on=by, how="anti").select(columns),
        ]
    )
    confidence = 1 - (1 - CONFIDENCE) / max(1, pairs["metric"].n_unique())
    effects = _intervals(sample, by, confidence).drop("pairs")
    return _verdicts(counts.join(effects, on=by, how="left", maintain_order="left"))


def regressions(overall: pl.DataFrame, beyond_percent: float = 0.0) -> list[str]:
    """Metrics that are worse by more than `beyond_percent` of the baseline: their whole interval is."""
    share = beyond_percent / 100
    beyond = pl.when(_higher_is_better()).then(pl.col("high") < 1 - share).otherwise(pl.col("low") > 1 + share)
    return overall.filter((pl.col("verdict") == "worse") & beyond)["metric"].to_list()


def _called_alike(baseline: pl.DataFrame, candidate: pl.DataFrame) -> pl.DataFrame:
    """The baseline's rows, under the candidate's deployment where each side has only one.

    Raises:
        BenchError: several, and none in common.
    """
    ours, theirs = (side["deployment"].unique(maintain_order=True).to_list() for side in (baseline, candidate))
    if len(ours) == len(theirs) == 1:
        return baseline.with_columns(deployment=pl.lit(theirs[0]))
    if not set(ours) & set(theirs):
        raise BenchError(
            f"the baseline has the deployments {', '.join(ours)}, the candidate {', '.join(theirs)}: none in common. "
            "Name the two that are meant, as in PATH:DEPLOYMENT."
        )
    return baseline


def _with_columns(runs: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """The runs with a column for each metric: of nulls where nothing measured it."""
    return runs.with_columns(pl.lit(None, pl.Float64).alias(metric) for metric in metrics if metric not in runs.columns)


def _numbered(runs: pl.DataFrame) -> pl.DataFrame:
    repeat = [*CONFIGURATION, "repeat"]
    return runs.with_columns(nth=pl.int_range(pl.len(), dtype=pl.Int64).over(repeat))


def _in_order(both: pl.DataFrame) -> pl.DataFrame:
    """Deployments and workloads as the study has them, their levels rising."""
    first = pl.col("row").min().over("deployment", "workload")
    return both.with_row_index("row").sort(first, "level", "repeat", "nth").drop("row")


def _log_ratios(both: pl.DataFrame, metric: str) -> pl.DataFrame:
    """ln (candidate / baseline) of each pair that has a value of `metric` above 0 on both sides."""
    ours, theirs = (pl.col(name).cast(pl.Float64) for name in (metric, f"{metric}_candidate"))
    return both.filter((ours > 0) & (theirs > 0)).select(
        *_RUN, pl.lit(metric).alias("metric"), log_ratio=theirs.log() - ours.log()
    )


def _intervals(sample: pl.DataFrame, by: Sequence[str], confidence: float) -> pl.DataFrame:
    """Mean of `log_ratio` in each group as a ratio, with Student's interval: `pairs`, `ratio`, `low`, `high` (null for one pair)."""
    groups = sample.group_by(by, maintain_order=True).agg(
        pairs=pl.len().cast(pl.Int64), mean=pl.col("log_ratio").mean(), deviation=pl.col("log_ratio").std()
    )
    quantiles = {n: student_t(n - 1, confidence) for n in groups["pairs"].unique() if n > 1}
    t = pl.col("pairs").replace_strict(quantiles, default=None, return_dtype=pl.Float64)
    half = t * pl.col("deviation") / pl.col("pairs").sqrt()
    return groups.select(
        *by,
        "pairs",
        ratio=pl.col("mean").exp(),
        low=(pl.col("mean") - half).exp(),
        high=(pl.col("mean") + half).exp(),
    )


def _verdicts(effects: pl.DataFrame) -> pl.DataFrame:
    above, below = pl.col("low") > 1, pl.col("high") < 1
    better = pl.when(_higher_is_better()).then(above).otherwise(below)
    worse = pl.when(_higher_is_better()).then(below).otherwise(above)
    named = pl.when(better).then(pl.lit("better")).when(worse).then(pl.lit("worse")).otherwise(pl.lit("no evidence"))
    return effects.with_columns(verdict=named)


def _higher_is_better() -> pl.Expr:
    directions = {name: metric.higher_is_better for name, metric in METRICS.items()}
    return pl.col("metric").replace_strict(directions, return_dtype=pl.Boolean)
