"""What decides latency and throughput: the configurations of a factor study, how its factors and metrics go together, their charts.

A factor is whatever varies of the load, lengths, the model and the number of devices. Methods and how often they are right:
docs/explanation/factors.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.errors import listed
from bench.findings.sizing import with_devices
from bench.findings.tables import Tables
from bench.report.blocks import Answer
from bench.report.figure import alt, figure
from bench.report.theme import NEUTRAL, PALETTE, marked, nothing_to_show, shapes, tips, why_empty
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


def crossed(runs: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of `with_metrics` of each family in which factors are crossed. Args: runs: summary rows."""
    asked = ("deployment", "family", "arrival", "model", *CROSSED, *settings_in(runs.columns))
    families = crossed_families(runs.select(asked).to_dicts())
    return {
        name: with_metrics(runs.filter(family=name)) for name in runs["family"].unique(maintain_order=True) if name in families
    }


def with_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """The valid bursts with fixed lengths, with the factor study's own metrics.

    `makespan_s` is the time from the first request sent to the last token of the batch. The throughput of a batch of b requests with n
    output tokens each is b · n / makespan, the normalised latency E2E ÷ n.

    Args:
        runs: summary rows; those without a fixed length are left out.
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
        runs: rows of `with_metrics`, of one family, as in all functions below.
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
        factor: a column of `FACTORS`, but the model.

    Returns:
        One row a model, value and metric: `model`, `value`, `metric`, `mean`, `low`, `high`, and `n`, the configurations averaged;
        nothing where no configuration has every value.
    """
    others = [name for name in FACTORS if name != factor]
    number, every = pl.col("number").log(), pl.col(factor).n_unique()
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
            pl.col(factor).cast(pl.Float64).alias("value"),
            pl.col("metric").replace(METRICS),
            "mean",
            "low",
            "high",
            "n",
        )
    )


def importances(runs: pl.DataFrame) -> pl.DataFrame:
    """How much worse a model predicts a metric when one factor is shuffled, on configurations that it has not seen.

    Gradient-boosted trees learn the logarithm of the metric (itself, where it can be 0). In each of two rounds, five of them learn
    four fifths of the configurations each, so that every configuration is predicted by one that has not seen it. A factor's
    importance is the loss of R² over all configurations when its column is shuffled, twenty times a round.

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


def _shuffled(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
    """The mean R² of the rounds, and the losses of R² [factor, shuffle]. Args: x: configurations × factors. y: the metric."""
    import numpy as np  # noqa: PLC0415 - two seconds of imports with the next, for the studies that have factors alone
    from sklearn import config_context  # noqa: PLC0415
    from sklearn.ensemble import GradientBoostingRegressor  # noqa: PLC0415
    from sklearn.inspection import permutation_importance  # noqa: PLC0415
    from sklearn.metrics import r2_score  # noqa: PLC0415
    from sklearn.model_selection import KFold  # noqa: PLC0415

    scores, lost = [], []
    for turn in range(_ROUNDS):
        folds = KFold(_FOLDS, shuffle=True, random_state=turn).split(x)
        # There is no single estimator; and parameters, which are the defaults, would be looked at once a tree: half of the time.
        with config_context(skip_parameter_validation=True):
            models = [(GradientBoostingRegressor(random_state=0).fit(x[learn], y[learn]), test) for learn, test in folds]

            def score(_: None, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], models: Sequence[Any] = models) -> float:
                values = np.empty(len(y))
                for model, test in models:
                    values[test] = model.predict(x[test])
                return float(r2_score(y, values))

            scores.append(score(None, x, y))
            found = permutation_importance(None, x, y, scoring=score, n_repeats=_SHUFFLES, random_state=turn)
        lost.append(found.importances)
    return sum(scores) / len(scores), np.hstack(lost)


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
    return [Decided(name, tuple(importances(valid).to_dicts()), cells(valid).height) for name, valid in crossed(runs).items()]


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
    metrics: dict[str, list[Mapping[str, Any]]] = {}
    for row in found.effects:
        metrics.setdefault(row["metric"], []).append(row)
    few = f"Not known: {found.configurations} configurations have a valid run, and it takes {FEWEST_CONFIGURATIONS}."
    return [_line(metric, rows) for metric, rows in metrics.items()] or [few]


def _line(metric: str, rows: Sequence[Mapping[str, Any]]) -> str:
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


_OF = {"invalid": "Left out", "by_axis": False}
_SHADES = ["#a6cee3", "#5fa2ce", "#1f6fb2", "#0b3c6f"]  # from pale to dark, so that print keeps their order
Draw = Callable[[pl.DataFrame], "alt.TopLevelMixin"]  # by name: altair is imported when a figure is drawn


def _drawn(results: Tables, *draws: Draw) -> alt.TopLevelMixin:
    """Charts below one another, each of every family (`with_metrics`); without those that have nothing to show unless none has."""
    families = {name: runs for name, runs in crossed(results.runs.filter("valid")).items() if runs.height}
    if not families:
        return nothing_to_show("no family of workloads in whose valid runs two of load, lengths and settings vary")
    charts: list[Any] = [_by_family(families, draw) for draw in draws]
    shown = [chart for chart in charts if not why_empty(chart)] or charts[:1]
    if len(shown) == 1:
        return shown[0]  # type: ignore[no-any-return]
    return alt.VConcatChart(
        vconcat=shown, resolve=alt.Resolve(scale=alt.ScaleResolveMap(color="independent", shape="independent"))
    )


def _by_family(families: Mapping[str, pl.DataFrame], draw: Draw) -> Any:
    if len(families) == 1:
        return draw(*families.values())
    titles = [alt.TitleParams(name, fontSize=14, anchor="start") for name in families]
    charts: Any = [draw(runs) for runs in families.values()]
    whole = alt.vconcat(*(chart.properties(title=title) for chart, title in zip(charts, titles, strict=True)))
    return whole.resolve_scale(color="independent")


@figure(
    "factors",
    title="Which factors decide each metric",
    question="How strongly does each metric go with each factor, and how much worse is it predicted without it?",
    reading="Pearson's r: over the configurations of a model, repeats averaged first, with its strength: none below 0.1, low, "
    "medium from 0.3, high from 0.5, very high from 0.7; it sees straight lines only. Importance, by permutation: the R² that "
    "boosted trees lose on configurations that they have not seen when the factor is shuffled, with 2.5 % to 97.5 % of the shuffles; "
    "a line that reaches 0 shows no effect. Below an R² of 0.5, in a panel's title, no importance is given.",
    **_OF,
)
def factors(results: Tables) -> alt.TopLevelMixin:
    """Pearson's r of factors and metrics, a panel a model, over the importance of each factor, a panel a metric."""
    return _drawn(results, _correlations, _importance)


def _correlations(runs: pl.DataFrame) -> alt.TopLevelMixin:
    rows = correlations(runs)
    if rows.is_empty():
        return nothing_to_show("no factor varies in three configurations")
    titles = [title for title in metrics_of(runs).values() if title in rows["metric"]]
    base = alt.Chart().encode(
        x=alt.X("metric:N", title=None, sort=titles, axis=alt.Axis(labelAngle=0, labelExpr="split(datum.label, ' (')[0]")),
        y=alt.Y("factor:N", title=None, sort=list(dict.fromkeys((*FACTORS.values(), *rows["factor"])))),
    )
    ink = alt.condition("abs(datum.r) > 0.72", alt.value("white"), alt.value("black"))
    between = [alt.Tooltip(f"{end}:Q", title=f"{end} end (95 %)", format=".2f") for end in ("low", "high")]
    count = alt.Tooltip("n:Q", title="configurations")
    cell = base.mark_rect().encode(
        color=alt.Color("r:Q", legend=None, scale=alt.Scale(domain=[-1, 1], scheme="blueorange")),
        tooltip=["factor:N", "metric:N", *tips(".3f", "r"), *between, count],
    )
    number = base.mark_text(dy=-8, fontWeight="bold").encode(text=alt.Text("r:Q", format=".2f"), color=ink)
    band = base.mark_text(dy=8, fontSize=11).encode(text="strength:N", color=ink)
    layers = alt.layer(cell, number, band, data=rows).properties(width=alt.Step(118), height=alt.Step(48))
    return layers.facet(alt.Facet("model:N", title=None, sort=None), columns=2 if len(titles) <= len(METRICS) else 1)


def _importance(runs: pl.DataFrame) -> alt.TopLevelMixin:
    rows = importances(runs)
    if rows.is_empty():
        few = f"{cells(runs).height} configurations have valid runs"
        return nothing_to_show(f"{few}; a model of a metric needs {FEWEST_CONFIGURATIONS} in which it is known")
    of = pl.format(" (R² {}, n = {})", pl.col("score").round(2), "n")
    rows = rows.with_columns(panel=pl.concat_str(pl.col("metric").str.split(" (").list.first(), of))
    base, title = alt.Chart().encode(y=alt.Y("factor:N", title=None, sort=None)), "importance (loss of R²)"
    bars = base.mark_bar(color=NEUTRAL, opacity=0.75, height=14).encode(
        x=alt.X("importance:Q", title=title), tooltip=["factor:N", *tips(".3f", "importance", "low", "high")]
    )
    spread = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    layers = alt.layer(bars, spread, data=rows).properties(width=330, height=alt.Step(28))
    return layers.facet(alt.Facet("panel:N", title=None, sort=None), columns=2)


@figure(
    "factor-panels",
    title="Each metric over each factor",
    question="In which direction does each factor move each metric, and by how much?",
    reading="Geometric means over the other factors, of the configurations that have every value of the factor shown. Shaded: the "
    "same means of each configuration's least and of its most repeat. Metrics are logarithmic. Bars: utilisation by batch size and "
    "number of devices, from the least length to the most: the share of time in which a kernel ran on a GPU; without GPUs, the "
    "share of all cores' time that was not idle, the client's included.",
    **_OF,
)
def factor_panels(results: Tables) -> alt.TopLevelMixin:
    """Marginal means with the repeats' spread: a row a metric, a column a factor, a colour a model; below, how busy devices are."""
    return _drawn(results, _panels, _utilisation)


def _panels(runs: pl.DataFrame) -> alt.TopLevelMixin:
    tables = {name: marginal_means(runs, name) for name in varying(runs) if name != "model_order"}
    shown = {name: table for name, table in tables.items() if table["value"].n_unique() > 1}
    if not shown:
        return nothing_to_show("no factor has two values in configurations that are alike in the others")
    models = runs["model"].unique(maintain_order=True).to_list()
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(models)}
    colour, shape = marked(alt.Color, "model:N", colours), marked(alt.Shape, "model:N", shapes(models))
    panels = []
    for metric in METRICS.values():
        parts = {name: table.filter(metric=metric) for name, table in shown.items()}
        ends = [value for part in parts.values() for value in (*part["low"], *part["high"])]
        scale = alt.Scale(type="log", domain=[0.9 * min(ends), 1.1 * max(ends)], nice=False) if ends else alt.Scale()
        for column, (name, part) in enumerate(parts.items() if ends else ()):
            look: dict[str, Any] = {"title": None if column else metric}  # named once a row
            look |= {"scale": scale, "axis": alt.Axis(tickCount=4, format="~g")}
            x = alt.X("value:O", title=FACTORS[name], axis=alt.Axis(labelAngle=0, format="~g"))
            tooltip = ["model:N", "value:Q", *tips(".4g", "mean", "low", "high"), "n:Q"]
            base = alt.Chart(part).encode(x=x, y=alt.Y("mean:Q", **look), color=colour)
            area = base.mark_area(opacity=0.25).encode(y=alt.Y("low:Q", **look), y2="high:Q")
            dots = base.mark_point(filled=True, size=35, opacity=1).encode(shape=shape, tooltip=tooltip)
            panels.append(alt.LayerChart(layer=[area, base.mark_line(), dots], width=190, height=140))
    return alt.ConcatChart(concat=panels, columns=len(shown))


def _utilisation(runs: pl.DataFrame) -> alt.TopLevelMixin:
    """Mean utilisation over batch size, a bar a number of devices, a panel a model."""
    gpu = "gpu_utilisation_mean" in metrics_of(runs)
    column = "gpu_utilisation_mean" if gpu else "host_busy_share"
    if column not in metrics_of(runs) or runs["tensor_parallel"].is_null().all():
        return nothing_to_show("no run with swept lengths says how busy its devices were")
    share, by = pl.col(column), ("model", "level", "tensor_parallel")
    known = cells(runs).drop_nulls([column, "tensor_parallel"]).group_by(by, maintain_order=True)
    rows = known.agg(share=share.mean(), low=share.min(), high=share.max(), n=pl.len())
    counts = rows["tensor_parallel"].unique().sort().to_list()
    shades = {count: _SHADES[round(i * 3 / max(1, len(counts) - 1))] for i, count in enumerate(counts)}
    title = "mean utilisation of the GPUs" if gpu else "mean share of cores' time that was busy"
    scale = alt.Scale(domain=[0, 1])
    base = alt.Chart().encode(
        x=alt.X("level:O", title="batch size (requests)", axis=alt.Axis(labelAngle=0, format="d")),
        xOffset=alt.XOffset("tensor_parallel:O", sort=counts),
    )
    count = alt.Tooltip("n:Q", title="configurations")
    bars = base.mark_bar().encode(
        y=alt.Y("share:Q", title=title, axis=alt.Axis(format="%"), scale=scale),
        color=marked(alt.Color, "tensor_parallel:O", shades, title="devices"),
        tooltip=["model:N", "level:Q", "tensor_parallel:O", *tips(".1%", "share", "low", "high"), count],
    )
    spread = base.mark_rule(strokeWidth=1.2).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q")
    layers = alt.layer(bars, spread, data=rows).properties(width=300, height=240)
    return layers.facet(column=alt.Column("model:N", title=None))
