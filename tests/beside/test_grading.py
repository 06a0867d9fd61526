"""Answers that are programs: graded right where they are known to be right, wrong, endless or hostile, and compared with intervals that hold."""

import json
import textwrap
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module

import numpy as np
import polars as pl
import pytest
import yaml

from bench.beside.quality.answers import program_of
from bench.beside.quality.graded_set import Task, graded_sets, read_set
from bench.beside.quality.sandbox import sandbox
from bench.errors import BenchError
from bench.findings.accuracy import accuracy, accuracy_difference, graded
from bench.parse.table import summary_frame
from bench.runs.columns import schema_of
from bench.runs.files import checksum
from bench.study.config import Thresholds
from bench.study.read import load_workload
from bench.workloads.prompts.kind import prompt_digest
from tests.support import records
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.grading import kept
from tests.support.project import Project, external
from tests.support.study import ROOT

PROMPT = 'import math\n\n\ndef double(x):\n    """ Twice x.\n    >>> double(2)\n    4\n    """\n'
TEST = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(math.pi) == 2 * math.pi\n"
TASK = Task("t/0", PROMPT, "double", TEST)
ROW = {"task_id": "t/0", "prompt": PROMPT, "entry_point": "double", "test": TEST}
WHOLE = "def double(x):\n    return 2 * x\n"
SANDBOX, ANSWERS = (import_module(f"bench.beside.quality.{name}") for name in ("sandbox", "answers"))


@pytest.fixture(scope="module")
def place():
    with sandbox() as found:
        yield found


@pytest.fixture
def shared(place, monkeypatch):
    """Commands grade in this module's sandbox: to make one and to try it takes a second."""
    monkeypatch.setattr(ANSWERS, "sandbox", lambda: nullcontext(place))


def judged(place, programs):
    return dict(zip(programs, place.verdicts([(code, TASK) for code in programs.values()]), strict=True))


def test_right_answers_pass_however_they_are_written_and_wrong_and_hostile_ones_fail(place):
    answers = {name: program_of(TASK, answer) for name, answer in {**RIGHT, **WRONG}.items()}
    assert judged(place, answers) == dict.fromkeys(RIGHT, "passed") | dict.fromkeys(WRONG, "failed")


ANSWERS_OF = yaml.safe_load((ROOT / "tests/data/graded_answers.yaml").read_text())
RIGHT, WRONG, ASKED, CHEATS = (ANSWERS_OF[kind] for kind in ("right", "wrong", "asked", "cheats"))


PAID = """
import atexit, builtins, ctypes, gc, math, os, signal, sys

def pay(space):
    if "token" in space:
        os.write(space["said"], space["token"])
        os._exit(0)
    if "end" in space:
        space["end"](0)

judge = open("/proc/self/stat").read().split()[3]
"""


@pytest.mark.parametrize("isolated", [True, False])
def test_an_answer_that_reaches_for_the_judge_fails(place, isolated):
    place = replace(place, isolated=place.isolated and isolated)
    found = judged(place, {name: PAID + code for name, code in CHEATS.items()})
    assert {name for name, verdict in found.items() if verdict == "passed"} == set()


def test_files_of_an_answer_are_few_and_lie_in_its_folder_and_it_has_no_network(place, tmp_path):
    if not place.isolated:
        pytest.skip("unshare does not work here")
    tmp_path.chmod(0o777)
    right = "    return 2 * x\n"
    dial = "import socket\nlistening = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(listening.getsockname(), 1)"
    programs = {
        "one": "def double(x):\n    open('f', 'w').write('x')\n" + right,
        "many": "def double(x):\n    for i in range(100): open(str(i), 'w')\n" + right,
        "folders": "import os\ndef double(x):\n    for i in range(100): os.mkdir(str(i))\n" + right,
        "large": "def double(x):\n    for i in range(20): open(str(i), 'wb').write(bytes(2**20))\n" + right,
        "elsewhere": f"def double(x):\n    open({str(tmp_path / 'f')!r}, 'w')\n" + right,
        "in memory": "def double(x):\n    open('/dev/shm/f', 'w')\n" + right,
        "above": "def double(x):\n    open('../f', 'w')\n" + right,
        "a connection": "def double(x):\n" + textwrap.indent(dial, "    ") + "\n" + right,  # loopback is down, too
    }
    assert judged(place, programs) == {name: "passed" if name == "one" else "failed" for name in programs}
    assert list(tmp_path.iterdir()) == []


GIVEN = "class Odd(Exception):\n    pass\n\n\ndef helper(x):\n    return x * 3\n\n\ndef f(x, y=0):\n"


def test_functions_take_and_return_data_of_all_kinds(place):
    """With a docstring, and of the head alone; a test that calls with more than data is named."""
    for said in ('    """ What it does. """\n', ""):
        programs = []
        for each in ASKED.values():
            task = Task("t", GIVEN + said, "f", f"def check(f):\n    {each['test']}\n")
            programs.append((program_of(task, f"    {each['body']}\n"), task))
        assert dict(zip(ASKED, place.verdicts(programs), strict=True)) == dict.fromkeys(ASKED, "passed")
    task = Task("t/7", "def f(g):\n", "f", "def check(f):\n    assert f(lambda: 1) == 1\n")
    assert place.verdicts([("def f(g):\n    return g()\n", task)]) == ["no data"]


def test_a_judge_that_is_done_before_the_answer_has_begun_has_its_word(place):
    quick = Task("t", "def f(x):\n", "f", "def check(f):\n    pass\n")
    assert place.verdicts([(f"def f(x):\n    return {i}\n", quick) for i in range(16)]) == ["passed"] * 16


def test_what_does_not_end_is_ended(place, monkeypatch):
    monkeypatch.setattr(SANDBOX, "_CPU_S", 1)
    monkeypatch.setattr(SANDBOX, "_WALL_S", 3)
    endless, patient = (
        (program_of(TASK, f"```python\nimport time\ndef double(x):\n    while True: {what}\n```"), TASK)
        for what in ("pass", "time.sleep(1)")
    )
    assert place.verdicts([endless, patient]) == ["timeout"] * 2


def test_a_set_is_read_by_what_is_sent_and_refused_where_it_cannot_be_graded(tmp_path):
    chat, file = [{"role": "user", "content": "Double."}], tmp_path / "set.jsonl"
    file.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "task_id": "t/1", "messages": chat}))
    told = {digest: task.name for digest, task in read_set(file).items()}
    assert told == {prompt_digest(PROMPT): "t/0", prompt_digest(chat): "t/1"}
    for rows, said in (
        ([{"prompt": "Hello"}], "line 1 has no text under task_id, entry_point, test"),
        ([ROW, ROW], "line 2 repeats an earlier prompt"),
    ):
        (tmp_path / said).write_text("\n".join(map(json.dumps, rows)))
        with pytest.raises(BenchError, match=said):
            read_set(tmp_path / said)


def pairs(both, gained, lost, missed):
    """Tasks of a baseline and of a candidate: which of them solves how many."""
    ours = [1.0] * both + [0.0] * gained + [1.0] * lost + [0.0] * missed
    theirs = [1.0] * both + [1.0] * gained + [0.0] * lost + [0.0] * missed
    return tuple({str(i): x for i, x in enumerate(side)} for side in (ours, theirs))


def test_the_interval_of_a_difference_is_newcombe_s():
    """The first of his examples: 36 pairs with both, 12 and 2 with one of them; method 10."""
    found = accuracy_difference(*pairs(36, 12, 2, 0))
    assert found.tasks == 50
    assert (found.share, found.low, found.high) == pytest.approx((0.2, 0.0569, 0.3404), abs=1e-4)
    found = accuracy_difference(*pairs(20, 5, 10, 15))  # by his formula: φ is above 0, and has its correction of continuity
    assert (found.share, found.low, found.high) == pytest.approx((-0.1, -0.24502, 0.05287), abs=1e-4)


def test_tasks_that_both_answered_are_compared_and_several_answers_are_one_trial():
    """No task that differs is no proof of equality."""
    for both, missed in ((0, 40), (20, 20), (40, 0)):
        found = accuracy_difference(*pairs(both, 0, 0, missed))
        assert found.share == 0 and found.low < -0.01 and found.high > 0.01
    found = accuracy_difference({"a": 1.0, "b": 0.0, "c": 1.0}, {"b": 1.0, "c": 1.0, "d": 1.0})
    assert (found.tasks, found.share) == (2, 0.5)
    assert accuracy_difference({"a": 1.0}, {"b": 1.0}) is None
    assert accuracy({}) is None
    found = accuracy({"a": 0.5, "b": 1.0})
    assert (found.tasks, found.share) == (2, 0.75)


@pytest.mark.long(part="truth")
def test_of_a_hundred_intervals_ninety_five_hold_the_truth():
    """Within chance of 2,000 draws: 0.935 lies 3 standard errors below."""
    for n, solved, lost, gained in ((40, 0.3, 0.1, 0.05), (164, 0.6, 0.05, 0.05), (164, 0.1, 0.02, 0.06)):
        draws = np.random.default_rng(7).multinomial(n, [solved - lost, gained, lost, 1 - solved - gained], size=2000)
        found = (accuracy_difference(*pairs(*map(int, draw))) for draw in draws)
        assert np.mean([each.low <= gained - lost <= each.high for each in found if each]) >= 0.935, (n, solved)


def test_a_study_grades_what_it_keeps_of_a_graded_set(tmp_path):
    graded_file, plain = tmp_path / "set.jsonl", tmp_path / "plain.jsonl"
    graded_file.write_text(json.dumps(ROW))
    plain.write_text(json.dumps({"prompt": "Hello"}))

    def load(file=None, **more):
        asks = {"prompts": str(file)} if file else {}
        return load_workload({"arrival": "burst", "output_tokens": 3, "endpoint": "chat", **asks, **more}, source="t")

    kept = [load(file, keep_answers=True) for file in (graded_file, plain)]
    said = []
    assert graded_sets([*kept, load(graded_file)], said.append) == [str(graded_file)]
    assert graded_sets([load(graded_file)], said.append) == []
    mixed = {name: {"share": 0.5, "prompts": str(file)} for name, file in (("a", graded_file), ("b", plain))}
    mix = load(arrival="closed", num_requests=8, keep_answers=True, classes=mixed)
    assert graded_sets([mix], said.append) == [str(graded_file)]
    graded_file.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "test": ""}))
    assert said == []
    assert graded_sets(kept, said.append) == []
    assert "not graded" in said[0] and "line 2 has no text under test" in said[0]
    (tmp_path / "gone.jsonl").write_text(json.dumps(ROW))
    gone = load(tmp_path / "gone.jsonl", keep_answers=True)
    (tmp_path / "gone.jsonl").unlink()  # as of a pack
    assert graded_sets([gone], said.append) == []


def test_grades_are_compared_with_the_baseline_at_the_same_load(summary):
    """By hand: at level 4 the candidate loses one task of two; at 8 nothing was asked of the baseline."""
    rights = {("a", 4): (1, 1), ("b", 4): (1, 0), ("b", 8): (1, 1)}
    runs = [
        {**summary, "deployment": name, "run": f"r{level}", "level": float(level), "digest": f"{name}{level}"}
        for name, level in (("b", 4), ("b", 8), ("a", 4))
    ]
    frame = summary_frame(runs, {}, {}, Thresholds(), baseline="a")
    rows = [
        {"deployment": name, "run": f"r{level}", "digest": f"{name}{level}", "task": f"t/{i}", "answers": 1, "right": right}
        for (name, level), solved in rights.items()
        for i, right in enumerate(solved)
    ]
    stale = [{**rows[0], "digest": "of another definition", "right": 0}]
    found = graded(frame, pl.DataFrame([*rows, *stale], schema=schema_of("grades")))
    told = {(each.deployment, each.level): (each.accuracy.share, each.difference and each.difference.share) for each in found}
    assert told == {("a", 4): (1.0, None), ("b", 4): (0.5, -0.5), ("b", 8): (1.0, None)}


def graded_study(folder, summary, answered, rows, **more):
    """A table of runs that kept answers, of which a is the baseline, and a set of tasks beside it. Args: answered: by deployment."""
    runs = [
        kept(summary, name, texts, throughput_tokens_per_s=speed) for speed, (name, texts) in enumerate(answered.items(), 1)
    ]
    known = [{name: of(deployment=name) for name in answered} for of in (records.launch, records.facts)]
    summary_frame(runs, *known, Thresholds(), baseline="a").with_columns(**more).write_parquet(folder / "summary.parquet")
    (folder / "set.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "set.jsonl"


@pytest.mark.usefixtures("shared")
def test_a_set_whose_tests_take_more_than_data_is_refused(tmp_path, summary):
    rows = [{**ROW, "test": "def check(f):\n    assert f(2) == 4\n    assert f(lambda: 1) == 1\n"}]
    file = graded_study(tmp_path, summary, {"a": {prompt_digest(PROMPT): WHOLE}}, rows)
    assert "the tests of t/0 call it with values that are not data" in bench("grade", tmp_path, "--set", file).stderr


@pytest.mark.usefixtures("shared")
def test_from_kept_answers_to_the_table(tmp_path, summary):
    """Two tasks; the baseline solves both, the candidate one."""
    rows = [{**ROW, "task_id": f"t/{i}", "prompt": f"# {i}\n{PROMPT}"} for i in range(2)]
    one, other = (prompt_digest(row["prompt"]) for row in rows)
    file = graded_study(tmp_path, summary, {"a": {one: WHOLE, other: WHOLE}, "b": {one: WHOLE, other: "no"}}, rows)
    done = bench("grade", tmp_path / "summary.parquet", "--set", file, "--json")
    first, second = json.loads(done.stdout)
    assert (first["accuracy"]["share"], first["difference"]) == (1.0, None)
    assert (second["accuracy"]["share"], second["throughput_tokens_per_s"]) == (0.5, 2)
    assert second["solved"] == {"t/0": 1.0, "t/1": 0.0}
    assert second["difference"]["share"] == -0.5
    pl.read_parquet(tmp_path / "summary.parquet").with_columns(turns=3).write_parquet(tmp_path / "talks.parquet")
    assert "no answer to a prompt of" in bench("grade", tmp_path / "talks.parquet", "--set", file).stderr


# --- A study that keeps its answers: graded once all is measured, shown in the report, and never run from a pack

EXPOSITION = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()


@pytest.fixture
def project(tmp_path):
    """Two tasks: the server's words end in a comment, so that the first is solved whatever it says, and the second never."""
    with fake_server(metrics=EXPOSITION, pages={"/version": '{"version": "0.32.0"}'}, gap_s=0.01) as server:
        load = {"arrival": "closed", "num_requests": 4, "prompts": "set.jsonl", "cache": "as_is", "keep_answers": True}
        study = {"title": "A study", "ladders": [{"deployment": "a", "workload": "tasks", "concurrency": [2]}]}
        content = external(server.base_url, study=study, workloads={"tasks": {**load, "output_tokens": 3}})
        project = Project(tmp_path.resolve(), content)
        task = {"entry_point": "f", "test": "def check(f):\n    assert f() == 1\n"}
        rows = [{**task, "task_id": f"t/{n}", "prompt": f"def f():\n    return {n}  #"} for n in (1, 2)]
        (project.folder / "set.jsonl").write_text("\n".join(map(json.dumps, rows)))
        yield project
        for process in project.processes():
            process.kill()


@pytest.mark.long(part="workflows")
def test_a_study_grades_its_answers_and_a_pack_runs_none(project):
    results, report = project.folder / "results", project.folder / "results/report.md"
    jobs = project.run()
    assert jobs.index("grade") > jobs.index("aggregate") > max(i for i, job in enumerate(jobs) if job.startswith("measure"))
    grades = results / "analysis/grades.parquet"
    assert pl.read_parquet_schema(grades) == schema_of("grades")
    assert sorted(pl.read_parquet(grades).select("task", "answers", "right").rows()) == [("t/1", 2, 2), ("t/2", 2, 0)]
    assert "| 50.0 % | 1.3 to 98.7 % | 2 | 0 |" in report.read_text()
    assert project.run() == []
    # A sandbox that does not do what it should: the report says so.
    sandbox = project.folder / "src/bench/beside/quality/sandbox.py"
    sound = sandbox.read_text()
    sandbox.write_text(sound.replace('("return 3", "failed")', '("return 3", "passed")'))
    assert "grade" in project.run()
    assert "Answers are not graded: the sandbox says failed for a program that should be passed" in report.read_text()
    sandbox.write_text(sound)
    assert {"grade", "report"} <= set(project.run())
    assert "| 50.0 % | 1.3 to 98.7 % | 2 | 0 |" in report.read_text()
    assert "not graded" not in report.read_text()
    assert project.run() == []

    digest = checksum(project.folder / "set.jsonl")
    project.config |= {"packed": True, "files": {"set.jsonl": digest}}
    grades.unlink()
    assert "grade" not in project.run("--forcerun", "report")
    assert "pass@1" not in report.read_text()
    done = bench("grade", "results", "--set", "set.jsonl", cwd=project.folder)
    assert "50.0 %" in done.stdout, done.stderr
