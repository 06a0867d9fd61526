"""Two settings together, on made runs whose ratios are known."""

import math

import numpy as np
import polars as pl

from bench.analysis.setting_grid import setting_grids
from bench.figures.registry import load_figure
from bench.figures.selection import figures_of
from bench.study.settings import crossed_settings
from bench.words.charts import cell_text, interval_text
from tests.support.answers import WRONG, study

SEQS, TOKENS = (32, 64, 128), (None, 8192)
LEVELS = (1, 4, 16)


def made(
    summary, truth, *, seed=0, noise=0.03, start=0.02, sessions=4, leave_out=(), baseline=None, axis="concurrency", wrong=()
):
    """Runs of a grid of settings. Args: truth: throughput by the two values; noise, start: of a run and of a start of the server (ln)."""
    random = np.random.default_rng(seed)
    rows, launches = [], {}
    for seqs in SEQS:
        for tokens in TOKENS:
            name = f"s{seqs}-{tokens or 'default'}"
            if name in leave_out:
                continue
            flags = {"flag_max_num_batched_tokens": str(tokens)} if tokens else {}
            launches[name] = {"configured": {"max_num_seqs": seqs, "dtype": "float32", **flags}}
            for session in range(1, sessions + 1):
                of_start = start * random.standard_normal()
                for level in LEVELS:
                    value = 100 * level**0.5 * truth(seqs, tokens) * math.exp(of_start + noise * random.standard_normal())
                    rows.append(
                        {**summary, "deployment": name, "workload": "w", "family": "w", "run": f"w_{level}_{session}", "axis": axis,
                         "level": float(level), "session": session, "repeat": session, "preemptions": 0, "kv_usage_peak": 0.5,
                         "throughput_tokens_per_s": value, **(WRONG if name in wrong else {})}
                    )  # fmt: skip
    return study(rows, launches=launches, baseline=baseline)


def grid_of(results):
    (grid,) = setting_grids(results.runs)
    return grid


def verdicts(grid):
    return {(row["one"], row["other"]): row["verdict"] for row in grid.cells.iter_rows(named=True)}


def interacting(seqs, tokens):
    """More sequences help only with a larger budget of tokens."""
    return {32: 1.0, 64: 1.0, 128: 1.6}[seqs] if tokens else 1.0


def test_an_interaction_is_seen_where_it_is(summary):
    grid = grid_of(made(summary, interacting))
    assert grid.settings == ("max_num_seqs", "flag_max_num_batched_tokens")
    assert (grid.first, grid.values) == ("s32-default", (("32", "64", "128"), ("default", "8192")))
    assert verdicts(grid) == {
        ("32", "default"): "first",
        **dict.fromkeys([("32", "8192"), ("64", "default"), ("64", "8192"), ("128", "default")], "no evidence"),
        ("128", "8192"): "better",
    }
    (best,) = grid.cells.filter(verdict="better").iter_rows(named=True)
    assert best["low"] < 1.6 < best["high"] and best["levels"] == 3


def test_intervals_of_a_grid_hold_together_as_often_as_they_say(summary):
    """Of 60 grids 57 are expected, and 52 or fewer come in 1 of 100 such sets."""
    truth = {(32, None): 1.0, (64, None): 1.1, (128, None): 0.8, (32, 8192): 1.0, (64, 8192): 1.3, (128, 8192): 1.0}
    hold = []
    for seed in range(60):
        grid = grid_of(made(summary, lambda seqs, tokens: truth[seqs, tokens], seed=seed))
        held = [
            row["low"] <= truth[int(row["one"]), None if row["other"] == "default" else int(row["other"])] <= row["high"]
            for row in grid.cells.filter(pl.col("verdict") != "first").iter_rows(named=True)
        ]
        hold.append(all(held) and len(held) == 5)
    assert sum(hold) > 52


def test_which_cells_a_grid_has(summary):
    # The baseline is the first.
    grid = grid_of(made(summary, interacting, baseline="s128-8192"))
    assert grid.first == "s128-8192"
    assert set(verdicts(grid).values()) == {"first", "worse"}
    # What is missing or invalid is no cell and not known.
    grid = grid_of(made(summary, interacting, leave_out=("s64-8192",), wrong=("s128-8192",)))
    assert ("64", "8192") not in verdicts(grid)
    assert verdicts(grid)["128", "8192"] == "unknown"
    drawn = load_figure("settings-heat-map").draw(made(summary, interacting, wrong=("s128-8192",))).to_dict()
    cells = next(iter(drawn["datasets"].values()))
    expected = {(str(s), t) for s in SEQS for t in ("default", "8192")} - {("128", "8192")}
    assert {(row["one"], row["other"]) for row in cells} == expected
    # An open loop has no grid.
    for axis in ("request_rate", "time_scale"):
        results = made(summary, interacting, axis=axis)
        assert setting_grids(results.runs) == [], axis
        assert "settings-heat-map" not in figures_of(results.runs.to_dicts()), axis


def test_which_settings_are_crossed():
    for cells, found in (
        ([(1, 1), (1, 2), (2, 1)], 1),
        ([(1, 1), (2, 2)], 0),
        ([(1, 1), (1, 2), (1, 3)], 0),
        ([(1, 1), (2, 2), (3, 3)], 0),  # one setting goes with the other
    ):
        rows = [{"deployment": f"{a}-{b}", "dtype": "auto", "max_num_seqs": a, "block_size": b} for a, b in cells]
        assert len(crossed_settings(rows)) == found, cells
    # Three settings are a grid for each value of the third.
    rows = [
        {"deployment": f"{a}{b}{c}", "dtype": "auto", "max_num_seqs": a, "block_size": b, "cores": c}
        for a in (1, 2) for b in (1, 2) for c in (1, 2)
    ]  # fmt: skip
    found = crossed_settings(rows)
    assert len(found) == 3 * 2
    assert all(len(cells) == 4 for _, _, cells in found)


def test_a_page_has_six_grids_at_most_and_says_how_many_it_lacks(summary, monkeypatch):
    results = made(summary, interacting, sessions=2)
    grid = grid_of(results)
    monkeypatch.setattr("bench.figures.charts.settings_heat_map.setting_grids", lambda _: [grid] * 9)
    page = load_figure("settings-heat-map").draw(results).to_dict()
    assert len(page["concat"]) == 6
    assert page["title"]["subtitle"] == "Not drawn: 3 further pairs of settings, with no more combinations than these"


def test_cells_in_words():
    assert [cell_text(1.0, "first"), cell_text(1.123, "better"), cell_text(0.9, "worse")] == ["first", "+12 %", "−10 %"]
    assert interval_text(0.95, 1.3, "no evidence") == "−5 to +30 %"
    assert interval_text(None, None, "unknown") == "noise not known"
    assert interval_text(0.001, 900.0, "no evidence") == "noise too large"
