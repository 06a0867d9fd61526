"""What decides latency and throughput: the configurations of a factor study, and how its factors and metrics go together."""

from __future__ import annotations

import itertools
import math

import polars as pl

from bench.analysis.sizing import with_devices

__all__ = [
    "FACTORS",
    "METRICS",
    "STRENGTHS",
    "cells",
    "confounded",
    "correlations",
    "marginal_means",
    "metrics_of",
    "strength",
    "varying",
    "with_metrics",
]

# Summary column → what it is called. Models are in the order of their sizes, and those of one size by name: two models are two points
# of anything, and no more.
FACTORS = {
    "level": "batch size",
    "prompt_fixed": "input length",
    "output_fixed": "output length",
    "model_order": "model",
    "tensor_parallel": "devices",
}
METRICS = {
    "ttft_mean_s": "TTFT (s)",
    "makespan_s": "makespan (s)",
    "throughput_tokens_per_s": "throughput (tokens/s)",
    "per_token_s": "normalised latency (s a token)",
}
_GPU = {"gpu_utilisation_mean": "GPU utilisation (share)", "gpu_memory_peak_bytes": "GPU memory (bytes)"}
_HOST = {"host_busy_share": "host utilisation (share)"}
_MEMORY = {"kv_usage_peak": "peak KV usage (share)"}
# |r| from … on, as the factor study of 001 has them (DATAtab's table).
STRENGTHS = {0.7: "very high", 0.5: "high", 0.3: "medium", 0.1: "low", 0.0: "none"}
_TOGETHER = 0.7  # |ρ| of two factors; from here on, what belongs to one shows of the other as well


def with_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """The valid burst runs of swept lengths, with the factor study's own metrics.

    `makespan_s` is the time from the first request sent to the last token of the batch; `per_token_s` = `makespan_s` / (b · n), b
    the batch size and n the output length. Throughput is b · n / makespan, so that the two are each other's inverse. A closed loop
    has no batch.

    Args:
        runs: summary rows with `valid`, `family`, `workload`, `arrival`, `duration_s`, `throughput_tokens_per_s`, `ttft_mean_s`, the
            factors, `model` and `parameters`; rows without a fixed length are left out.
    """
    kept = (
        runs.filter("valid")
        .filter((pl.col("arrival") == "burst") & (pl.col("workload") != pl.col("family")))
        .drop_nulls(["prompt_fixed", "output_fixed"])
    )
    return with_devices(kept).with_columns(
        tensor_parallel=pl.col("devices"),  # of the study's factors: as many as an instance has, whatever they share
        makespan_s=pl.col("duration_s"),
        per_token_s=pl.col("duration_s") / (pl.col("level") * pl.col("output_fixed")),
        model_order=pl.struct("parameters", "model").rank("dense").cast(pl.Int64),
    )


def metrics_of(runs: pl.DataFrame) -> dict[str, str]:
    """The metrics that `runs` have, by column: the four of the study, and what they say of utilisation and memory.

    The host's utilisation stands in where no GPU's is known.
    """
    known = {name for name in runs.columns if runs[name].is_not_null().any()}
    device = _GPU if "gpu_utilisation_mean" in known else _HOST
    return METRICS | {name: title for name, title in (device | _MEMORY).items() if name in known}


def cells(runs: pl.DataFrame) -> pl.DataFrame:
    """One row a configuration, with the means of its repeats, which are no further samples of the factors; `n` repeats.

    Args:
        runs: rows of `with_metrics`, of one family.
    """
    return runs.group_by("model", *FACTORS, maintain_order=True).agg(
        pl.len().alias("n"), *(pl.col(metric).mean() for metric in metrics_of(runs))
    )


def varying(rows: pl.DataFrame) -> list[str]:
    """The factors of which more than one value is known."""
    return [name for name in FACTORS if rows[name].drop_nulls().n_unique() > 1]


def confounded(rows: pl.DataFrame) -> list[tuple[str, str]]:
    """Pairs of factors that go together (|Spearman's ρ| of 0.7 or more), so that no analysis can separate their effects.

    Args:
        rows: of `cells`.

    Returns:
        Their names, as in `FACTORS`.
    """
    pairs = itertools.combinations(varying(rows), 2)
    together = {pair: rows.drop_nulls(pair).select(pl.corr(*pair, method="spearman")).item() for pair in pairs}
    return [(FACTORS[one], FACTORS[other]) for (one, other), r in together.items() if r is not None and abs(r) >= _TOGETHER]


def strength(r: float) -> str:
    """How strong a correlation is, by its size alone: a value of `STRENGTHS`."""
    return next(name for limit, name in STRENGTHS.items() if abs(r) >= limit)


def correlations(runs: pl.DataFrame) -> pl.DataFrame:
    """Pearson's and Spearman's correlation of each factor with each metric, over the configurations of each model.

    Args:
        runs: rows of `with_metrics`, of one family.

    Returns:
        One row a model, factor and metric that both vary in three configurations: `model`, `factor`, `metric` (names as in `FACTORS`
        and `metrics_of`), `r`, `rank_r`, `low`, `high` (95 % interval of r, Fisher's z, null below four configurations), `strength` and
        `n` configurations.
    """
    rows = []
    for (model,), group in cells(runs).group_by("model", maintain_order=True):
        for factor in varying(group):
            for metric, title in metrics_of(group).items():
                known = group.select(factor, metric).drop_nulls()
                if known.height < 3 or min(known[name].n_unique() for name in (factor, metric)) < 2:
                    continue
                r = known.select(pl.corr(factor, metric)).item()
                low, high = _fisher(r, known.height)
                rows.append(
                    {
                        "model": model,
                        "factor": FACTORS[factor],
                        "metric": title,
                        "r": r,
                        "rank_r": known.select(pl.corr(factor, metric, method="spearman")).item(),
                        "low": low,
                        "high": high,
                        "strength": strength(r),
                        "n": known.height,
                    }
                )
    numbers = dict.fromkeys(("r", "rank_r", "low", "high"), pl.Float64)
    words = dict.fromkeys(("model", "factor", "metric", "strength"), pl.String)
    return pl.DataFrame(rows, schema={**words, **numbers, "n": pl.Int64})


def _fisher(r: float, n: int) -> tuple[float | None, float | None]:
    """95 % interval of a correlation of n pairs, by Fisher's z = atanh r, whose deviation is about 1/√(n − 3)."""
    if n < 4 or abs(r) >= 1:
        return None, None
    z, half = math.atanh(r), 1.96 / math.sqrt(n - 3)
    return math.tanh(z - half), math.tanh(z + half)


def marginal_means(runs: pl.DataFrame, factor: str) -> pl.DataFrame:
    """Each metric over one factor, the others averaged: geometric means over the configurations that have every value of it.

    The spread is that of repeats alone: each configuration's least and most, averaged as their means are. So a repeat that is missing
    moves neither.

    Args:
        runs: rows of `with_metrics`, of one family. factor: one of `FACTORS`, but the model.

    Returns:
        One row a model, value and metric: `model`, `factor`, `value`, `metric`, `mean`, `low`, `high`, and `n`, the configurations
        averaged; nothing where no configuration has every value.
    """
    others = [name for name in FACTORS if name != factor]
    number = pl.col("number").log()
    every = pl.col(factor).n_unique()
    return (
        runs.unpivot(on=list(METRICS), index=["model", *FACTORS], variable_name="metric", value_name="number")
        .filter(pl.col("number") > 0)
        .group_by("model", "metric", *FACTORS, maintain_order=True)
        .agg(mean=number.mean(), low=number.min(), high=number.max())
        .filter(every.over("model", "metric", *others) == every.over("model", "metric"))
        .group_by("model", factor, "metric", maintain_order=True)
        .agg(pl.col("mean", "low", "high").mean().exp(), n=pl.len())
        .sort("model", factor, "metric")
        .select(
            "model",
            pl.lit(FACTORS[factor]).alias("factor"),
            pl.col(factor).cast(pl.Float64).alias("value"),
            pl.col("metric").replace(METRICS),
            "mean",
            "low",
            "high",
            "n",
        )
    )
