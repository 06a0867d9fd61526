"""`bench compare` as a user runs it: what it prints, and when it stops a release."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bench.runs.files import write_record
from tests.support import records
from tests.support.answers import STEADY
from tests.support.command import bench
from tests.support.compare import TOKENS, failing, runs

SLOWER = {level: [0.5 * x for x in values] for level, values in STEADY.items()}


@pytest.fixture
def study(here, summary):
    """A folder with a study's results, of the deployments a and b."""
    (here / "results").mkdir()
    table = pl.concat([runs(summary, STEADY), runs(summary, SLOWER, deployment="b")])
    table.write_parquet("results/summary.parquet")
    return here


def compared(*arguments):
    """`bench compare` in this folder: its exit status, and what it printed."""
    done = bench("compare", *arguments, cwd=Path.cwd())
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long(part="outputs")
@pytest.mark.usefixtures("study")
def test_sets_by_any_name_and_the_exit_status():
    for names, worse in (
        (("a", "b"), True),
        (("b", "a"), False),
        (("results:a", "results:b"), True),
        (("results/summary.parquet:a", ".:b"), True),
        (("results", "results/summary.parquet"), False),
    ):
        assert compared(*names)[0] == 0, names
        status, _, err = compared(*names, "--fail-on-regression", "0" if worse else "60")
        assert (status, f"regression: {TOKENS} is worse" in err) == (worse, worse), names
    # A regression within the percentage passes.
    assert compared("a", "b", "--fail-on-regression", "60")[0] == 0
    status, _, err = compared("a", "b", "--fail-on-regression=8")
    assert status == 1 and "is worse over all levels by more than 8 %" in err


@pytest.mark.usefixtures("study")
def test_what_cannot_be_seen_is_no_pass(summary):
    runs(summary, {1: [5.0]}).write_parquet("one.parquet")
    runs(summary, STEADY).with_columns(valid=pl.col("level") != 8).write_parquet("holes.parquet")
    for other, most, said in (
        ("a", "5", f"cannot see: {TOKENS}: a difference of 5 % could be overlooked"),
        ("one.parquet", "0", "nothing shows how far runs differ by chance"),
        ("holes.parquet", "60", "no two valid runs compare at short at 8"),
    ):
        status, _, err = compared("a", other, "--fail-on-regression", most)
        assert status == 3 and said in err, other


@pytest.mark.usefixtures("study")
def test_what_is_worse_without_proof_is_no_pass(summary):
    """One session of a level a side shows no noise; any percentile that an SLO may limit can be asked for, of a class too."""
    for metric, extra in (("ttft_p95_s", ()), ("class_chat_tpot_p90_s", ("--allow-blind",))):
        for side, seconds in (("before", 0.1), ("after", 0.399)):
            runs(summary, {4: [1.0]}).with_columns(pl.lit(seconds).alias(metric)).write_parquet(f"{side}.parquet")
        gate = ("--metric", metric, "--fail-on-regression", "10", *extra)
        told = compared("before.parquet", "after.parquet", *gate)
        assert told[0] == 3 and f"not proven: {metric}: +299.0 % over all levels" in told[2], metric
        assert "\nnoise      not known, so no difference has an interval: measure a load twice (repeats), 3 " in told[1], metric
        assert "intervals assume" not in told[1], metric
        # What is better was only not seen.
        assert compared("after.parquet", "before.parquet", *gate)[0] == (0 if extra else 3), metric
    # Failures that are no proof are none of a pass either.
    for name, share in (("ours", {}), ("theirs", {4: 1 / 64})):
        failing(summary, (4, 8), share).write_parquet(f"{name}.parquet")
    gate = ("--metric", TOKENS, "--fail-on-regression", "900", "--allow-blind")
    status, _, err = compared("ours.parquet", "theirs.parquet", *gate)
    assert status == 3 and "not proven: short at 4 requests in flight: 2 of 128 requests failed" in err


def of_a_job(summary, hour, *, speed=1.0, reference=1.0, slow=1.0):
    """Four sessions in one hour of a server on a machine of this speed, which its reference loads show."""
    dice = np.random.default_rng(hour)
    return pl.concat(
        runs(
            summary,
            {level: [level * speed * slow * math.exp(0.01 * dice.standard_normal())] for level in (1, 2, 4)},
            session=session,
            started=f"2026-01-01T{hour:02}:{session:02}:00.000+00:00",
            reference_started=f"2026-01-01T{hour:02}:{session:02}:00.000+00:00",
            reference_s=math.exp(0.02 * dice.standard_normal()) / reference,
            reference_load="alike",
            reference_since=f"2026-01-01T{hour:02}:{session:02}",
            round=session,
        )
        for session in (1, 2, 3, 4)
    )


def test_a_stored_baseline_is_no_evidence_of_what_the_machine_changed(tmp_path, summary):
    for name, rows in (
        ("stored", of_a_job(summary, 1)),
        ("faster", of_a_job(summary, 2, speed=1.4, reference=1.4)),
        ("slower", of_a_job(summary, 3, speed=0.6, reference=0.6)),
        ("worse", of_a_job(summary, 4, slow=0.5)),
        ("hidden", of_a_job(summary, 5, speed=1.4, reference=1.4, slow=0.8)),
        ("silent", of_a_job(summary, 6, slow=0.5).with_columns(reference_load=pl.lit("another"))),
        ("alike", of_a_job(summary, 7)),
    ):
        (tmp_path / name).mkdir()
        rows.write_parquet(tmp_path / name / "summary.parquet")
    for name, status, verdict, said in (
        ("faster", 3, "no evidence", "what is better may be due to the machine, and is no verdict"),
        ("slower", 3, "no evidence", "what is worse may be due to the machine, and is no verdict"),
        ("worse", 1, "worse", "no more than chance"),
        ("hidden", 3, "no evidence", "at the machine's speed for the baseline"),
        ("silent", 1, "worse", "Without reference loads on both sides"),
        ("alike", 3, "no evidence", "could be overlooked"),
    ):
        gate = ("--metric", TOKENS, "--fail-on-regression", "10")
        told = compared(tmp_path / "stored", tmp_path / name, *gate)
        assert told[0] == status and said in "".join(told[1:]), name
        assert f"  {verdict}  " in next(line for line in told[1].splitlines() if line.startswith(TOKENS)), name
    # A machine that is known to repeat itself may say so; and what was measured in turns is as it was.
    assert compared(tmp_path / "stored", tmp_path / "alike", *gate, "--between", "1")[0] == 0
    in_turns = {"started": pl.col("started").str.replace("T02", "T01"), "deployment": pl.lit("b")}
    turns = of_a_job(summary, 2, speed=1.4, reference=1.4).with_columns(**in_turns)
    pl.concat([of_a_job(summary, 1), turns]).write_parquet(tmp_path / "both.parquet")
    told = json.loads(compared(f"{tmp_path}/both.parquet:a", f"{tmp_path}/both.parquet:b", "--json", "--metric", TOKENS)[1])
    assert (told["stored"], told["machine"], told["overall"][0]["verdict"]) == (False, None, "better")


@pytest.mark.usefixtures("study")
def test_failures_alone_stop_a_release(summary):
    for name, share in (("ours", {}), ("theirs", {4: 0.5, 8: 1.0})):
        failing(summary, (4, 8), share, valid=False).write_parquet(f"{name}.parquet")
    status, _, err = compared("ours.parquet", "theirs.parquet", "--fail-on-regression=50")
    assert status == 1
    assert "regression: short at 8 requests in flight: 128 of 128 requests failed, of the baseline's 0 of 128" in err


@pytest.mark.usefixtures("study")
def test_the_table_says_what_was_compared(summary):
    other = runs(summary, {**SLOWER, 16: [1.0]}, deployment="c", facts=(records.launch(), records.facts(engine_version="2")))
    bad = (pl.col("level") == 8) & (pl.col("repeat") == 2)
    other.with_columns(valid=~bad, tpot_p50_s=0.01).write_parquet("c.parquet")
    _, text, _ = compared("a", "c.parquet", "--runs")
    lines = text.splitlines()
    assert lines[:6] == ["baseline   a: 8 runs", "candidate  c.parquet: 9 runs, 1 of them invalid and left out",
                         "compared   7 pairs of runs at 4 levels, 1 session",
                         "alone      short at 8 requests in flight, repeat 2: baseline only",
                         "alone      short at 16 requests in flight, repeat 1: candidate only",
                         "absent     tpot_p50_s: no pair has it on both sides"]  # fmt: skip
    assert next(line for line in lines if line.startswith(TOKENS)).split()[1:3] == ["−50.0", "%"]
    assert "differs    engine_version: 1 → 2" in text
    # And for another program.
    told = json.loads(compared("a", "b", "--json", "--metric", TOKENS, "--metric", TOKENS)[1])
    assert (told["pairs"], told["baseline"]) == (8, {"source": "a", "runs": 8, "invalid": 0})
    assert [row["verdict"] for row in told["overall"]] == ["worse"]
    assert [row["level"] for row in told["configurations"]] == [1, 2, 4, 8]


def test_a_plan_before_anything_is_measured(monkeypatch):
    told = json.loads(compared("--noise", "3", "--between", "4", "--difference", "10", "--json")[1])
    assert 4 <= told["sessions"] <= 10 and told["runs"] == 12 * told["sessions"]  # of six levels, of both sides
    assert told["could_see"][str(told["sessions"])] <= 10
    assert "takes more than 100 sessions of each deployment" in compared("--difference", "0.1")[1]
    # It counts the metrics that a comparison has.
    assert json.loads(compared("--difference", "5", "--metric", "ttft_p99_s", "--json")[1])["metrics"] == 1
    monkeypatch.setattr("bench.cli.commands.compare.compared.EXPECTED", 9)  # as with more rows in columns.toml
    assert json.loads(compared("--difference", "5", "--json")[1])["metrics"] == 9


def test_folders_of_parsed_runs(tmp_path, summary):
    for side, factor in (("old", 1.0), ("new", 0.8)):
        for level in (1, 2, 4):
            folder = tmp_path / side / "runs" / str(level)
            folder.mkdir(parents=True)
            told = {**summary, "run": str(level), "level": float(level), TOKENS: factor * level * 10}
            (folder / "summary.json").write_text(json.dumps(told))
        write_record(records.facts(engine_version=side), tmp_path / side / "deployment.json")
    status, text, _ = compared(tmp_path / "old", tmp_path / "new")
    assert status == 0 and "differs    engine_version: old → new" in text and "−20.0 %" in text
    (tmp_path / "new/runs/4/summary.json").write_text('{"level": "high"}')
    status, _, err = compared(tmp_path / "old", tmp_path / "new")
    assert status == 2 and "new/runs/4/summary.json: not a valid summary.json (Expected `float`, got `str`" in err


def test_what_the_user_can_fix_is_one_line_and_status_2(study, summary):
    mine = runs(summary, STEADY)
    mine.drop("axis", "level").write_parquet("old.parquet")
    mine.with_columns(valid=False).write_parquet("invalid.parquet")
    runs(summary, STEADY, workload="long", deployment="c").write_parquet("long.parquet")
    (study / "empty").mkdir()
    (study / "text").write_text("no table")
    (study / "h100.tar.gz").write_bytes(b"")
    for arguments, message in (
        (("a", "c"), "c: no such file or folder, and results/summary.parquet has no deployment 'c'. There are: a, b."),
        (("results:c", "a"), "results has no deployment 'c'. There are: a, b."),
        (("a", "text"), "text: not a summary table: "),
        (("a", "old.parquet"), "old.parquet: lacks axis, level: another program wrote it"),
        (("a", "empty"), "empty: neither summary.parquet, nor results/summary.parquet, nor a summary.json at any depth."),
        (("a", "b", "--metric", "watts"), "--metric watts is not compared. Name one of throughput_tokens_per_s, "),
        (("a", "b", "--metric", "ttft_p50_s"), "no valid run of a has the workload, load and repeat of one of b, and a value to compare."),
        (("a", "invalid.parquet"), "invalid.parquet: None of the 8 runs is valid, so only the server's counts hold."),
        (("a", "long.parquet"), "no valid run of a has the workload, load and repeat of one of long.parquet, and a value to compare."),
        (("results", "long.parquet"), "the baseline has the deployments a, b, the candidate c: none in common."),
        (("h100.tar.gz", "h100.tar.gz:a"), "bench unpack h100.tar.gz`"),
    ):  # fmt: skip
        status, out, err = compared(*arguments)
        assert (status, out) == (2, ""), arguments
        assert message in err, arguments
