"""The factor analysis on made studies whose effects are known."""

import math
import random
import statistics

import polars as pl
import pytest
from sklearn import get_config

from bench.findings.factors import (
    FACTORS,
    cells,
    correlations,
    importances,
    marginal_means,
    strength,
    with_metrics,
)
from bench.findings.registry import figures_of, load_figure
from bench.findings.tables import Tables
from tests.support.answers import named
from tests.support.crossed import planted, ttft_importances
from tests.support.planted import summary_rows

FIGURES = ["factors", "factor-panels"]


@pytest.fixture(scope="module")
def runs():
    return with_metrics(planted(1, 0.05))


@pytest.fixture(scope="module")
def told(runs):
    return importances(runs)


def of_ttft_alone(runs):
    """Each metric has models of its own, which take seconds."""
    unknown = pl.lit(None, dtype=pl.Float64)
    return runs.with_columns(
        **{name: unknown for name in ("duration_s", "makespan_s", "throughput_tokens_per_s") if name in runs.columns}
    )


def of_ttft(runs):
    return importances(of_ttft_alone(runs))


def of(table, metric, factor):
    return table.row(by_predicate=(pl.col("metric") == metric) & (pl.col("factor") == factor), named=True)


def test_the_factor_that_decides_comes_first_and_one_without_effect_has_none(told, runs):
    ranked = told.sort("importance", descending=True).group_by("metric", maintain_order=True).first()
    first = dict(ranked.select("metric", "factor").iter_rows())
    assert (first["makespan (s)"], first["throughput (tokens/s)"]) == ("output length", "batch size")
    assert first["TTFT (s)"] in {"batch size", "input length"}  # alike, as their product was planted
    assert told["score"].min() > 0.95
    # Shuffling what the trees had learned from noise may even help them: the interval reaches 0, or lies below it.
    for metric in told["metric"].unique():
        idle = of(told, metric, "devices")
        assert idle["low"] <= 0 and abs(idle["importance"]) < 0.01, metric
    assert of(told, "TTFT (s)", "input length")["low"] > 0.1
    assert of(told, "TTFT (s)", "output length")["low"] <= 0
    assert of_ttft(runs).equals(told.filter(pl.col("metric") == "TTFT (s)"))  # the same runs give the same numbers


def test_importances_are_those_of_the_planted_formula():
    """As far as shuffles of so few configurations, 72 and 32, can tell: log TTFT is a sum, of which each factor has a known share."""
    for batches, prompts in (((1, 4, 16), (32, 128, 512)), ((1, 16), (32, 512))):
        study = planted(2, 0.05, batches=batches, prompts=prompts)
        told = of_ttft(with_metrics(study))
        for factor, importance in ttft_importances(study, 0.05).items():
            row = of(told, "TTFT (s)", factor)
            assert row["importance"] == pytest.approx(importance, abs=0.1), (batches, factor)
            assert row["low"] - 0.01 <= importance <= row["high"] + 0.01, (batches, factor)


def test_what_a_model_cannot_know_has_no_importance(runs):
    """A metric that is noise: what is said of it is that nothing is known."""
    noise = runs.with_columns(ttft_mean_s=pl.Series([1.0 + (i * 7919 % 144) / 144 for i in range(len(runs))]).shuffle(seed=1))
    rows = of_ttft(noise)
    assert rows.height == 5
    assert (rows["score"] < 0.5).all()
    assert rows["importance"].is_null().all()
    # Were a repeat of it among what was learned, noise would be known in advance: each configuration has a level of its own here.
    levels = random.Random(0).sample(range(1, 73), 72)
    names = list(FACTORS)
    level = dict(zip(cells(runs).select(names).rows(), map(float, levels), strict=True))
    own = runs.with_columns(ttft_mean_s=pl.Series([level[row] for row in runs.select(names).rows()]))
    told = of_ttft(pl.concat([own, own]))
    assert cells(pl.concat([own, own])).select(names).is_unique().all()
    assert told["score"].max() < 0.2


def test_configurations_stand_once_and_in_the_order_of_the_runs(runs):
    assert cells(runs).height == 72
    assert cells(runs)["n"].unique().to_list() == [2]
    twice = pl.concat([runs, runs])
    assert correlations(twice)["n"].to_list() == correlations(runs)["n"].to_list()
    # An importance's shuffles depend on it: the same runs have the same numbers.
    batches = [7 * i % 31 + 1 for i in range(31)]
    runs = crossed([(batch, 8, 8, float(batch)) for batch in batches])
    assert cells(runs)["level"].to_list() == batches
    models = [f"m{7 * i % 10}" for i in range(10)]
    both = correlations(pl.concat([runs.with_columns(model=pl.lit(name)) for name in models]))
    assert both["model"].unique(maintain_order=True).to_list() == models


def crossed(rows):
    """Rows of `with_metrics` of one model and one family: batch size, input and output length, and TTFT."""
    told = [
        {"valid": True, "axis": "concurrency", "arrival": "burst", "family": "f", "workload": f"f-{i}", "model": "m", "parameters": 7,
         "level": float(batch), "prompt_fixed": prompt, "output_fixed": output, "tensor_parallel": 1, "repeat": 1, "duration_s": 8.0,
         "throughput_tokens_per_s": 1.0, "ttft_mean_s": ttft}
        for i, (batch, prompt, output, ttft) in enumerate(rows)
    ]  # fmt: skip
    return with_metrics(summary_rows(told))


def test_the_factors_of_a_study_and_its_own_metric():
    runs = crossed([(4, 32, 16, 0.5)])
    assert runs.select("makespan_s", "tensor_parallel").row(0) == (8, 1)
    several = pl.concat(
        [runs.with_columns(model=pl.lit(name), parameters=pl.lit(size)) for name, size in (("b", 9), ("a", 9), ("c", 5))]
    )
    assert with_metrics(several)["model_order"].to_list() == [3, 2, 1]  # by size, then by name
    for left_out in ({"valid": pl.lit(False)}, {"arrival": pl.lit("poisson")}, {"output_fixed": pl.lit(None, dtype=pl.Int64)}):
        assert with_metrics(runs.with_columns(**left_out)).is_empty()
    # Of an answer of n tokens, what each takes.
    assert with_metrics(runs.with_columns(e2e_mean_s=pl.lit(8.0)))["normalised_latency_s"].to_list() == [0.5]


def test_a_correlation_its_interval_and_its_band_by_hand():
    """1, 3, 2 and 4 at 1, 2, 3 and 4: r = 4 ÷ 5, as are the ranks'; z = atanh 0.8 = 1.0986 ± 1.96."""

    def correlated(*ttft):
        return correlations(crossed([(i, 8, 8, each) for i, each in enumerate(ttft, start=1)]))

    row = of(correlated(1.0, 3.0, 2.0, 4.0), "TTFT (s)", "batch size")
    assert (row["r"], row["n"], row["strength"]) == (pytest.approx(0.8), 4, "very high")
    assert [math.atanh(row[end]) for end in ("low", "high")] == pytest.approx([1.0986 - 1.96, 1.0986 + 1.96], abs=1e-4)
    # Of three there is a correlation without an interval, as there is of a straight line; of two there is none.
    three = of(correlated(1.0, 3.0, 2.0), "TTFT (s)", "batch size")
    assert (three["r"], three["low"], three["high"]) == (pytest.approx(0.5), None, None)
    straight = of(correlated(-1.0, -2.0, -3.0, -4.0, -5.0), "TTFT (s)", "batch size")
    assert (straight["r"], straight["low"], straight["strength"]) == (pytest.approx(-1), None, "very high, negative")
    for ttft in ((1.0, 3.0), (1.0, 3.0, None), (1.0, 1.0, 1.0)):
        assert "TTFT (s)" not in correlated(*ttft)["metric"].to_list(), ttft
    for r, word in (
        (0.05, "none"), (-0.05, "none"), (0.1, "low"), (0.09, "none"), (-0.1, "low, negative"), (0.29, "low"), (0.3, "medium"),
        (-0.49, "medium, negative"), (0.5, "high"), (0.69, "high"), (-0.5, "high, negative"), (0.7, "very high"), (1.0, "very high"),
    ):  # fmt: skip
        assert strength(r) == word, r
    # Of the planted formula, TTFT is that of batch × prompt, whatever the devices.
    exact = correlations(with_metrics(planted(1, 0.0)).filter(pl.col("model") == "m1e+07"))
    batch, ttft = zip(*((b, b * p) for b in (1, 4, 16) for p in (32, 128, 512)), strict=True)
    assert of(exact, "TTFT (s)", "batch size")["r"] == pytest.approx(statistics.correlation(batch, ttft))
    assert of(exact, "TTFT (s)", "devices")["r"] == pytest.approx(0, abs=1e-9)


def test_panels_are_geometric_means_by_hand(runs):
    """Two input lengths at each of two batch sizes, whose repeats are 1 and 4, 16 and 16, 2 and 2, 8 and 8."""
    rows = [(1, 8, 8, 1.0), (1, 8, 8, 4.0), (1, 16, 8, 16.0), (2, 8, 8, 2.0), (2, 16, 8, 8.0), (3, 8, 8, 0.0)]
    found = marginal_means(crossed(rows), "level").filter(pl.col("metric") == "TTFT (s)")
    told = [tuple(row) for row in found.select("value", "mean", "low", "high", "n").rows()]
    # √(2 × 16), √(1 × 16), √(4 × 16); √(2 × 8). A metric of 0 has no logarithm, and is no value of the factor.
    assert told == [(1, pytest.approx(32**0.5), pytest.approx(4), pytest.approx(8), 2),
                    (2, pytest.approx(4), pytest.approx(4), pytest.approx(4), 2)]  # fmt: skip
    # Two repeats a tenth apart in all configurations: the shade is theirs, however many configurations are averaged.
    exact = planted(1, 0.0).with_columns(pl.col("ttft_mean_s") * pl.when(pl.col("repeat") == 2).then(1.1).otherwise(1.0))
    row = marginal_means(with_metrics(exact), "level").filter(pl.col("metric") == "TTFT (s)").row(0, named=True)
    assert row["high"] / row["low"] == pytest.approx(1.1)
    assert row["n"] == 12  # three input × two output lengths × two numbers of devices

    # Panels average only what is complete.
    def makespans(runs):
        return marginal_means(runs, "output_fixed").filter(model="m1e+07", metric="makespan (s)")

    means = makespans(runs)
    assert means["value"].to_list() == [16, 64]
    assert 3.5 < means["mean"][1] / means["mean"][0] < 4  # 64 ÷ 16, less what TTFT takes of both
    assert (means["low"] < means["mean"]).all()
    # One configuration lacks the longer output: its shorter one no longer counts.
    kept = makespans(runs.filter(~((pl.col("level") == 16) & (pl.col("output_fixed") == 64))))
    assert kept["mean"].to_list() == pytest.approx(makespans(runs.filter(pl.col("level") < 16))["mean"].to_list())
    # A repeat that is missing moves no panel.
    exact = with_metrics(planted(1, 0.0))
    holed = exact.filter(~((pl.col("repeat") == 2) & (pl.col("level") == 16) & (pl.col("prompt_fixed") == 512)))
    assert len(holed) < len(exact)
    for column in ("mean", "low", "high"):
        whole, lacking = (marginal_means(each, "level")[column].to_list() for each in (exact, holed))
        assert lacking == pytest.approx(whole), column


@pytest.fixture
def models(monkeypatch):
    """In place of scikit-learn's: models that know the metric to be the first factor, each with what it learned of."""
    made = []

    class First:
        def __init__(self, **_):
            made.append(self)

        def fit(self, x, y):
            self.x, self.y, self.checked = x, y, not get_config()["skip_parameter_validation"]
            return self

        def predict(self, x):
            return x[:, 0]

    monkeypatch.setattr("sklearn.ensemble.GradientBoostingRegressor", First)
    return made


def test_importances_are_the_shuffles_mean_and_95_per_cent(models, monkeypatch):
    """Two rounds, whose twenty shuffles lose 0 to 19 and 20 to 39 of the round's score, which is worked out twice."""
    scores = [0.4, 0.6]

    def planted():
        while True:
            for turn, score in enumerate(scores):
                yield from (score, score, *(score - 20 * turn - i for i in range(20)))

    values = planted()
    monkeypatch.setattr("sklearn.metrics.r2_score", lambda *_: next(values))
    runs = crossed([(i, 8, 8, math.e**i) for i in range(1, 21)])  # 20 configurations are just enough
    row = of(importances(runs), "TTFT (s)", "batch size")
    assert (row["importance"], row["low"], row["high"]) == (19.5, pytest.approx(0.975), pytest.approx(38.025))
    assert (row["score"], row["n"]) == (0.5, 20)
    assert importances(runs)["metric"].to_list() == ["TTFT (s)"]  # the others are the same in all
    assert all(model.y.tolist() == pytest.approx(model.x[:, 0]) for model in models)  # the logarithm
    assert not any(model.checked for model in models)  # which would take half of the time
    assert importances(runs.head(19)).is_empty()
    scores[1] = 0.58
    row = of(importances(runs), "TTFT (s)", "batch size")
    assert (row["importance"], row["low"], row["high"], row["score"]) == (None, None, None, pytest.approx(0.49))
    # Where the least is 0 there is no logarithm.
    importances(crossed([(i, 8, 8, float(i - 1)) for i in range(1, 21)]))
    assert all(models[-1].y == models[-1].x[:, 0] - 1)
    assert importances(crossed([(i, 8, 8, 3.0) for i in range(1, 21)])).is_empty()


def test_models_and_devices_of_which_nothing_is_known_are_no_error():
    unknown = planted(1, 0.05).with_columns(parameters=pl.lit(None, dtype=pl.Int64))
    assert of(of_ttft(with_metrics(unknown)), "TTFT (s)", "model")["low"] > 0  # in the order of their names
    half = planted(1, 0.05).with_columns(tensor_parallel=pl.when(pl.col("tensor_parallel") == 2).then(2))
    told = of_ttft(with_metrics(half))
    assert told["n"].unique().to_list() == [36]
    assert "devices" not in told["factor"].to_list()


def as_results(runs):
    return Tables(named(runs), pl.DataFrame())


def small():
    """A study of 32 configurations."""
    return planted(1, 0.05, batches=(1, 16), prompts=(32, 512))


def figures_that_apply(runs):
    return [name for name in figures_of(runs.to_dicts()) if name in FIGURES]


def drawn(name, results):
    return str(load_figure(name).draw(results).to_dict())


def test_the_figures_of_a_factor_study():
    assert figures_that_apply(small()) == FIGURES
    assert figures_that_apply(small().with_columns(arrival=pl.lit("poisson"))) == []
    few = small().filter(tensor_parallel=1, output_fixed=16)
    for name in FIGURES:
        assert "Nothing to show" in drawn(name, as_results(few.with_columns(valid=pl.lit(False)))), name
    assert "Nothing to show" not in drawn("factor-panels", as_results(small()))
    assert "permutation" not in drawn("factors", as_results(few))  # of 8 configurations correlations alone


@pytest.mark.long(part="outputs")
def test_families_are_not_mixed():
    def panels(runs):
        spec = load_figure("factor-panels").draw(as_results(runs)).to_dict()
        return spec["vconcat"][0] if "vconcat" in spec else spec  # above how busy devices are

    one = small()
    of_other = {"family": pl.lit("other"), "workload": "other-" + pl.col("workload")}
    other = one.with_columns(pl.col("ttft_mean_s") * 100, **of_other)
    alone, both = panels(one), panels(pl.concat([one, other]))
    assert [part["title"]["text"] for part in both["vconcat"]] == ["crossed", "other"]
    assert both["vconcat"][0]["concat"] == alone["concat"]
    # One length at a time is no factor study, and nothing of it counts here.
    swept = one.filter(output_fixed=16, level=1, tensor_parallel=1).with_columns(family=pl.lit("prefill"))
    assert panels(pl.concat([one, swept]))["concat"] == alone["concat"]
