"""`bench compare` as a user runs it: what it prints, and when it stops a release."""

import json
from pathlib import Path

import polars as pl
import pytest

from bench.cli import main
from bench.records.files import write_record
from tests.support import records
from tests.support.answers import STEADY
from tests.support.compare import TOKENS, failing, runs

SLOWER = {level: [0.5 * x for x in values] for level, values in STEADY.items()}


@pytest.fixture
def study(tmp_path, monkeypatch, summary):
    """A folder with a study's results, of the deployments a and b."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    table = pl.concat([runs(summary, STEADY), runs(summary, SLOWER, deployment="b")])
    table.write_parquet("results/summary.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (("a", "b"), 1),
        (("b", "a"), 0),
        (("results:a", "results:b"), 1),
        (("results/summary.parquet:a", ".:b"), 1),
        (("results", "results/summary.parquet"), 0),
    ],
)
def test_sets_by_any_name_and_the_exit_status(study, capsys, names, status):  # noqa: ARG001
    assert main(["compare", *names]) == 0
    if status:
        with pytest.raises(SystemExit) as ended:
            main(["compare", *names, "--fail-on-regression", "0"])
        assert ended.value.code == 1
        assert f"regression: {TOKENS} is worse" in capsys.readouterr().err
    else:
        assert main(["compare", *names, "--fail-on-regression=60"]) == 0


def test_a_regression_within_the_percentage_passes(study, capsys):  # noqa: ARG001
    assert main(["compare", "a", "b", "--fail-on-regression", "60"]) == 0
    with pytest.raises(SystemExit):
        main(["compare", "a", "b", "--fail-on-regression=8"])
    assert "is worse over all levels by more than 8 %" in capsys.readouterr().err


def test_a_gate_that_cannot_see_is_no_pass(study, capsys):  # noqa: ARG001
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a", "a", "--fail-on-regression", "5"])
    assert ended.value.code == 3
    told = capsys.readouterr().err
    assert f"cannot see: {TOKENS}: a difference of 5 % over all levels could be overlooked" in told
    assert "sessions of each side" in told and "this is no pass" in told
    assert main(["compare", "a", "a", "--fail-on-regression", "5", "--allow-blind"]) == 0
    assert "cannot see" in capsys.readouterr().err


def test_a_single_pair_is_no_pass(study, capsys, summary):  # noqa: ARG001
    runs(summary, {1: [5.0]}).write_parquet("one.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a", "one.parquet", "--fail-on-regression", "0"])
    assert ended.value.code == 3
    assert "nothing shows how far runs differ by chance" in capsys.readouterr().err


def test_failures_alone_stop_a_release(study, capsys, summary):  # noqa: ARG001
    for name, share in (("ours", {}), ("theirs", {4: 0.5, 8: 1.0})):
        failing(summary, (4, 8), share, valid=False).write_parquet(f"{name}.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "ours.parquet", "theirs.parquet", "--fail-on-regression=50"])
    assert ended.value.code == 1
    told = capsys.readouterr()
    assert "regression: short at 8: 128 of 128 requests failed, of the baseline's 0 of 128" in told.err
    assert "short at 4: 64 of 128 requests failed, of the baseline's 0 of 128: worse; its latencies" in told.out


def test_levels_that_nobody_compares_are_no_pass(study, capsys, summary):  # noqa: ARG001
    steady = runs(summary, STEADY)
    steady.with_columns(valid=pl.col("level") != 8).write_parquet("holes.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a", "holes.parquet", "--fail-on-regression=60"])
    assert ended.value.code == 3
    assert "no pair of valid runs is comparable at short at 8" in capsys.readouterr().err


def test_the_table_says_what_was_compared(study, capsys, summary):  # noqa: ARG001
    other = runs(summary, {**SLOWER, 16: [1.0]}, deployment="c", facts=(records.launch(), records.facts(engine_version="2")))
    bad = (pl.col("level") == 8) & (pl.col("repeat") == 2)
    other.with_columns(valid=~bad, tpot_p50_s=0.01).write_parquet("c.parquet")
    main(["compare", "a", "c.parquet", "--runs", "--difference", "5"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "baseline   a: 8 runs",
        "candidate  c.parquet: 9 runs, 1 of them invalid and left out",
        "compared   7 pairs of runs at 4 levels, 1 session",
        "alone      short at 8, repeat 2: baseline only",
        "alone      short at 16, repeat 1: candidate only",
        "absent     tpot_p50_s: no pair has a value of it on both sides",
    ]
    text = "\n".join(lines)
    assert "differs    engine_version: 1 → 2" in text
    assert next(line for line in lines if line.startswith(TOKENS)).split()[1:3] == ["−50.0", "%"]
    assert "tokens/s: −50.0 % over all loads" in text
    assert "sessions of each side that find 5 % over all levels" in text
    assert "1 session of each side: too few to show how far sessions differ" in text
    assert any(line.startswith("short, high loads") for line in lines)
    assert any(line.startswith("short at 8") for line in lines)


def test_many_runs_without_a_counterpart_are_counted(study, capsys, summary):  # noqa: ARG001
    runs(summary, {1: [9.0, 9.0]}).write_parquet("one.parquet")
    main(["compare", "a", "one.parquet"])
    assert "and 1 more run without a counterpart" in capsys.readouterr().out


def test_the_result_for_another_program(study, capsys):  # noqa: ARG001
    main(["compare", "a", "b", "--json", "--metric", TOKENS, "--metric", TOKENS, "--difference", "5"])
    told = json.loads(capsys.readouterr().out)
    assert (told["pairs"], told["baseline"]) == (8, {"source": "a", "runs": 8, "invalid": 0})
    assert [row["verdict"] for row in told["overall"]] == ["worse"]
    assert [row["level"] for row in told["configurations"]] == [1, 2, 4, 8]
    assert [row["region"] for row in told["regions"]] == ["low loads", "middle loads", "high loads"]
    assert told["regressions"] == [f"{TOKENS} is worse over all levels"]
    assert "could be overlooked" in told["cannot_see"][0]
    assert (told["plan"][0]["metric"], told["plan"][0]["sessions"] > 20) == (TOKENS, True)


def test_a_plan_counts_the_metrics_that_a_comparison_has(monkeypatch, capsys):
    for metrics in (6, 9):
        monkeypatch.setattr("bench.analysis.power.EXPECTED", metrics)  # as with more rows in columns.toml
        assert main(["compare", "--plan", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["metrics"] == metrics
    assert main(["compare", "--plan", "--metric", "ttft_p99_s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == 1


def test_a_plan_before_anything_is_measured(capsys):
    assert main(["compare", "--plan", "--noise", "3", "--between", "4", "--difference", "10", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert 4 <= told["sessions"] <= 10
    assert told["could_see"][str(told["sessions"])] <= 10
    assert main(["compare", "--plan", "--difference", "0.1"]) == 0
    assert "takes more than 100 sessions of each deployment" in capsys.readouterr().out
    assert main(["compare", "--plan", "--noise", "0"]) == 2
    assert main(["compare", "a"]) == 2
    assert "give A, the baseline, and B, the candidate; or --plan" in capsys.readouterr().err


def test_folders_of_parsed_runs(tmp_path, capsys, summary):
    for side, factor in (("old", 1.0), ("new", 0.8)):
        for level in (1, 2, 4):
            folder = tmp_path / side / "runs" / str(level)
            folder.mkdir(parents=True)
            told = {**summary, "run": str(level), "level": float(level), TOKENS: factor * level * 10}
            (folder / "summary.json").write_text(json.dumps(told))
        write_record(records.facts(engine_version=side), tmp_path / side / "deployment.json")
    assert main(["compare", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    text = capsys.readouterr().out
    assert "differs    engine_version: old → new" in text
    assert "−20.0 %" in text
    (tmp_path / "new/runs/4/summary.json").write_text('{"level": "high"}')
    assert main(["compare", str(tmp_path / "old"), str(tmp_path / "new")]) == 2
    assert "new/runs/4/summary.json: not a valid summary.json (level is 'high'). Parse its run again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "c"), "c: no such file or folder, and results/summary.parquet has no deployment 'c'. There are: a, b."),
        (("results:c", "a"), "results has no deployment 'c'. There are: a, b."),
        (("a", "text"), "text: is no summary table: "),
        (("a", "old.parquet"), "old.parquet: lacks axis, level: an older version wrote it"),
        (("a", "empty"), "empty: neither summary.parquet, nor results/summary.parquet, nor a summary.json at any depth."),
        (("a", "b", "--metric", "watts"), "--metric watts: not among those that are compared: throughput_tokens_per_s, "),
        (("a", "b", "--metric", "ttft_p50_s"), "ttft_p50_s: no pair of runs has a value on both sides."),
        (("a", "invalid.parquet"), "invalid.parquet: none of its 8 runs is valid; `bench runs` says why"),
        (("a", "long.parquet"), "long.parquet has no run with the workload, load and repeat of one in a: the baseline has short at 1, 2, 4, 8; "
                                "the candidate has long at 1, 2, 4, 8."),
        (("results", "long.parquet"), "the baseline has the deployments a, b, the candidate c: none in common."),
    ],
)  # fmt: skip
def test_what_the_user_can_fix_is_one_line_and_status_2(study, capsys, summary, arguments, message):
    mine = runs(summary, STEADY)
    mine.drop("axis", "level").write_parquet("old.parquet")
    mine.with_columns(valid=False).write_parquet("invalid.parquet")
    runs(summary, STEADY, workload="long", deployment="c").write_parquet("long.parquet")
    (study / "empty").mkdir()
    (study / "text").write_text("no table")
    assert main(["compare", *arguments]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert not told.out


def test_a_pack_is_unpacked_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("h100.tar.gz").write_bytes(b"")
    assert main(["compare", "h100.tar.gz", "h100.tar.gz:a"]) == 2
    assert "bench unpack h100.tar.gz`" in capsys.readouterr().err


def test_a_deployment_needs_a_study_to_be_one_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "a", "b"]) == 2
    expected = "a: no such file or folder, and no deployment either, as results/summary.parquet is missing."
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["a", "-1", "nan", "inf"])
def test_a_percentage_that_is_none(study, capsys, wrong):  # noqa: ARG001
    assert main(["compare", f"--fail-on-regression={wrong}", "a", "b"]) == 2
    assert f"--fail-on-regression: {wrong!r} is not a percentage of 0 or more." in capsys.readouterr().err
