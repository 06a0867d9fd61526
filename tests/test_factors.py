"""The factor analysis on made studies whose effects are known."""

import math

import polars as pl
import pytest
from benchmarks.factors import planted

from bench.analysis import summary_frame
from bench.analysis.factors import band, cells, correlations, importances, marginal_means, with_metrics
from bench.figures import Results, figures_of
from bench.figures.registry import load_figure
from bench.study.config import Thresholds

FIGURES = ["factor-correlations", "factor-importance", "factor-panels", "utilisation-by-batch"]


@pytest.fixture(scope="module")
def runs():
    return with_metrics(planted(1, 0.05))


@pytest.fixture(scope="module")
def told(runs):
    return importances(runs)


def of(table, metric, factor):
    return table.row(by_predicate=(pl.col("metric") == metric) & (pl.col("factor") == factor), named=True)


def test_the_factor_that_decides_comes_first(told):
    first = {
        metric: rows.sort("importance", descending=True)["factor"][0]
        for (metric,), rows in told.group_by("metric", maintain_order=True)
    }
    assert first["TTLT (s)"] == "output length"
    assert first["throughput (tokens/s)"] == "batch size"
    assert first["TTFT (s)"] in {"batch size", "input length"}  # alike, as their product was planted
    assert told["score"].min() > 0.95


def test_a_factor_without_effect_has_none(told):
    for metric in told["metric"].unique():
        idle = of(told, metric, "devices")
        assert idle["low"] <= 0 <= idle["high"]
        assert abs(idle["importance"]) < 0.01
    assert of(told, "TTFT (s)", "input length")["low"] > 0.1


def test_the_same_runs_give_the_same_numbers(runs, told):
    assert importances(runs).equals(told)


def test_no_importance_where_the_model_knows_nothing(runs):
    """A metric that is noise: what is said of it is that nothing is known."""
    noise = runs.with_columns(ttft_mean_s=pl.Series([1.0 + (i * 7919 % 144) / 144 for i in range(len(runs))]).shuffle(seed=1))
    rows = importances(noise).filter(pl.col("metric") == "TTFT (s)")
    assert (rows["score"] < 0.5).all()
    assert rows["importance"].is_null().all()


def test_too_few_configurations_have_no_importance(runs):
    assert importances(runs.filter((pl.col("tensor_parallel") == 1) & (pl.col("output_fixed") == 16))).is_empty()  # 18


def test_repeats_are_one_configuration(runs):
    assert cells(runs).height == 72
    assert cells(runs)["n"].unique().to_list() == [2]
    twice = pl.concat([runs, runs])
    assert correlations(twice)["n"].to_list() == correlations(runs)["n"].to_list()


def test_correlations_are_those_of_the_planted_formula():
    exact = correlations(with_metrics(planted(1, 0.0)).filter(pl.col("model") == "m1e+07"))
    batch, prompt = [1, 4, 16], [32, 128, 512]
    pairs = [(b, b * p) for b in batch for p in prompt]
    mean_b, mean_t = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    covariance = sum((b - mean_b) * (t - mean_t) for b, t in pairs)
    spread = math.prod(
        math.sqrt(sum((x - m) ** 2 for x in column))
        for column, m in zip(zip(*pairs, strict=True), (mean_b, mean_t), strict=True)
    )
    assert of(exact, "TTFT (s)", "batch size")["r"] == pytest.approx(covariance / spread)
    assert of(exact, "TTFT (s)", "devices")["r"] == pytest.approx(0, abs=1e-9)
    row = of(exact, "TTFT (s)", "batch size")
    half = 1.96 / math.sqrt(row["n"] - 3)
    assert math.atanh(row["high"]) - math.atanh(row["r"]) == pytest.approx(half)


@pytest.mark.parametrize(
    ("r", "word"),
    [
        (0.05, "none"),
        (-0.05, "none"),
        (0.1, "low"),
        (0.3, "medium"),
        (-0.5, "high, negative"),
        (0.7, "very high"),
        (1.0, "very high"),
    ],
)
def test_the_bands_are_the_documents(r, word):
    assert band(r) == word


def test_panels_average_only_what_is_complete(runs):
    means = marginal_means(runs, "output_fixed").filter((pl.col("model") == "m1e+07") & (pl.col("metric") == "TTLT (s)"))
    assert means["value"].to_list() == [16, 64]
    assert 3.5 < means["mean"][1] / means["mean"][0] < 4  # 64 ÷ 16, less what TTFT takes of both
    assert (means["low"] < means["mean"]).all()
    # One configuration lacks the longer output: its shorter one no longer counts.
    holed = runs.filter(~((pl.col("level") == 16) & (pl.col("output_fixed") == 64)))
    kept = marginal_means(holed, "output_fixed").filter((pl.col("model") == "m1e+07") & (pl.col("metric") == "TTLT (s)"))
    small = with_metrics(planted(1, 0.05)).filter((pl.col("level") < 16) & (pl.col("model") == "m1e+07"))
    again = marginal_means(small, "output_fixed").filter(pl.col("metric") == "TTLT (s)")
    assert kept["mean"].to_list() == pytest.approx(again["mean"].to_list())


def test_the_figures_of_a_factor_study(runs, summary):
    rows = [
        {**summary, **row, "run": str(i), "deployment": f"{row['model']}-{row['tensor_parallel']}", "host_busy_share": 0.5}
        for i, row in enumerate(
            runs.drop("ttlt_s", "per_token_s", "model", "parameters", "tensor_parallel", "valid").to_dicts()
        )
        for row in [{**row, **runs.row(i, named=True)}]
    ]
    launches = {
        row["deployment"]: {"deployment": row["deployment"], "model": row["model"], "engine": "e", "device": "cpu",
                            "tensor_parallel": row["tensor_parallel"], "plan": {"parameters": row["parameters"]}}
        for row in rows
    }  # fmt: skip
    results = Results(summary_frame(rows, launches, {}, Thresholds()), pl.DataFrame())
    assert [name for name in figures_of(results.runs.to_dicts()) if name in FIGURES] == FIGURES
    for name in FIGURES:
        assert "Nothing to show" not in str(load_figure(name).draw(results).to_dict())
