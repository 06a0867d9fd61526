"""Axes of load: what a ladder's key, a run's name, a column and a text say of it."""

import pytest

from bench.axes import AXES
from bench.errors import BenchError
from bench.records.columns import COLUMNS
from bench.study import Plan, load_config, load_workload
from bench.study.config import Ladder
from tests.support.study import CONTENT

TURNS = {"turns": {"count": 2, "new_tokens": 4}}


def study(axis, levels, **load):
    workload = {"arrival": "closed", "prompt_tokens": 8, "output_tokens": 8, "num_requests": 9, **load}
    ladder = {"deployment": "a", "workload": "w", axis: levels}
    content = {**CONTENT, "workloads": {"w": workload}, "study": {"title": "t", "ladders": [ladder]}}
    return load_config(content, source="t")


def test_each_is_a_key_of_ladders_and_a_column():
    assert set(AXES) <= Ladder.model_fields.keys()
    assert set(AXES) <= COLUMNS.keys()
    assert len({axis.letter for axis in AXES.values()}) == len(AXES)


def test_conversations_that_are_held_are_users():
    lengths = {"prompt_tokens": 8, "output_tokens": 8}
    assert load_workload({"arrival": "burst", **lengths, **TURNS}, source="t").axis == "users"
    assert load_workload({"arrival": "poisson", "num_requests": 2, **lengths, **TURNS}, source="t").axis == "request_rate"
    (run,) = Plan.of(study("users", [2], **TURNS)).runs
    assert run.name.startswith("w_closed_p8_o8_u0002_r1_")


def test_another_one_is_refused():
    cases = [
        ("concurrency", [2], TURNS, "has users as its load. Write users: "),
        ("users", [2], {}, "has concurrency as its load. Write concurrency: "),
        ("users", "auto", TURNS, "conversations that begin together keep in step"),
        ("concurrency", "auto", TURNS, "Conversations that begin together keep in step"),
        ("users", [1.5], TURNS, "users"),
    ]
    for axis, levels, load, said in cases:
        with pytest.raises(BenchError, match=said.replace("[", r"\[")):
            study(axis, levels, **load)
