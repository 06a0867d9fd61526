"""What HTTP statuses mean, and how a list of models is read, is decided in one place each."""

import ast
from functools import cache

from tests.support.study import ROOT

STATUSES = {401, 403, 404, 405, 429, 501, 502, 503, 504}


@cache
def sources():
    """The library's modules; parsed here, and not by every process that collects tests."""
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "src/bench").rglob("*.py"))}


def where(wanted):
    return {
        path.name
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and wanted(node.value)
    }


def test_no_other_module_has_a_status_of_its_own():
    assert where(lambda value: type(value) is int and value in STATUSES) == {"statuses.py"}


def test_no_other_module_asks_for_models():
    assert where(lambda value: isinstance(value, str) and value == "/v1/models") == {"http.py"}
