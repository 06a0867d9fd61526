"""A study that keeps its answers to a graded set: graded once all is measured, shown in the report, and never run from a pack."""

import json
import shutil

import polars as pl
import pytest

from bench.records.checksums import checksum
from bench.records.columns import schema_of
from tests.support.calls import written
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.forked import FORKING
from tests.support.project import LENIENT, Project
from tests.support.study import CONTENT, ROOT

pytestmark = pytest.mark.long(part="workflows")

EXPOSITION = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()


@pytest.fixture
def project(tmp_path):
    """Two tasks: the server's words end in a comment, so that the first is solved whatever it says, and the second never."""
    with fake_server(metrics=EXPOSITION, pages={"/version": '{"version": "0.32.0"}'}, gap_s=0.01) as server:
        load = {
            "arrival": "closed",
            "num_requests": 4,
            "prompts": "set.jsonl",
            "cache": "as_is",
            "keep_answers": True,
            "output_tokens": 3,
        }
        project = Project(
            tmp_path.resolve(),
            {
                **CONTENT,
                "study": {"title": "A study", "ladders": [{"deployment": "a", "workload": "tasks", "concurrency": [2]}]},
                "engines": {"e": {"source": "external", "base_url": server.base_url}},
                "workloads": {"tasks": load},
                "measurement": {"warmup_requests": 3, "reference_requests": 0},
                "thresholds": LENIENT,
            },
        )
        rows = [
            {
                "task_id": f"t/{value}",
                "prompt": f"def f():\n    return {value}  #",
                "entry_point": "f",
                "test": "def check(f):\n    assert f() == 1\n",
            }
            for value in (1, 2)
        ]
        (project.folder / "set.jsonl").write_text("\n".join(map(json.dumps, rows)))
        yield project
        for process in project.processes():
            process.kill()


def test_a_study_grades_its_answers_and_a_pack_runs_none(project, monkeypatch):
    monkeypatch.setattr("bench.verify.again.subprocess", FORKING)
    results, report = project.folder / "results", project.folder / "results/report.md"
    jobs = project.run()
    assert jobs.index("grade") > jobs.index("aggregate") > max(i for i, job in enumerate(jobs) if job.startswith("measure"))
    grades = results / "analysis/grades.parquet"
    assert pl.read_parquet_schema(grades) == schema_of("grades")
    assert sorted(pl.read_parquet(grades).select("task", "answers", "right").rows()) == [("t/1", 2, 2), ("t/2", 2, 0)]
    assert "| a · tasks | 2 |" in report.read_text()
    assert "| 50.0 % | 1.3 to 98.7 % | 2 | 0 |" in report.read_text()
    assert project.run() == []
    checked = bench("verify", "results", cwd=project.folder)
    assert checked.returncode == 0, checked.stdout
    assert "grades of answers" in checked.stdout

    # A sandbox that does not do what it should: the report says so, and it is tried again until it works, then no more.
    sandbox = project.folder / "src/bench/grading/sandbox.py"
    sound = sandbox.read_text()
    sandbox.write_text(sound.replace('("return 3", "failed")', '("return 3", "passed")'))
    assert "grade" in project.run()
    assert "Answers are not graded: the sandbox says failed of a program that is to be passed" in report.read_text()
    assert "Answers are not graded: the sandbox says failed" in report.with_suffix(".html").read_text()
    assert {"grade", "report"} <= set(project.run())
    sandbox.write_text(sound)
    assert {"grade", "report"} <= set(project.run())
    assert "| 50.0 % | 1.3 to 98.7 % | 2 | 0 |" in report.read_text()
    assert "not graded" not in report.read_text()
    assert project.run() == []

    digest = checksum(project.folder / "set.jsonl")
    project.config |= {"packed": True, "files": {"set.jsonl": digest}}
    kept = shutil.move(grades, project.folder / "grades.parquet")
    assert "grade" not in project.run("--forcerun", "report")
    assert "pass@1" not in report.read_text()
    done = bench("grade", "results", "--set", "set.jsonl", "--keep", cwd=project.folder)
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(grades).equals(pl.read_parquet(kept))
    assert "grade" not in project.run()
    assert "| 50.0 % | 1.3 to 98.7 % | 2 | 0 |" in report.read_text()


def test_changed_answers_of_a_set_are_graded_again(project):
    """They are sent to nobody, so that no run's digest tells of them."""
    file = written(project.folder)
    project.config["workloads"]["tasks"].update(prompts=file.name, endpoint="chat")
    assert "grade" in project.run()
    assert pl.read_parquet(project.folder / "results/analysis/grades.parquet")["answers"].to_list() == [2, 2]
    answers = file.parent / "possible_answer" / file.name
    answers.write_text(answers.read_text().replace("Maroon 5", "Maroon 6"))
    jobs = project.run()
    assert {"grade", "report"} <= set(jobs) and not [job for job in jobs if job.startswith("measure")]
    assert project.run() == []
