"""What decides latency and throughput: the configurations of a factor study, and how its factors and metrics correlate.

A factor is whatever varies: the load, lengths, the model, the number of devices, and each setting of a deployment.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Literal

import polars as pl

from bench.analysis.sizing import with_devices
from bench.servers.settings import setting_name, settings_in, varying_settings, with_others
from bench.statistics import Z

# Column → what it is called. Models are in the order of their sizes, and those of one size by name: two models are two points of
# anything, and no more.
_LOADS = {"level": "batch size", "prompt_fixed": "input length", "output_fixed": "output length"}
_SERVERS = {"model_order": "model", "tensor_parallel": "devices"}
ARRIVALS = ("burst", "closed")  # of which a factor analysis is made
_ENGINE = "engine"
_DEFAULT = "default"  # the value of a setting that is not given
METRICS = {
    "ttft_mean_s": "TTFT (s)",
    "makespan_s": "makespan (s)",
    "throughput_tokens_per_s": "throughput (tokens/s)",
}
_GPU = {"gpu_utilisation_mean": "GPU utilisation (share)", "gpu_memory_peak_bytes": "GPU memory (bytes)"}
_HOST = {"host_busy_share": "host utilisation (share)"}
_MEMORY = {"kv_usage_peak": "peak KV usage (share)"}
# |r| from … on; source: DATAtab, Pearson correlation.
STRENGTHS = {0.7: "very high", 0.5: "high", 0.3: "medium", 0.1: "low", 0.0: "none"}
_TOGETHER = max(STRENGTHS)  # |ρ| of two factors from which what belongs to one shows of the other as well; derived


def with_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """The valid runs of bursts and closed loops with fixed lengths, with the factor study's own metric.

    `makespan_s` is the time from the first request sent to the last token of the batch; a closed loop has no batch, and none. The
    throughput of a batch of b requests with n output tokens each is b · n / makespan.

    Args:
        runs: summary rows with `valid`, `family`, `arrival`, `duration_s`, `throughput_tokens_per_s`, `ttft_mean_s`, the factors,
            `model` and `parameters`; rows without a fixed length are left out.

    Returns:
        The rows with that metric and `model_order`; the settings that vary are numbers, or an Enum of their texts.
    """
    kept = runs.filter("valid").filter(pl.col("arrival").is_in(ARRIVALS)).drop_nulls(["prompt_fixed", "output_fixed"])
    known = with_devices(kept).with_columns(
        tensor_parallel=pl.col("devices"),  # as many as an instance has, whatever they share
        makespan_s=pl.when(arrival="burst").then("duration_s"),
        model_order=pl.struct("parameters", "model").rank("dense").cast(pl.Int64),
    )
    servers = known.select(*_SERVERS, *_settings(known)).unique(maintain_order=True).to_dicts()
    varying = varying_settings(servers, (*_SERVERS, _ENGINE))
    kept_settings = {*varying, *(name for others in varying.values() for name in others)}
    return known.with_columns(
        _values(known[name]) if name in kept_settings else pl.lit(None, dtype=known[name].dtype).alias(name)
        for name in _settings(known)
    )


def _values(setting: pl.Series) -> pl.Series:
    """A setting as numbers if all its values are; else as an Enum of its texts, the default and `false` first."""
    texts = setting.cast(pl.String)
    numbers = texts.cast(pl.Float64, strict=False)
    if not numbers.null_count():
        return numbers
    texts = texts.fill_null(_DEFAULT)
    return texts.cast(pl.Enum(sorted(set(texts), key=_place)))


def _place(text: str) -> tuple[bool, bool, float, str]:
    number = float(text) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) else math.inf
    return text != _DEFAULT, text != "false", number, text


def factors_of(rows: pl.DataFrame) -> dict[str, str]:
    """The factors of `rows`, of `with_metrics` or `cells`: column → its name, with the settings that change whenever it does."""
    servers = rows.select(*_SERVERS, *_settings(rows)).unique(maintain_order=True).to_dicts()
    others = varying_settings(servers, (*_SERVERS, _ENGINE))
    level = {} if rows["arrival"].eq("burst").all() else {"level": "concurrency"}
    names = {**_LOADS, **level, **_SERVERS, **{name: setting_name(name) for name in others if name not in _SERVERS}}
    return {name: with_others(title, others.get(name, ())) for name, title in names.items()}


def _settings(rows: pl.DataFrame) -> list[str]:
    return [_ENGINE, *(name for name in settings_in(rows.columns) if name not in _SERVERS)]


def metrics_of(runs: pl.DataFrame) -> dict[str, str]:
    """The metrics that `runs` have, by column: the three of the study, and what they say of utilisation and memory.

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
    return runs.group_by("model", "arrival", *_LOADS, *_SERVERS, *_settings(runs), maintain_order=True).agg(
        pl.len().alias("n"), *(pl.col(metric).mean() for metric in metrics_of(runs))
    )


def varying(rows: pl.DataFrame) -> list[str]:
    """The factors with more than one known value."""
    return [name for name in factors_of(rows) if rows[name].drop_nulls().n_unique() > 1]


def confounded(rows: pl.DataFrame) -> list[tuple[str, str]]:
    """Pairs of factors that vary together, so that no analysis can separate their effects.

    Two numbers do if |Spearman's ρ| ≥ 0.7. A setting with three texts or more has no order: there the correlation ratio η of the
    other's ranks, grouped by its texts, takes the place of ρ.

    Args:
        rows: of `cells`.

    Returns:
        Their names, as in `factors_of`.
    """
    names = factors_of(rows)
    pairs = {pair: _together(rows.drop_nulls(pair), *pair) for pair in itertools.combinations(varying(rows), 2)}
    return [(names[one], names[other]) for (one, other), r in pairs.items() if r is not None and abs(r) >= _TOGETHER]


def _together(rows: pl.DataFrame, one: str, other: str) -> float | None:
    kinds = [name for name in (one, other) if unordered(rows[name])]
    if not kinds:
        return _r(rows, one, other, "spearman")
    ranks = rows.select(kind=kinds[0], rank=pl.col(other if kinds[0] == one else one).to_physical().rank())
    within, whole = ranks.select((pl.col("rank") - pl.col("rank").mean().over("kind")).var(), whole=pl.col("rank").var()).row(0)
    return math.sqrt(1 - within / whole) if whole else None


def _r(rows: pl.DataFrame, one: str, other: str, method: Literal["pearson", "spearman"] = "pearson") -> float | None:
    sides = (pl.col(name).to_physical().cast(pl.Float64) for name in (one, other))
    found: float | None = rows.select(pl.corr(*sides, method=method)).item()
    return found


def unordered(factor: pl.Series) -> bool:
    """Whether the values are texts in no meaningful order, three or more."""
    return factor.dtype == pl.Enum and factor.n_unique() > 2


def strength(r: float) -> str:
    """Strength of a correlation, whatever its sign: a value of `STRENGTHS`."""
    return next(name for limit, name in STRENGTHS.items() if abs(r) >= limit)


def correlations(runs: pl.DataFrame) -> pl.DataFrame:
    """Pearson's and Spearman's correlation of each factor with each metric, over the configurations of each model.

    Args:
        runs: rows of `with_metrics`, of one family.

    Returns:
        One row a model, factor and metric that both vary in three configurations: `model`, `factor`, `metric` (names as in `factors_of`
        and `metrics_of`), `r`, `rank_r`, `low`, `high` (95 % interval of r, Fisher's z, null below four configurations), `strength` and
        `n` configurations.
    """
    rows = []
    for (model,), group in cells(runs).group_by("model", maintain_order=True):
        names = factors_of(group)
        for factor in (name for name in varying(group) if not unordered(group[name])):
            for metric, title in metrics_of(group).items():
                known = group.select(factor, metric).drop_nulls()
                if known.height < 3 or min(known[name].n_unique() for name in (factor, metric)) < 2:
                    continue
                r = _r(known, factor, metric)
                if r is None:
                    continue
                low, high = _fisher(r, known.height)
                rows.append(
                    {
                        "model": model,
                        "factor": names[factor],
                        "metric": title,
                        "r": r,
                        "rank_r": _r(known, factor, metric, "spearman"),
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
    z, half = math.atanh(r), Z / math.sqrt(n - 3)
    return math.tanh(z - half), math.tanh(z + half)


def marginal_means(runs: pl.DataFrame, factor: str) -> pl.DataFrame:
    """Each metric over one factor, the others averaged: geometric means over the configurations that have every value of it.

    The range is that of repeats alone: each configuration's least and most, averaged as their means are. So a missing repeat
    moves neither.

    Args:
        runs: rows of `with_metrics`, of one family. factor: a column of `factors_of`, but the model.

    Returns:
        One row a model, value and metric: `model`, `factor`, `value`, `label` (a text, of which `value` is the rank; null for numbers),
        `metric`, `mean`, `low`, `high`, and `n`, the configurations averaged; nothing where no configuration has every value.
    """
    names = factors_of(runs)
    others = [name for name in names if name != factor]
    number = pl.col("number").log()
    every = pl.col(factor).n_unique()
    return (
        runs.unpivot(on=list(METRICS), index=["model", *names], variable_name="metric", value_name="number")
        .filter(pl.col("number") > 0)
        .group_by("model", "metric", *names, maintain_order=True)
        .agg(mean=number.mean(), low=number.min(), high=number.max())
        .filter(every.over("model", "metric", *others) == every.over("model", "metric"))
        .group_by("model", factor, "metric", maintain_order=True)
        .agg(pl.col("mean", "low", "high").mean().exp(), n=pl.len())
        .sort("model", factor, "metric")
        .select(
            "model",
            pl.lit(names[factor]).alias("factor"),
            pl.col(factor).to_physical().cast(pl.Float64).alias("value"),
            (pl.col(factor) if runs[factor].dtype == pl.Enum else pl.lit(None)).cast(pl.String).alias("label"),
            pl.col("metric").replace(METRICS),
            "mean",
            "low",
            "high",
            "n",
        )
    )
