"""What the benchmarks import of the library, also inside functions, is there: most of them run by hand, and seldom."""

import ast
from importlib import import_module

import pytest
from benchmarks.mutation import GROUPS

from tests.support.study import ROOT


@pytest.fixture(scope="module")
def imported():
    """What benchmarks import of the library, by module, which is imported."""
    found = {}
    for file in [path for path in (ROOT / "benchmarks").rglob("*.py") if ".peers" not in path.parts]:
        tree = ast.parse(file.read_text())
        guarded = {
            id(each) for node in ast.walk(tree) if isinstance(node, ast.Try) for each in ast.walk(node)
        }  # older checkouts
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bench.") and id(node) not in guarded:
                _, names = found.setdefault(node.module, (import_module(node.module), set()))
                names |= {each.name for each in node.names}
    return found


def test_what_a_benchmark_imports_of_the_library_is_there(imported):
    assert len(imported) > 40
    for name, (module, names) in imported.items():
        for missing in [each for each in names if not hasattr(module, each)]:
            import_module(f"{name}.{missing}")


def test_what_is_mutated_and_its_tests_are_there():
    named = {file for modules, tests in GROUPS.values() for file in (*modules, *(f"tests/{name}.py" for name in tests))}
    assert [file for file in sorted(named) if not (ROOT / file).is_file()] == []
