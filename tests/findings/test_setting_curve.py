"""How throughput follows a numeric setting, and how many devices are best, on made runs whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.analysis.effects import Ratio
from bench.analysis.setting_curve import Form, LoadCurve, SettingCurve, setting_curves
from bench.figures.setting_forms import form_panels
from bench.words.setting_curve import answers
from tests.support.planted import answers as requests
from tests.support.planted import summary_rows

STUDIES = 200


def power(b):
    return lambda n: n**b


def inverse(c):
    return lambda n: 1 / (c + (1 - c) / n)


def made(
    truth, *, values=(1, 2, 4, 8), levels=(1, 8), seed=0, sessions=4, noise=0.03, start=0.03, setting="tensor_parallel", **more
):
    """Runs of deployments that differ in a setting. Args: truth: throughput and E2E by value and level. noise, start: of a run and of a
    start of the server (ln). more: columns in place of these."""
    random = np.random.default_rng(seed)
    rows = []
    for value in values:
        for session in range(1, sessions + 1):
            of_start = start * random.standard_normal()
            for level in levels:
                rate, e2e = truth(value, level)
                off = of_start + noise * random.standard_normal()
                rows.append(
                    {"deployment": f"d{value}", "model": "m", "engine": "e", "workload": "w", "axis": "concurrency", "device": "cuda",
                     "dtype": "float16", "tensor_parallel": 1, "pipeline_parallel": 1, "data_parallel": 1, "max_num_seqs": 64, setting: value,
                     "level": float(level), "session": session, "repeat": session, "baseline": False, "valid": True, "throughput_tokens_per_s": 100 * rate * math.exp(off),
                     "e2e_p50_s": e2e * math.exp(-off), **more}
                )  # fmt: skip
    return summary_rows(rows)


def curve_of(*args, **more):
    (curve,) = setting_curves(made(*args, **more))
    return curve


FORMS = (("power", 0.75, "inverse"), ("inverse", 0.15, "power"))


def of_form(form, shape):
    planted = {"power": power, "inverse": inverse}[form](shape)
    return lambda n, _: (planted(n), 1.0)


def test_the_form_of_a_curve_without_noise_is_found():
    for form, shape, _ in FORMS:
        for load in curve_of(of_form(form, shape), noise=0.002, start=0.002).loads:
            assert (load.verdict, getattr(load, form).shape.value) == (form, pytest.approx(shape, rel=0.02)), (form, load.level)


@pytest.mark.long(part="truth")
@pytest.mark.parametrize("sessions", [2, 4])
def test_the_interval_of_a_form_holds_and_the_wrong_one_is_seldom_chosen(sessions):
    """Intervals hold in at least 93 of 100, and in at most 5 of 100 the other form is chosen."""
    for form, shape, other in FORMS:
        curves = [curve_of(of_form(form, shape), seed=seed, sessions=sessions) for seed in range(STUDIES // 2)]
        loads = [load for curve in curves for load in curve.loads]
        shapes = [getattr(load, form).shape for load in loads]
        chosen = [load.verdict for load in loads]
        assert sum(found.low <= shape <= found.high for found in shapes) >= 0.93 * STUDIES, form
        assert chosen.count(other) <= 0.05 * STUDIES, form
        assert chosen.count(form) >= (0.5 if sessions == 4 else 0.0) * STUDIES, form


def test_what_follows_neither_form_is_said_to():
    """Throughput that rises to 2 and falls again."""
    truth = {1: 1.0, 2: 2.0, 4: 1.0, 8: 0.5}
    curve = curve_of(lambda n, _: (truth[n], 1.0))
    assert {load.verdict for load in curve.loads} == {"neither"}
    assert form_panels(curve, "tokens/s").to_dict()["hconcat"][0]["title"].endswith("neither form")
    # Nothing is chosen where nothing shows it.
    for frame, verdict in (
        (made(lambda n, _: (n**0.5, 1.0), sessions=1), "unknown"),
        (made(lambda n, _: (n**0.5, 1.0), values=(1, 2)), "few"),
        (made(lambda n, _: (n**0.5, 1.0)).with_columns(valid=pl.col("tensor_parallel") < 4), "few"),
        (made(lambda n, _: (n**0.5, 1.0)).with_columns(throughput_tokens_per_s=pl.when(pl.col("tensor_parallel") < 4).then("throughput_tokens_per_s")), "few"),
        (made(lambda n, _: (n**0.5, 1.0), noise=0.4, start=0.4), "undecided"),
    ):  # fmt: skip
        (curve,) = setting_curves(frame)
        assert {load.verdict for load in curve.loads} == {verdict}, frame
    # Nothing is said where no number varies or a loop is open.
    truth = lambda n, _: (float(n), 1.0)  # noqa: E731 - one line for each case
    assert setting_curves(made(truth, axis="request_rate")) == []
    assert setting_curves(made(truth, values=(1,))) == []
    texts = made(truth, setting="flag_x").with_columns(flag_x=pl.format("v{}", "flag_x"))
    assert setting_curves(texts) == []
    assert setting_curves(made(truth).with_columns(valid=pl.lit(value=False))) == []


def test_two_settings_are_told_apart():
    """Each number of devices with the other setting as it is."""
    parts = [made(lambda n, _: (n**0.5, 1.0), max_num_seqs=seqs) for seqs in (32, 64)]
    names = pl.format("{}-{}", "deployment", "max_num_seqs")
    found = setting_curves(pl.concat(part.with_columns(deployment=names) for part in parts))
    told = [(curve.setting, curve.deployments[0], len(curve.deployments)) for curve in found]
    assert told == [("tensor_parallel", "d1-32", 4), ("tensor_parallel", "d1-64", 4)]


# Throughput of each device: one is best alone with 1 request in flight, two with 8, and four are as good as two with 64.
RATES = {1: {1: 1.0, 2: 1.5, 4: 2.0}, 8: {1: 3.0, 2: 8.0, 4: 12.0}, 64: {1: 4.0, 2: 16.0, 4: 32.0}}
BEST = {1: {1}, 8: {2}, 64: {2, 4}}


def at_rates(n, level):
    return RATES[level][n], level / RATES[level][n]


def test_the_best_number_of_devices_without_noise_is_named():
    found = curve_of(at_rates, values=(1, 2, 4), levels=BEST, noise=0.002, start=0.002)
    assert {load.level: set(load.most) for load in found.loads} == BEST


@pytest.mark.long(part="truth")
@pytest.mark.parametrize("sessions", [2, 4])
def test_the_best_number_of_devices_is_among_those_named(sessions):
    """At 95 % confidence for each load; of 64 both may be named, and each alone is no error more often than the other."""
    held, alone = dict.fromkeys(BEST, 0), dict.fromkeys(BEST, 0)
    for seed in range(STUDIES):
        for load in curve_of(at_rates, values=(1, 2, 4), levels=BEST, seed=seed, sessions=sessions).loads:
            held[load.level] += bool(BEST[load.level] <= set(load.most))
            alone[load.level] += len(load.most) == 1
    assert all(count >= 0.93 * STUDIES for count in held.values()), held
    assert alone[1] >= 0.95 * STUDIES and alone[8] >= 0.8 * STUDIES and alone[64] <= 0.07 * STUDIES, alone


def test_the_quickest_answers_all_requests():
    """With four devices most requests fail, and the others are answered soon."""
    failing = pl.lit(pl.Series([requests(10, failed=8, e2e=0.05)]))
    fine = pl.lit(pl.Series([requests(10, e2e=1.0)]))
    runs = made(lambda n, _: (n**0.5, 1 / n), values=(1, 2, 4)).with_columns(
        judged=pl.when(pl.col("tensor_parallel") == 4).then(failing).otherwise(fine)
    )
    (curve,) = setting_curves(runs)
    assert {load.quickest for load in curve.loads} == {(2,)}
    (curve,) = setting_curves(runs.with_columns(judged=failing.first()))
    assert {(load.values, load.quickest) for load in curve.loads} == {((1, 2, 4), ())}


def test_in_words():
    form = Form(100.0, Ratio(0.7, 0.6, 0.8))
    load = LoadCurve(1.0, (1, 2, 4), (), "power", form, form, (1,), (4,))
    few = LoadCurve(16.0, (1, 2), (), "unknown", None, None, (1, 2), ())
    loads = (load, replace(load, level=8.0, verdict="inverse", most=(1, 2)), few)
    curve = SettingCurve("m", "e", "w", "concurrency", ("a", "b"), "tensor_parallel", ("flag_x",), True, True, True, loads)
    (answer,) = answers([curve])
    most, quickest, forms = answer.lines
    assert "1 GPU at 1 request in flight; 1 or 2 at 8, 16 requests in flight, not decided" in most
    assert "4 GPUs at 1, 8 requests in flight; not known at 16 requests in flight" in quickest
    for said in ("tensor_parallelᵇ at 1 request in flight, b = 0.70 (0.60 to 0.80 at 95 % confidence)",
                 "at 8 requests in flight the time per token is a fixed part", "with 1: 0.70 (0.60 to 0.80 at 95 % confidence)",
                 "not known, too few runs were repeated at 16 requests in flight"):  # fmt: skip
        assert said in forms, said
    assert "These settings changed together: tensor_parallel, with x." in answer.sure
