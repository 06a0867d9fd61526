"""What decides latency and throughput: the configurations of a factor study, and how its factors and metrics go together.

A factor is whatever varies of the load, lengths, the model and the number of devices. Methods and how often they are right:
docs/explanation/factors.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.errors import listed
from bench.findings.sizing import with_devices
from bench.report.blocks import Answer
from bench.servers.settings import settings_in
from bench.statistics.textbook import TAIL, Z
from bench.study.questions import CROSSED, FEWEST_CONFIGURATIONS, crossed_families

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Column → what it is called. Models are in the order of their sizes, and those of one size by name: two models are two points of
# anything, and no more.
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
    "normalised_latency_s": "normalised latency (s)",
    "throughput_tokens_per_s": "throughput (tokens/s)",
}
_GPU = {"gpu_utilisation_mean": "GPU utilisation (share)", "gpu_memory_peak_bytes": "GPU memory (bytes)"}
_HOST = {"host_busy_share": "host utilisation (share)"}  # where no GPU's is known
_MEMORY = {"kv_usage_peak": "peak KV usage (share)"}
STRENGTHS = {0.7: "very high", 0.5: "high", 0.3: "medium", 0.1: "low", 0.0: "none"}  # |r| from … on; source: DATAtab
FEWEST_SCORE = 0.5  # least R² of a model whose factors are told; convention
_FOLDS, _ROUNDS, _SHUFFLES = 5, 2, 20  # of configurations, of all folds, and of a factor in each round; convention


def crossed(runs: pl.DataFrame) -> pl.Series:
    """Whether each summary row is of a family in which factors are crossed."""
    asked = ("deployment", "family", "arrival", "model", *CROSSED, *settings_in(runs.columns))
    families = crossed_families(runs.select(asked).to_dicts())
    return runs["family"].is_in(list(families)) & (runs["arrival"] == "burst")


def with_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """The valid bursts with fixed lengths, with the factor study's own metrics.

    `makespan_s` is the time from the first request sent to the last token of the batch. The throughput of a batch of b requests with n
    output tokens each is b · n / makespan, the normalised latency E2E ÷ n.

    Args:
        runs: summary rows with `valid`, `family`, `arrival`, `duration_s`, `e2e_mean_s`, `throughput_tokens_per_s`, `ttft_mean_s`, the
            factors, `model` and `parameters`; rows without a fixed length are left out.

    Returns:
        The rows with those metrics and `model_order`.
    """
    kept = runs.filter("valid", arrival="burst").drop_nulls(["prompt_fixed", "output_fixed"])
    return with_devices(kept).with_columns(
        tensor_parallel=pl.col("devices"),  # as many as an instance has, whatever they share
        makespan_s=pl.col("duration_s"),
        normalised_latency_s=pl.col("e2e_mean_s") / pl.col("output_fixed"),
        model_order=pl.struct("parameters", "model").rank("dense").cast(pl.Int64),
    )


def metrics_of(runs: pl.DataFrame) -> dict[str, str]:
    """The metrics that `runs` have, by column: those of the study, and what they say of utilisation and memory."""
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
    """The factors with more than one known value."""
    return [name for name in FACTORS if rows[name].drop_nulls().n_unique() > 1]


def strength(r: float) -> str:
    """The band of a correlation with its sign, such as `high, negative`."""
    band = next(name for limit, name in STRENGTHS.items() if abs(r) >= limit)
    return f"{band}, negative" if r < 0 and band != "none" else band


def correlations(runs: pl.DataFrame) -> pl.DataFrame:
    """Pearson's correlation of each factor with each metric, over the configurations of each model.

    Args:
        runs: rows of `with_metrics`, of one family.

    Returns:
        One row a model, factor and metric that both vary in three configurations: `model`, `factor`, `metric` (names as in `FACTORS`
        and `metrics_of`), `r`, `low`, `high` (95 % interval by Fisher's z = atanh r, null below four configurations), `strength`
        and `n` configurations.
    """
    rows = []
    for (model,), group in cells(runs).group_by("model", maintain_order=True):
        for factor in varying(group):
            for metric, title in metrics_of(group).items():
                known = group.select(pl.col(factor).cast(pl.Float64), metric).drop_nulls()
                r = known.select(pl.corr(factor, metric)).item() if known.height >= 3 else None
                if r is None or math.isnan(r):
                    continue
                half = Z / math.sqrt(known.height - 3) if known.height > 3 and abs(r) < 1 else None
                ends = [None if half is None else math.tanh(math.atanh(r) + sign * half) for sign in (-1, 1)]
                rows.append((str(model), FACTORS[factor], title, r, *ends, strength(r), known.height))
    schema = {**dict.fromkeys(("model", "factor", "metric"), pl.String), **dict.fromkeys(("r", "low", "high"), pl.Float64)}
    return pl.DataFrame(rows, schema={**schema, "strength": pl.String, "n": pl.Int64}, orient="row")


def marginal_means(runs: pl.DataFrame, factor: str) -> pl.DataFrame:
    """Each metric over one factor, the others averaged: geometric means over the configurations that have every value of it.

    The range is that of repeats alone: each configuration's least and most, averaged as their means are. So a missing repeat
    moves neither.

    Args:
        runs: rows of `with_metrics`, of one family. factor: a column of `FACTORS`, but the model.

    Returns:
        One row a model, value and metric: `model`, `value`, `metric`, `mean`, `low`, `high`, and `n`, the
        configurations averaged; nothing where no configuration has every value.
    """
    names = list(FACTORS)
    others = [name for name in names if name != factor]
    number, every = pl.col("number").log(), pl.col(factor).n_unique()
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
            pl.col(factor).cast(pl.Float64).alias("value"),
            *(pl.col("metric").replace(METRICS), "mean", "low", "high", "n"),
        )
    )


def importances(runs: pl.DataFrame) -> pl.DataFrame:
    """How much worse a model predicts a metric when one factor is shuffled, on configurations that it has not seen.

    Gradient-boosted trees learn the logarithm of the metric (itself, where it can be 0). In each of two rounds, five of them learn
    four fifths of the configurations each, so that every configuration is predicted by one that has not seen it. A factor's
    importance is the loss of R² over all configurations when its column is shuffled, twenty times a round.

    Args:
        runs: rows of `with_metrics`, of one family.

    Returns:
        One row a metric and factor: `metric`, `factor`, `importance` (mean), `low`, `high` (2.5 % to 97.5 % of all shuffles), `score`
        (mean R²) and `n` configurations. `importance` and its spread are null where `score` is below 0.5. No row for a metric that is
        known in fewer than 20 configurations, or is the same in all.
    """
    table = cells(runs)
    partly = [name for name in FACTORS if table[name].is_not_null().any()]
    rows = []
    for metric, title in metrics_of(table).items():
        known = table.drop_nulls([metric, *partly])
        factors = varying(known)
        if not factors or known.height < FEWEST_CONFIGURATIONS or known[metric].n_unique() < 2:
            continue
        y = known[metric].log() if known[metric].min() > 0 else known[metric]  # type: ignore[operator]
        x = known.select(pl.col(factors).cast(pl.Float64)).to_numpy()
        score, lost = _shuffled(x, y.to_numpy())
        for factor, values in zip(factors, lost, strict=True):
            losses = pl.Series(values if score >= FEWEST_SCORE else [], dtype=pl.Float64)
            ends = (losses.quantile(at, "linear") for at in (TAIL, 1 - TAIL))
            rows.append((title, FACTORS[factor], losses.mean(), *ends, score, known.height))
    numbers = dict.fromkeys(("importance", "low", "high", "score"), pl.Float64)
    schema = {"metric": pl.String, "factor": pl.String, **numbers, "n": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _shuffled(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, list[list[float]]]:
    """The mean R² of the rounds, and each factor's losses of R², one a shuffle. Args: x: configurations × factors. y: the metric."""
    import numpy as np  # noqa: PLC0415 - two seconds of imports with the next, for the studies that have factors alone
    from sklearn import config_context  # noqa: PLC0415
    from sklearn.ensemble import GradientBoostingRegressor  # noqa: PLC0415
    from sklearn.metrics import r2_score  # noqa: PLC0415
    from sklearn.model_selection import KFold  # noqa: PLC0415

    scores: list[float] = []
    lost: list[list[float]] = [[] for _ in range(x.shape[1])]
    for turn in range(_ROUNDS):
        random = np.random.default_rng(turn)
        folds = KFold(_FOLDS, shuffle=True, random_state=turn).split(x)
        with config_context(
            skip_parameter_validation=True
        ):  # they are the defaults, looked at once a tree: a quarter of the time
            models = [(GradientBoostingRegressor(random_state=0).fit(x[learn], y[learn]), test) for learn, test in folds]
        shuffles = [np.repeat(x[None], _SHUFFLES, axis=0) for _ in lost]
        for factor, copies in enumerate(shuffles):
            copies[:, :, factor] = random.permuted(copies[:, :, factor], axis=1)
        for factor, copies in enumerate([x[None], *shuffles], start=-1):
            values = np.empty(copies.shape[:2])
            for model, test in models:
                values[:, test] = model.predict(copies[:, test].reshape(-1, x.shape[1])).reshape(len(copies), -1)
            found = [float(r2_score(y, each)) for each in values]
            if factor < 0:
                scores += found
            else:
                lost[factor] += [scores[-1] - each for each in found]
    return sum(scores) / len(scores), lost


@dataclass(frozen=True)
class Decided:
    """What decides each metric in a family of workloads in which factors are crossed.

    Attributes:
        effects: rows of `importances`. configurations: with a valid run.
    """

    family: str
    effects: tuple[Mapping[str, Any], ...]
    configurations: int


def decided(runs: pl.DataFrame) -> list[Decided]:
    """What decides each metric in each family of crossed factors. Args: runs: summary rows, as `with_metrics` takes them."""
    found = []
    for family in runs.filter(crossed(runs)).partition_by("family", maintain_order=True):
        valid = with_metrics(family)
        found.append(Decided(family["family"][0], tuple(importances(valid).to_dicts()), cells(valid).height))
    return found


Effect = Mapping[str, Any]


def answer(found: Sequence[Decided]) -> Answer:
    """Which factor decides what, and how well the model behind that predicts."""
    of = {each.family: f"{each.family}: " if len(found) > 1 else "" for each in found}
    more = f"Add levels or lengths: it takes {FEWEST_CONFIGURATIONS} configurations with a valid run."
    r2 = (
        "R² is of a model that predicts configurations that it has not seen: 1 is perfect, 0 no better than the mean; below "
        f"{FEWEST_SCORE} nothing is concluded."
    )
    return Answer(
        name="factors",
        question="Which factor decides latency and throughput?",
        lines=tuple(of[each.family] + line for each in found for line in _lines(each)),
        sure=(r2,) if any(each.effects for each in found) else (),
        do=(more,) if any(each.configurations < FEWEST_CONFIGURATIONS for each in found) else (),
    )


def _lines(found: Decided) -> list[str]:
    if not found.effects:
        return [f"Not known: {found.configurations} configurations have a valid run, and it takes {FEWEST_CONFIGURATIONS}."]
    metrics = dict.fromkeys(row["metric"] for row in found.effects)
    return [_line(metric, [row for row in found.effects if row["metric"] == metric]) for metric in metrics]


def _line(metric: str, rows: Sequence[Effect]) -> str:
    name = metric.split(" (", maxsplit=1)[0]
    head = f"{name[0].upper()}{name[1:]} (R² {rows[0]['score']:.2f}): ".replace("-", "−")
    if rows[0]["importance"] is None:
        return f"{head}not known, because no model predicts it."
    sure = sorted((row for row in rows if row["low"] > 0), key=lambda row: -row["importance"])
    if not sure:
        return f"{head}no factor has a visible effect."
    first, *others = (row["factor"] for row in sure)
    none = [row["factor"] for row in rows if row["low"] <= 0]
    then = f", then {listed(others)}" if others else ""
    without = f"; no visible effect: {', '.join(none)}" if none else ""
    return f"{head}{first} decides most{then}{without}."
