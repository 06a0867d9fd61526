"""A study from nothing on a real llama.cpp, and how it goes on: it grows, loses its server, cannot start one, and is drawn.

It is the tutorial's. Its steps are made once, in `tests/support/grown.py`; the tests read what each of them left. Kills of the
workflow: tests/workflow/test_killed.py.
"""

import re

import polars as pl
import pytest

from bench.findings.registry import figures_of, load_figure
from bench.findings.tables import Tables
from tests.support.command import bench
from tests.support.grown import LOADS
from tests.support.study import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def names(jobs):
    return [job.split(":")[0] for job in jobs]


def test_from_nothing_to_the_table(llamacpp_study):
    nothing = llamacpp_study.steps["nothing"]
    assert nothing.jobs.count("measure:deployment=mine, session=1") == 1
    assert names(nothing.jobs).count("parse") == 1
    assert nothing.starts == 1
    bursts, chats = (nothing.summary.filter(workload=name).sort("level") for name in ("burst", "chat"))
    assert nothing.summary["valid"].to_list() == [True] * 7, nothing.summary["reasons"].to_list()
    assert bursts["ok"].to_list() == [1, 4, 8, 12]
    assert chats["ok"].to_list() == [16] * 3
    assert set(nothing.summary["predicted_saturation"]) == {8}
    assert True not in bursts["saturated"].to_list()[:2]  # where no scrape falls into a request it is not known
    assert bursts["saturated"].to_list()[3]


def test_a_level_more_and_a_discarded_run_are_all_that_is_measured(llamacpp_study):
    before, after = llamacpp_study.steps["nothing"], llamacpp_study.steps["grown"]
    mine = {name: at for name, at in after.measured.items() if name.endswith("@mine")}
    assert {name for name in mine if mine[name] != before.measured.get(name)} == {
        "burst_burst_p64_o64_c0006_r1@mine",
        "chat_closed_p64_o32_c0002_r1@mine",
    }
    assert before.measured.keys() < mine.keys()
    assert after.starts == before.starts + 1
    of_mine = [job.split(",")[0] for job in after.jobs if "=mine" in job]
    assert of_mine == ["measure:deployment=mine", "parse:deployment=mine"]


def test_a_model_more_runs_only_its_jobs(llamacpp_study):
    jobs = llamacpp_study.steps["grown"].jobs
    of_two = [job.split(",")[0] for job in jobs if "=two" in job]
    own = ["weights:model=two", "deploy:deployment=two", "measure:deployment=two"]
    assert of_two == [*own, "parse:deployment=two"]
    assert {job.split(":")[0] for job in jobs if not re.search("=(mine|two)", job)} == {"aggregate"}
    assert llamacpp_study.server_starts("two") == 1


def test_every_kind_of_load_is_what_it_says_on_a_real_engine(llamacpp_study):
    """Paced, stepped, replayed, and whole answers. Chats, conversations, and prefixes that are alike: tests/workflow/test_end_to_end.py."""
    results = Tables.read(*(llamacpp_study.kept("grown") / f"{table}.parquet" for table in ("summary", "timeseries")))
    rows = {row["workload"]: row for row in results.runs.filter(deployment="two").to_dicts()}
    assert rows.keys() == LOADS.keys()
    assert {name: row["reasons"] for name, row in rows.items() if not row["valid"]} == {}
    assert all(row["failed"] == row["wrong_prompt_tokens"] == row["wrong_output_tokens"] == 0 for row in rows.values())
    assert rows["replayed"]["prompt_tokens"] == 50
    assert rows["replayed"]["offered_rate"] == pytest.approx(2 / 0.75)
    assert (rows["whole"]["ttft_n"], rows["whole"]["e2e_n"]) == (0, 2)
    own = pl.read_parquet(llamacpp_study.folder / f"results/runs/two/{rows['own']['run']}/requests.parquet")
    # A token a character, a mark of 17 of them, and what the template adds.
    assert sorted(own["prompt_tokens"] - rows["own"]["template_tokens"]) == [17 + len("Why?"), 17 + len("And why is that so?")]
    assert own["prompt_asked"].to_list() == own["prompt_tokens"].to_list()
    assert (rows["own"]["prompts"], rows["own"]["prompt_fixed"]) == ("file", None)
    assert rows["stepped"]["recovered"] is not None  # there is load after the step; how long it takes is the machine's affair
    # Figures of nothing like the study's that the workflow drew: three axes, no first token of some.
    for name in figures_of(results.runs.to_dicts()):
        drawn = load_figure(name)
        assert all(drawn.draw(part).to_dict() for part in (results.by_axis() if drawn.by_axis else [results]))


def test_a_server_killed_in_a_run_is_started_again_and_the_rest_is_completed(llamacpp_study):
    before, after = llamacpp_study.steps["grown"], llamacpp_study.steps["lost"]
    assert "starting it once more" in after.said
    assert after.starts == before.starts + 2
    assert after.measured.items() > before.measured.items()
    assert len(after.summary) == 10
    assert after.summary["failed"].sum() == 0  # the dead server's failures are no run's
    assert llamacpp_study.nothing_is_left


def test_who_watches_sees_the_runs_after_the_second_start(llamacpp_study):
    seen, ended = llamacpp_study.seen, llamacpp_study.ended
    assert any(session.run and session.last for session in seen)
    assert {session.state for session in ended} == {"finished"}


def test_a_decision_draws_and_measures_nothing(llamacpp_study):
    before, drawn = llamacpp_study.steps["lost"], llamacpp_study.steps["drawn"]
    assert (drawn.measured, drawn.starts) == (before.measured, before.starts)
    assert {"findings", "figure", "report"} <= set(names(drawn.jobs))
    report = (llamacpp_study.folder / "results/report.md").read_text()
    assert report.startswith("## mine · chat sustains ")
    assert "A peak of 500 requests/s takes" in report


def test_make_has_nothing_to_do_and_leaves_the_cluster_s_profile_alone(llamacpp_study):
    made = llamacpp_study.made
    assert made.returncode == 0, (made.stdout + made.stderr)[-6000:]
    assert "SNAKEMAKE_PROFILE is set and not used" in made.stderr
    assert "The report: results/report.html" in made.stdout + made.stderr


def test_the_tutorial_s_question_of_size_is_answered(llamacpp_study):
    asked = "fleet results:mine --workload chat --slo ttft_p90=150ms --slo tpot_p90=25ms --peak-rps 800"
    assert f"bench {asked}" in (ROOT / "docs/tutorial/decision.md").read_text()
    within = asked.replace("150ms", "60s").replace("25ms", "60s")  # which any machine meets
    sized = bench(*within.split(), cwd=llamacpp_study.folder)
    assert (sized.returncode, "instances" in sized.stdout) == (0, True), sized.stderr


@pytest.fixture
def copied(llamacpp_study, tmp_path):
    """The study in a folder of its own, to go on from."""
    study = llamacpp_study.copied(tmp_path.resolve() / "copy")
    yield study
    for process in study.processes():
        process.kill()


@pytest.mark.long(part="workflows")
def test_a_server_that_will_not_start_ends_the_workflow_with_its_last_words(copied):
    copied.fail_to_start()
    failed = copied.steps["failed"]
    assert "OverflowError: value too large" in failed.said
    assert "What was measured is kept." in failed.said
    assert failed.measured == copied.steps["drawn"].measured
    del copied.config["deployments"]["mine"]["flags"]
    copied.step("again")
    assert copied.steps["again"].starts == failed.starts  # the runs of the deployment as it was are in the store
