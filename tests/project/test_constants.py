"""The numbers that decide results each say why they are what they are, and the page of them is that of the code."""

from statistics import NormalDist

import pytest

from bench import constants as module
from bench.constants import KINDS, constants, constants_page, read_constants
from bench.errors import BenchError
from bench.parse.steady import SURE_GROWTH
from bench.statistics import CONFIDENCE, MEDIAN_DEVIATION, TAIL, Z, student_t
from tests.support.study import ROOT


def test_the_page_is_that_of_the_code_and_every_place_has_constants(monkeypatch):
    found = constants()
    monkeypatch.setattr(module, "constants", lambda: found)
    assert (ROOT / "docs/reference/constants.md").read_text() == constants_page(), "run `bench config`"
    assert len(found) > 400
    assert {each.place.split(".")[0] for each in found} >= {"analysis", "search", "predict", "parse", "load", "drift"}
    assert all(each.kind in KINDS and each.meaning for each in found)


SOURCE = """
import math
_A = 1.5  # least ratio; convention
# widest grid of a curve, over
# all loads; tuned: benchmarks.search
_B: float = -math.log(1 / 2)
C = (_A, 2.0)  # both ends; derived
NAMES = ("a", "b")
D = _A
_TABLE = {"a": 1, "b": _A}  # bytes of each; of two; source: White, 1997: MSER-5
lower = 3
FLAG = True
"""


def test_comments_beside_and_above_are_read():
    found = read_constants(SOURCE, "m")
    assert [(each.name, each.value, each.meaning, each.kind, each.detail) for each in found] == [
        ("_A", "1.5", "least ratio", "convention", ""),
        ("_B", "-math.log(1 / 2)", "widest grid of a curve, over all loads", "tuned", "benchmarks.search"),
        ("C", "(_A, 2.0)", "both ends", "derived", ""),
        ("_TABLE", "{'a': 1, 'b': _A}", "bytes of each; of two", "source", "White, 1997: MSER-5"),
    ]


def test_a_number_without_a_reason_is_refused():
    for line in (
        "_A = 1.5",
        "_A = 1.5  # least ratio",
        "_A = 1.5  # least ratio; because",
        "_A = 1.5  # least ratio; tuned",
        "_A, _B = 1, 2  # two at once; convention",
        "# of a section; convention\n\n_A = 1.5",
    ):
        with pytest.raises(BenchError, match="m: _A"):
            read_constants(line, "m")


def test_rounded_values_are_those_of_the_textbooks():
    assert (0.95, 0.025, pytest.approx(NormalDist().inv_cdf(0.975), abs=5e-5)) == (CONFIDENCE, TAIL, Z)
    assert pytest.approx(NormalDist().inv_cdf(0.75), abs=5e-5) == MEDIAN_DEVIATION
    assert round(student_t(18), 1) == SURE_GROWTH
