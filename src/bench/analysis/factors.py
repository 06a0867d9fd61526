"""What decides latency and throughput: how factors and metrics go together, and what a model of a metric owes to each factor."""

from __future__ import annotations

import math

import polars as pl

__all__ = [
    "BANDS",
    "FACTORS",
    "METRICS",
    "band",
    "cells",
    "correlations",
    "importances",
    "marginal_means",
    "varying",
    "with_metrics",
]

# Summary column → what it is called. The model stands for its size: two models are two points of it, and no more.
FACTORS = {
    "level": "batch size",
    "prompt_fixed": "input length",
    "output_fixed": "output length",
    "parameters": "model size",
    "tensor_parallel": "devices",
}
METRICS = {
    "ttft_mean_s": "TTFT (s)",
    "ttlt_s": "TTLT (s)",
    "throughput_tokens_per_s": "throughput (tokens/s)",
    "per_token_s": "normalised latency (s a token)",
}
# |r| from … on, as the factor study of 001 has them (DATAtab's table).
BANDS = {0.7: "very high", 0.5: "high", 0.3: "medium", 0.1: "low", 0.0: "none"}
FEWEST_CELLS = 20  # configurations: of fewer, five folds hold out less than four each
FEWEST_SCORE = 0.5  # R² on configurations that the model has not seen; below it, what it owes to a factor says little
_FOLDS, _ROUNDS, _SHUFFLES = 5, 2, 10


def with_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """The valid burst runs of swept lengths, with the factor study's own metrics.

    `ttlt_s` is the time from the first request sent to the last token of the batch; `per_token_s` = `ttlt_s` / (b · n), b the batch
    size and n the output length. Throughput is b · n / TTLT, so that the two are each other's inverse.

    Args:
        runs: summary rows with `valid`, `family`, `workload`, `axis`, `duration_s`, `throughput_tokens_per_s`, `ttft_mean_s` and the
            factors; rows without a fixed length are left out.
    """
    kept = (
        runs.filter("valid")
        .filter((pl.col("axis") == "concurrency") & (pl.col("workload") != pl.col("family")))
        .drop_nulls(["prompt_fixed", "output_fixed"])
    )
    return kept.with_columns(
        ttlt_s=pl.col("duration_s"), per_token_s=pl.col("duration_s") / (pl.col("level") * pl.col("output_fixed"))
    )


def cells(runs: pl.DataFrame) -> pl.DataFrame:
    """One row a configuration, with the means of its repeats, which are no further samples of the factors; `n` repeats.

    Args:
        runs: rows of `with_metrics`.
    """
    factors = [name for name in FACTORS if name in runs.columns]
    return runs.group_by("model", *factors, maintain_order=True).agg(
        pl.len().alias("n"), *(pl.col(metric).mean() for metric in METRICS)
    )


def varying(rows: pl.DataFrame) -> list[str]:
    """The factors of which there is more than one value."""
    return [name for name in FACTORS if name in rows.columns and rows[name].n_unique() > 1]


def band(r: float) -> str:
    """The strength of a correlation in words."""
    strength = next(word for limit, word in BANDS.items() if abs(r) >= limit)
    return f"{strength}, negative" if r < 0 and strength != "none" else strength


def correlations(runs: pl.DataFrame) -> pl.DataFrame:
    """Pearson's and Spearman's correlation of each factor with each metric, over the configurations of each model.

    Args:
        runs: rows of `with_metrics`.

    Returns:
        One row a model, factor and metric: `model`, `factor`, `metric` (names as in `FACTORS` and `METRICS`), `r`, `rank_r`, `low`,
        `high` (95 % interval of r, Fisher's z, null below four configurations), `band`, `n` configurations.
    """
    rows = []
    for (model,), group in cells(runs).group_by("model", maintain_order=True):
        for factor in varying(group):
            for metric, title in METRICS.items():
                known = group.select(factor, metric).drop_nulls()
                if known.height < 3 or known[metric].n_unique() < 2:
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
                        "band": band(r),
                        "n": known.height,
                    }
                )
    numbers = dict.fromkeys(("r", "rank_r", "low", "high"), pl.Float64)
    words = dict.fromkeys(("model", "factor", "metric", "band"), pl.String)
    return pl.DataFrame(rows, schema={**words, **numbers, "n": pl.Int64})


def _fisher(r: float, n: int) -> tuple[float | None, float | None]:
    """95 % interval of a correlation of n pairs, by Fisher's z = atanh r, whose deviation is about 1/√(n − 3)."""
    if n < 4 or abs(r) >= 1:
        return None, None
    z, half = math.atanh(r), 1.96 / math.sqrt(n - 3)
    return math.tanh(z - half), math.tanh(z + half)


def importances(runs: pl.DataFrame) -> pl.DataFrame:
    """How much worse a model tells a metric when one factor is shuffled, on configurations that it has not seen.

    Gradient-boosted trees learn the logarithm of the metric from the logarithms of the factors. Five folds, twice; in each, a factor's
    importance is R² less R² with the factor shuffled, ten times over (permutation importance). Repeats are averaged before, so that
    none of a configuration's stands on both sides.

    Args:
        runs: rows of `with_metrics`.

    Returns:
        One row a metric and factor: `metric`, `factor`, `importance` (mean), `low`, `high` (2.5 % to 97.5 % of the shuffles in all
        folds), `score` (mean R²), `score_low`, `score_high` (over folds), `n` configurations. `importance` and its spread are null
        where `score` is below 0.5: of a model that does not know the metric, no factor's share is known. Empty below 20 configurations.

    Source: Breiman 2001; scikit-learn's `permutation_importance`.
    """
    table = cells(runs)
    factors = varying(table)
    rows = []
    for metric, title in METRICS.items() if factors else ():
        known = table.drop_nulls([metric]).filter(pl.col(metric) > 0)
        if known.height < FEWEST_CELLS:
            continue
        scores, shares = _shuffled(known, factors, metric)
        score = sum(scores) / len(scores)
        for factor, values in zip(factors, shares, strict=True):
            told = pl.Series(values if score >= FEWEST_SCORE else [], dtype=pl.Float64)
            rows.append(
                {
                    "metric": title,
                    "factor": FACTORS[factor],
                    "importance": told.mean(),
                    "low": told.quantile(0.025, "linear"),
                    "high": told.quantile(0.975, "linear"),
                    "score": score,
                    "score_low": min(scores),
                    "score_high": max(scores),
                    "n": known.height,
                }
            )
    numbers = dict.fromkeys(("importance", "low", "high", "score", "score_low", "score_high"), pl.Float64)
    return pl.DataFrame(rows, schema={"metric": pl.String, "factor": pl.String, **numbers, "n": pl.Int64})


def _shuffled(known: pl.DataFrame, factors: list[str], metric: str) -> tuple[list[float], list[list[float]]]:
    """R² of each fold, and the loss of R² by each shuffle of each factor."""
    # Two seconds of imports, for the studies that have factors alone.
    from sklearn.ensemble import GradientBoostingRegressor  # noqa: PLC0415
    from sklearn.inspection import permutation_importance  # noqa: PLC0415
    from sklearn.model_selection import RepeatedKFold  # noqa: PLC0415

    x = known.select(pl.col(factors).cast(pl.Float64).log()).to_numpy()
    y = known[metric].log().to_numpy()
    scores: list[float] = []
    shares: list[list[float]] = [[] for _ in factors]
    for learn, test in RepeatedKFold(n_splits=_FOLDS, n_repeats=_ROUNDS, random_state=0).split(x):
        model = GradientBoostingRegressor(random_state=0).fit(x[learn], y[learn])
        scores.append(float(model.score(x[test], y[test])))
        lost = permutation_importance(model, x[test], y[test], n_repeats=_SHUFFLES, random_state=0)
        for share, values in zip(shares, lost.importances, strict=True):
            share.extend(map(float, values))
    return scores, shares


def marginal_means(runs: pl.DataFrame, factor: str) -> pl.DataFrame:
    """Each metric over one factor, the others averaged: geometric means over the configurations that have every value of it.

    Args:
        runs: rows of `with_metrics`. factor: one of `FACTORS`.

    Returns:
        One row a model, value and metric: `model`, `factor`, `value`, `metric`, `mean`, and `low`, `high`, the least and the most of
        the repeats' own means; nothing where no configuration has every value.
    """
    others = [name for name in FACTORS if name in runs.columns and name not in (factor, "parameters")]
    complete = runs.with_columns(values=pl.col(factor).n_unique().over("model")).filter(
        pl.col(factor).n_unique().over("model", *others) == pl.col("values")
    )
    long = complete.unpivot(
        on=list(METRICS), index=["model", factor, "repeat"], variable_name="metric", value_name="number"
    ).filter(pl.col("number") > 0)
    each = long.group_by("model", factor, "metric", "repeat").agg(mean=pl.col("number").log().mean().exp())
    return (
        each.group_by("model", factor, "metric")
        .agg(pl.col("mean").mean(), low=pl.col("mean").min(), high=pl.col("mean").max())
        .sort("model", factor)
        .select(
            "model",
            pl.lit(FACTORS[factor]).alias("factor"),
            pl.col(factor).cast(pl.Float64).alias("value"),
            pl.col("metric").replace(METRICS),
            "mean",
            "low",
            "high",
        )
    )
