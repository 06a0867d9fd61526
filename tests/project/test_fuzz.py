"""Inputs that are nearly right: the answer is a result or a BenchError, soon, and nothing is written elsewhere.

`python -m benchmarks.fuzz` tries many more of the same.
"""

from pathlib import Path

import pytest
from benchmarks.fuzz import Outside, TooSlow, check, inside
from benchmarks.fuzzed import TARGETS, Target
from hypothesis import HealthCheck, given, settings

INPUTS = {"configuration": 300, "yaml": 300, "pack": 60, "exposition": 150, "answer": 300, "run": 80}


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes(name, tmp_path):
    @settings(
        max_examples=INPUTS[name], derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(TARGETS[name].inputs)
    def read(value):
        accepted.append(not check(TARGETS[name], value, tmp_path)[1])

    accepted = []
    read()
    assert any(accepted)  # else all would be refused, and little tried


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
            check(Target(None, write, 1), None, folder)
    check(Target(None, lambda _: Path("x").write_text("x"), 1), None, folder)
    assert list(folder.iterdir()) == []
    with pytest.raises(TooSlow):
        check(Target(None, lambda _: [sum(range(10**7)) for _ in range(15)], 1), None, folder)
    with inside(folder):
        assert Path.cwd() == folder
