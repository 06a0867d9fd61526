"""What HTTP statuses mean, and how a list of models is read, is decided in one place each."""

import ast
import re

from tests.support.study import ROOT

STATUSES = {401, 403, 404, 405, 429, 501, 502, 503, 504}


def where(words, wanted):
    """The library's modules in which a constant is wanted, of those whose text has one of these words."""
    texts = {path: path.read_text() for path in sorted((ROOT / "src/bench").rglob("*.py"))}
    return {
        path.name
        for path, text in texts.items()
        if re.search(words, text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and wanted(node.value)
    }


def test_no_other_module_has_a_status_of_its_own():
    assert where("|".join(map(str, STATUSES)), lambda value: type(value) is int and value in STATUSES) == {"headers.py"}


def test_no_other_module_asks_for_models():
    """The planted server answers."""
    assert where("/v1/models", lambda value: isinstance(value, str) and value == "/v1/models") == {"http.py", "planted.py"}
