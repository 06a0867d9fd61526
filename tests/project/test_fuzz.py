"""Inputs that are nearly right: the answer is a result or a BenchError, soon, and nothing is written elsewhere."""

from pathlib import Path

import pytest
from benchmarks.fuzzed import TARGETS, Outside, Target, TooSlow, accepted, inside
from hypothesis import HealthCheck, given, settings

INPUTS = {"configuration": 15, "yaml": 15, "pack": 3, "exposition": 8, "answer": 15, "run": 4}


def read_all(folder, times):
    for name, target in TARGETS.items():
        # Else all would be refused, and little tried.
        assert any(tried(target, folder, times * INPUTS[name])), name


def tried(target, folder, examples):
    """Whether each example was accepted."""
    found = []

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def read(value):
        found.append(accepted(target, value, folder))

    read()
    return found


def test_whatever_comes(tmp_path):
    read_all(tmp_path, 1)


@pytest.mark.long(part="inputs")
@pytest.mark.timeout(600)
def test_much_of_whatever_comes(tmp_path):
    read_all(tmp_path, 200)


@pytest.mark.long(part="inputs")
def test_the_fuzzer_sees_what_it_looks_for(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    for write in (
        lambda _: (tmp_path / "x").write_text("x"),
        lambda _: Path("../x").write_text("x"),
        lambda _: (tmp_path / "new").mkdir(),
        lambda _: (tmp_path / "x").unlink(),
    ):
        with pytest.raises(Outside):
            accepted(Target(None, write), None, folder)
    accepted(Target(None, lambda _: Path("x").write_text("x")), None, folder)
    assert list(folder.iterdir()) == []
    with pytest.raises(TooSlow):
        accepted(Target(None, lambda _: [sum(range(10**7)) for _ in range(15)]), None, folder)
    with inside(folder):
        assert Path.cwd() == folder
