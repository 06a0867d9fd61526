"""What the benchmarks import of the library, also inside functions, is there: most of them run by hand, and seldom."""

import ast
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.mutation import GROUPS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILES = sorted(path.relative_to(BENCHMARKS.parent) for path in BENCHMARKS.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_what_a_benchmark_imports_of_the_library_is_there(file):
    tree = ast.parse((BENCHMARKS.parent / file).read_text())
    guarded = {id(each) for node in ast.walk(tree) if isinstance(node, ast.Try) for each in ast.walk(node)}  # older checkouts
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bench.") and id(node) not in guarded:
            module = import_module(node.module)
            missing = [each.name for each in node.names if not hasattr(module, each.name)]
            for name in missing:
                import_module(f"{node.module}.{name}")


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_mutated_and_its_tests_are_there(group):
    modules, tests = GROUPS[group]
    files = [*modules, *(f"tests/{name}.py" for name in tests)]
    assert [file for file in files if not (BENCHMARKS.parent / file).exists()] == []
