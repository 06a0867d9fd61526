"""Answers that are calls of functions: prompts that ask for them, and answers judged right and wrong where the truth is planted."""

import json

import pytest
import yaml

from bench.beside.quality.calls import CallTask, right_calls
from bench.beside.quality.graded_set import graded_sets, read_set
from bench.errors import BenchError
from bench.parse.table import summary_frame
from bench.study.config import Thresholds
from bench.study.read import load_workload
from bench.workloads.prompts import PromptFile
from bench.workloads.prompts.own import prompt_digest
from tests.support.calls import AREA, BOTH, PLAY, TASK, function, written
from tests.support.cases import cases
from tests.support.command import bench
from tests.support.grading import kept
from tests.support.study import ROOT

ENDLESS = ["[geo.area(base=" + "*".join(["9" * 60] * 200) + ", height=5)]", "[" * 5000]


def test_right_calls_are_right_however_they_are_written_and_wrong_or_hostile_ones_are_wrong():
    answers = yaml.safe_load((ROOT / "tests/data/calls.yaml").read_text())
    assert {kind: right_calls(TASK, answer) for kind, answer in answers["right"].items()} == dict.fromkeys(
        answers["right"], True
    )
    assert [kind for kind, answer in answers["wrong"].items() if right_calls(TASK, answer)] == []
    assert not any(right_calls(TASK, answer) for answer in ENDLESS)


@cases(
    ("answer", "right"),
    [
        ("[play(artist='Taylor Swift', minutes=20), play(artist='Maroon 5')]", True),
        ("[play(artist='maroon5'), play(artist='Taylor Swift')]", True),
        ("[play(artist='Taylor Swift')]", False),
        ("[play(artist='Taylor Swift'), play(artist='Taylor Swift')]", False),
        ("[play(artist='Taylor Swift'), play(artist='Maroon 5', minutes=15)]", False),
    ],
)
def test_several_calls_are_right_together_in_any_order(answer, right):
    assert right_calls(BOTH, answer) is right


def test_texts_in_place_of_dictionaries_are_wrong():
    """Of a parameter that may be left out, which takes a list of them."""
    songs = [[{"title": ["u"]}, {"title": ["v"]}], ""]
    task = CallTask("t", TASK.functions, [{"play": {"artist": ["A"], "songs": songs}}])
    assert right_calls(task, "[play(artist='A', songs=[{'title': 'u'}, {'title': 'v'}])]")
    assert not right_calls(task, "[play(artist='A', songs=['u', 'v'])]")


def test_calls_that_only_differ_in_a_number_s_type_are_told_apart():
    """Of two calls that Python calls equal, the one that fits an answer is used up, and not its twin."""
    task = CallTask("t", {"f": function("f", ["m"], m="integer")}, [{"f": {"m": [3]}}, {"f": {"m": [3]}}])
    assert right_calls(task, "[f(m=3), f(m=3)]")
    assert not right_calls(task, "[f(m=3.0), f(m=3)]")


def test_the_functions_stand_before_the_question_and_a_system_message_behind_them(tmp_path):
    (first, _) = PromptFile(source="file", file=str(written(tmp_path))).read()
    system, asked = first.prompt
    assert (system["role"], asked) == ("system", {"role": "user", "content": "Do t/0."})
    assert json.loads(system["content"][system["content"].index("[{") :]) == [AREA, PLAY]
    (tmp_path / "brief").mkdir()
    (first, _) = PromptFile(source="file", file=str(written(tmp_path / "brief", system="Be brief."))).read()
    assert [each["role"] for each in first.prompt] == ["system", "user"]
    assert first.prompt[0]["content"].endswith("\n\nBe brief.")
    bare = PromptFile(source="file", file=str(tmp_path / "BFCL_v4_multiple.json"), column="question").read()
    assert bare[0].prompt[-1] == asked and "geo.area" not in json.dumps(bare[0].prompt)


def test_a_set_of_calls_is_read_and_refused_where_its_types_are_not_python_s(tmp_path):
    file = written(tmp_path)
    found = read_set(file)
    assert list(found.values()) == [TASK, BOTH]
    assert list(found) == [prompt_digest(each.prompt) for each in PromptFile(source="file", file=str(file)).read()]
    load = {"arrival": "burst", "output_tokens": 3, "endpoint": "chat", "keep_answers": True}
    with_functions, without = (
        load_workload({**load, "prompts": each}, source="t")
        for each in (str(file), {"source": "file", "file": str(file), "column": "question"})
    )
    assert graded_sets([with_functions, without], print) == [(str(file), None)]
    java = CallTask("j/0", {"f": function("f", a="HashMap")}, [{"f": {"a": ["x"]}}])
    for wrong in (
        java,
        CallTask("k", {"f": function("f", a="integer")}, [{"g": {"a": [1]}}]),
        CallTask("n", TASK.functions, []),
    ):
        with pytest.raises(BenchError, match="do not match its answer"):
            read_set(written(tmp_path, (TASK, wrong)))


def test_from_kept_calls_to_the_table_without_any_program(tmp_path, summary, monkeypatch):
    file = written(tmp_path)
    one, two = read_set(file)
    runs = [kept(summary, "a", {one: "[geo.area(base=10, height=5)]", two: "[play(artist='Maroon 5')]"})]
    summary_frame(runs, {}, {}, Thresholds(), baseline="a").write_parquet(tmp_path / "summary.parquet")
    monkeypatch.setattr("bench.beside.quality.answers.sandbox", None)
    (found,) = json.loads(bench("grade", tmp_path / "summary.parquet", "--set", file, "--json").stdout)
    assert found["solved"] == {"t/0": 1.0, "t/1": 0.0}
