"""Two sets of runs, pair by pair: how far the candidate is from the baseline, and whether chance explains it.

Definitions, and how often a verdict is wrong or missed: docs/metrics.md, Comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from bench.analysis.locked import differences
from bench.analysis.repeats import CONFIDENCE, student_p, student_t
from bench.errors import BenchError

__all__ = [
    "CONFIGURATION",
    "METRICS",
    "Comparison",
    "Metric",
    "beyond",
    "compare",
    "compare_with_baseline",
    "overall",
    "regressions",
]


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
    "tokens_per_joule": Metric("tokens a joule", True),
}
# What repeats have in common. A workload's name holds the lengths that a ladder gives it.
CONFIGURATION = ("deployment", "workload", "axis", "level")
_SAME = ("same_low", "same_high")
# `nth` tells runs apart that have the same repeat, as those of `bench workload` do.
_RUN = (*CONFIGURATION, "repeat", "nth")


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline.

    Attributes:
        pairs: one row a metric and pair of runs: `CONFIGURATION`, `repeat`, `nth`, `metric`, `log_ratio` (ln candidate / baseline).
        overall: one row a metric, see `overall`, and `same_low`, `same_high`, see `beyond`. configurations: one row a metric and
            configuration, likewise, of its repeats alone and at 95 % each.
        runs, invalid: runs of the baseline and of the candidate; how many of them were left out as invalid.
        alone: valid runs without a counterpart: `side` (`baseline` or `candidate`) and what tells runs apart.
        absent: metrics that one side has, and no pair.
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
        baseline, candidate: summary rows. metrics: keys of `METRICS`; the more are looked at, the more a verdict takes.

    Raises:
        BenchError: several deployments, and none in common.
    """
    baseline, candidate = (side.with_columns(own=pl.col("deployment")) for side in (baseline, candidate))
    baseline = _called_alike(baseline, candidate)
    ours, theirs = (_prepared(side, metrics) for side in (baseline, candidate))
    both = _in_order(ours.join(theirs, on=_RUN, suffix="_candidate", maintain_order="left"))
    pairs = pl.concat([_log_ratios(both, metric) for metric in metrics])
    found = set(pairs["metric"])
    each = _effects(pairs, ("metric", *CONFIGURATION)).with_columns(confidence=pl.lit(CONFIDENCE))
    return Comparison(
        pairs=pairs,
        overall=overall(pairs).with_columns(pl.lit(None, pl.Float64).alias(name) for name in _SAME),
        configurations=_intervals(each).rename({"n": "pairs"}),
        runs=(baseline.height, candidate.height),
        invalid=(baseline.height - ours.height, candidate.height - theirs.height),
        alone=pl.concat(
            side.join(other, on=_RUN, how="anti").select(
                pl.lit(name).alias("side"), pl.col("own").alias("deployment"), *_RUN[1:]
            )
            for name, side, other in (("baseline", ours, theirs), ("candidate", theirs, ours))
        ),
        absent=[metric for metric in metrics if metric not in found and any(side[metric].count() for side in (ours, theirs))],
        differences=differences(both),
    )


def compare_with_baseline(runs: pl.DataFrame, metrics: Sequence[str] = tuple(METRICS)) -> dict[str, Comparison]:
    """Each deployment of a study that has a load in common with its baseline, compared with it.

    Where the study measures the baseline's deployment under other names too, in sessions of their own, verdicts lie `beyond` what such
    sessions differ by, and those have none.

    Args:
        runs: summary rows, with `baseline` (true for the runs of the deployment that the study names so) and `replica` (for those of
            a deployment that is the same).

    Returns:
        The comparisons by deployment, in the study's order; none where the study names no baseline.
    """
    baseline, others = runs.filter("baseline"), runs.filter(~pl.col("baseline"))
    load = ["workload", "axis", "level"]
    names = others.join(baseline, on=load, how="semi", maintain_order="left")["deployment"].unique(maintain_order=True)
    replicas = set(others.filter("replica")["deployment"])
    found = {name: compare(baseline, others.filter(pl.col("deployment") == name), metrics) for name in names}
    again = [found[name] for name in names if name in replicas]
    judged = {name: beyond(comparison, again) for name, comparison in found.items()}
    return judged | {name: _known_alike(judged[name]) for name in names if name in replicas}


def beyond(found: Comparison, again: Sequence[Comparison]) -> Comparison:
    """`found` with verdicts only where the candidate lies outside of what one more session of the baseline would show.

    No interval of runs knows what differs between one session and another (a server's start, a machine that is slower for a while).
    Sessions of the same deployment do: of k of them, with the mean log ratio m to the first and the standard deviation s, one more lies
    within m ± t · s · √(1 + 1/k), 95 times in 100 (Student's t for k − 1: a normal sample's prediction interval). Of two, t is 12.7.

    Args:
        again: the baseline's k − 1 other sessions, compared with it. A metric that none of them has is judged as without.

    Returns:
        `overall` has that range for each metric: `same_low` and `same_high`, as ratios.
    """
    if not again:
        return found
    logs = [other.overall.select("metric", log=pl.col("ratio").log()) for other in again]
    sessions = pl.concat([found.overall.select("metric", log=pl.lit(0.0)), *logs])
    known = (
        sessions.group_by("metric")
        .agg(n=pl.len(), mean=pl.col("log").mean(), spread=pl.col("log").std())
        .filter(pl.col("n") > 1)
    )
    t = pl.Series([student_t(n - 1) for n in known["n"]], dtype=pl.Float64)
    half = t * known["spread"] * (1 + 1 / known["n"]).sqrt()
    ranges = known.select("metric", same_low=(known["mean"] - half).exp(), same_high=(known["mean"] + half).exp())
    same = pl.col("ratio").is_between("same_low", "same_high")
    verdict = pl.when(same).then(pl.lit("no evidence")).otherwise("verdict")

    def judged(effects: pl.DataFrame) -> pl.DataFrame:
        known = effects.drop(*_SAME, strict=False).join(ranges, on="metric", how="left", maintain_order="left")
        return known.with_columns(verdict=verdict)

    return replace(found, overall=judged(found.overall), configurations=judged(found.configurations).drop(_SAME))


def _known_alike(found: Comparison) -> Comparison:
    """A comparison of a deployment with itself: whatever differs is no evidence of anything."""
    verdict = pl.lit("no evidence").alias("verdict")
    return replace(
        found, overall=found.overall.with_columns(verdict), configurations=found.configurations.with_columns(verdict)
    )


def overall(pairs: pl.DataFrame, *, by: Sequence[str] = ("metric",)) -> pl.DataFrame:
    """The effect on each metric over all pairs, with a verdict that is corrected for the number of metrics (Holm).

    The repeats of a configuration share what is particular to it, so they are averaged first: the sample is the k configurations' mean
    log ratios. The interval is mean ± t · s / √k, with t Student's for k − 1 degrees of freedom. Where there is a single configuration,
    its repeats are the sample.

    Args:
        pairs: `by`, `CONFIGURATION`, `log_ratio`. by: the columns that tell comparisons apart, `metric` among them.

    Returns:
        One row a value of `by`: `levels` (configurations), `pairs`, `ratio` (candidate / baseline), `low`, `high` and the `confidence`
        of the two (null for a sample of one), `verdict` (`better` and `worse` where they lie on one side of 1, else `no evidence`).
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
    comparison = [name for name in by if name != "metric"]
    effects = _effects(sample, by).with_columns(confidence=_holm(comparison))
    return counts.join(_intervals(effects).drop("n"), on=by, how="left", maintain_order="left")


def regressions(overall: pl.DataFrame, beyond_percent: float = 0.0) -> pl.DataFrame:
    """The metrics that are worse by more than `beyond_percent` of the baseline: their whole interval is."""
    share = beyond_percent / 100
    beyond = pl.when(_higher_is_better()).then(pl.col("high") < 1 - share).otherwise(pl.col("low") > 1 + share)
    return overall.filter((pl.col("verdict") == "worse") & beyond)


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


def _prepared(runs: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """The valid runs with `nth`, and a column for each metric: of nulls where nothing measured it."""
    nothing = [pl.lit(None, pl.Float64).alias(metric) for metric in metrics if metric not in runs.columns]
    return runs.filter("valid").with_columns(*nothing, nth=pl.int_range(pl.len()).over(*CONFIGURATION, "repeat"))


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


def _effects(sample: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Of each group: `n`, the `mean` of its `log_ratio`, its standard `error`, and `p`, how probable one so far from 0 is by chance.

    The latter two are null for n = 1.
    """
    value = pl.col("log_ratio")
    effects = sample.group_by(by, maintain_order=True).agg(
        n=pl.len().cast(pl.Int64), mean=value.mean(), error=value.std() / pl.len().sqrt()
    )
    t = effects["mean"] / effects["error"]  # 0 / 0: no difference, and no spread
    return effects.with_columns(p=student_p(t.fill_nan(0.0), effects["n"] - 1))


def _holm(comparison: Sequence[str]) -> pl.Expr:
    """The confidence at which each metric of a comparison is judged, by Holm's steps; null where `p` is.

    The k-th smallest of m p-values is held against 0.05 / (m − k + 1), until one is above it; that one and all after it are judged at
    its level. So p is at most its level just where the interval of that confidence leaves out 1. Metrics that say the same, such as
    tokens/s and requests/s where all answers are as long, are judged alike: at the lower level of theirs.
    """

    def within(expression: pl.Expr) -> pl.Expr:
        return expression.over(comparison) if comparison else expression

    p = pl.col("p")
    left = within(p.count()) - within(p.round_sig_figs(6).rank("min")) + 1  # m − k + 1
    first_above = within(left.filter(p > (1 - CONFIDENCE) / left).max())
    return 1 - (1 - CONFIDENCE) / pl.max_horizontal(left, first_above)


def _intervals(effects: pl.DataFrame) -> pl.DataFrame:
    """The means as ratios, with Student's interval at `confidence` and the verdict.

    Returns:
        The rows with `ratio`, `low`, `high`, `confidence` and `verdict` in place of `mean`, `error` and `p`.
    """
    asked = effects.filter(pl.col("error").is_not_null()).select("n", "confidence").unique()
    quantiles = [student_t(n - 1, confidence) for n, confidence in asked.rows()]
    t = asked.with_columns(t=pl.Series(quantiles, dtype=pl.Float64))
    told = effects.join(t, on=["n", "confidence"], how="left", maintain_order="left")
    half = pl.col("t") * pl.col("error")
    ends = {"ratio": pl.col("mean"), "low": pl.col("mean") - half, "high": pl.col("mean") + half}
    higher, above, below = _higher_is_better(), pl.col("low") > 1, pl.col("high") < 1
    better, worse = pl.when(higher).then(above).otherwise(below), pl.when(higher).then(below).otherwise(above)
    verdict = pl.when(better).then(pl.lit("better")).when(worse).then(pl.lit("worse")).otherwise(pl.lit("no evidence"))
    told = told.with_columns(log.exp().alias(name) for name, log in ends.items()).with_columns(verdict=verdict)
    return told.drop("mean", "error", "p", "t")


def _higher_is_better() -> pl.Expr:
    directions = {name: metric.higher_is_better for name, metric in METRICS.items()}
    return pl.col("metric").replace_strict(directions, return_dtype=pl.Boolean)
