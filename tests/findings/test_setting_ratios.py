"""A ratio of two deployments has one value, wherever a report has it: beside the baseline, as a gain, in a grid, on a curve, in a figure."""

import itertools
import math

import numpy as np
import polars as pl
import pytest

from bench.analysis.compare import compare_with_baseline
from bench.analysis.setting_curve import setting_curves
from bench.analysis.setting_gain import setting_gains
from bench.analysis.setting_grid import setting_grids
from bench.analysis.windows import OF_WINDOWS
from bench.figures.registry import load_figure
from tests.support.answers import WRONG, study

LEVELS, FULL, THROUGHPUT = (1.0, 2.0, 8.0, 32.0), 8.0, "throughput_tokens_per_s"
ONE = "t1-s32"
# What is wrong with a run of a deployment, a session and a level, by study.
WHOLE = {}
FAILING = {("t2-s32", 1, 32.0): WRONG, (ONE, 3, 2.0): WRONG, (ONE, 1, 8.0): WRONG, ("t1-s64", 2, 8.0): WRONG}
MISSING = {
    ("t2-s32", 2, 32.0): {THROUGHPUT: None},
    ("t4-s32", 1, 1.0): {THROUGHPUT: None},
    ("t1-s64", 1, 8.0): {THROUGHPUT: None},
}
REFUSING = {("t4-s32", session, 32.0): {"failed": 5, "requests": 10} for session in range(1, 5)}
SHORT = {("t4-s64", 1, 2.0): {"steady_why": "short"}}  # which leaves its neighbours their windows


def results_of(summary, sessions, wrong):
    """Crossed numbers of devices and of sequences; sessions and runs differ by 5 %, and so do the whole of a run and its window."""
    random, rows, launches = np.random.default_rng(3), [], {}
    for tensor, seqs in itertools.product((1, 2, 4), (32, 64)):
        name = f"t{tensor}-s{seqs}"
        settings = {"dtype": "float32", "tensor_parallel": tensor, "max_num_seqs": seqs}
        launches[name] = {"tensor_parallel": tensor, "configured": settings}
        for session in range(1, sessions + 1):
            start = random.standard_normal()
            for level, repeat in itertools.product(LEVELS, (1, 2) if sessions == 1 else (session,)):
                whole, steady = (
                    100 * level**0.7 * tensor**0.6 * seqs**0.1 * math.exp(0.05 * (start + random.standard_normal()))
                    for _ in "ws"
                )
                rows.append(
                    {**summary, "deployment": name, "workload": "w", "family": "w", "run": f"w_{level}_{session}_{repeat}",
                     "axis": "concurrency", "level": level, "session": session, "repeat": repeat, "preemptions": 0,
                     "kv_usage_peak": 1.0 if tensor == 1 and level >= FULL else 0.5, THROUGHPUT: whole, "e2e_p50_s": level / whole,
                     "steady_from_s": 1.0, "steady_why": None, OF_WINDOWS[THROUGHPUT]: steady,
                     OF_WINDOWS["e2e_p50_s"]: level / steady, **wrong.get((name, session, level), {})}
                )  # fmt: skip
    return study(rows, launches=launches, baseline=ONE)


def test_a_ratio_has_one_value(summary):
    for sessions, wrong in ((4, FAILING), (4, MISSING), (4, REFUSING), (4, SHORT), (2, FAILING), (1, WHOLE), (1, FAILING)):
        results = results_of(summary, sessions, wrong)
        runs = results.runs
        effects = {
            name: found.effects.filter(metric=THROUGHPUT) for name, found in compare_with_baseline(runs, [THROUGHPUT]).items()
        }
        level = {
            (name, row["level"]): row["ratio"]
            for name, rows in effects.items()
            for row in rows.filter(scope="level").to_dicts()
        }
        whole = {name: rows.filter(scope="all")["ratio"].item() for name, rows in effects.items()}
        assert len(level) >= 14, (sessions, wrong)  # of 20: others have no valid pair

        (grid, *_) = setting_grids(runs)
        assert dict(grid.cells.filter(pl.col("verdict") != "first").select("deployment", "ratio").iter_rows()) == pytest.approx(
            whole
        ), (sessions, wrong)
        of_one = [gain for gain in setting_gains(runs) if gain.deployments[0] == ONE]
        assert len(of_one) == 3, (sessions, wrong)
        for gain in of_one:
            name = gain.deployments[1]
            full = gain.full[0]
            for part, loads in ((gain.room, [x for x in LEVELS if x < full]), (gain.short, [x for x in LEVELS if x >= full])):
                known = [level[name, load] for load in loads if (name, load) in level]
                expected = pytest.approx(math.prod(known) ** (1 / len(known))) if known else None
                assert part.same and part.same.value == expected, (sessions, wrong)
        (devices,) = (
            curve for curve in setting_curves(runs) if curve.deployments[0] == ONE and curve.setting == "tensor_parallel"
        )
        on_curve = {
            (f"t{value:g}-s32", load.level): rate.value / load.throughput[0].value
            for load in devices.loads
            if load.values[0] == 1
            for value, rate in zip(load.values[1:], load.throughput[1:], strict=True)
        }
        assert on_curve == pytest.approx({at: ratio for at, ratio in level.items() if at[0] in devices.deployments}), sessions
        drawn = load_figure("settings").draw(results).to_dict()
        in_figure = {
            (row["series"], row["level"]): row["ratio"] for rows in drawn["datasets"].values() for row in rows if "ratio" in row
        }
        for (name, load), ratio in level.items():
            tensor, seqs = name.removeprefix("t").split("-s")
            if seqs == "32":
                assert in_figure[f"TP={tensor}", load] * int(tensor) == pytest.approx(ratio), (sessions, wrong)
