"""The suite holds its own budget: a test that takes too much CPU, or never ends, is caught."""

import csv
import subprocess
from pathlib import Path

import pytest

pytest_plugins = "pytester"

BUSY = "import time\ndef work(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"
CHILD = "import subprocess, sys\ndef work(s):\n    code = f'import time\\nwhile time.process_time() < {s}: pass'\n    subprocess.run([sys.executable, '-c', code], check=True)\n"
TESTS = """
import pytest

@pytest.fixture(scope="module")
def made():
    work(0.3)

def test_in_time(made):
    pass

def test_too_much():
    work(0.3)

@pytest.mark.long(part="truth")
def test_long():
    work(0.3)
"""


CONFTEST = """
pytest_plugins = ["tests.support.cost"]

def pytest_configure(config):
    config.pluginmanager.get_plugin("tests.support.cost").MOST_S = 0.1
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """A suite of its own, whose tests have a tenth of a second."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeini("[pytest]\nmarkers = long(part)\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)

    def run(source, *options):
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "pytest_timeout", *options)

    return run


@pytest.mark.parametrize("work", [BUSY, CHILD], ids=["itself", "a child"])
def test_a_test_over_its_budget_fails_and_fixtures_and_long_tests_do_not(suite, work):
    done = suite(work + TESTS, "--over-budget", "fail")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["*test_too_much*", "*s of CPU; a test without a marker has 0.1 s*"])


def test_elsewhere_it_is_listed_and_what_each_file_costs_is_written(suite, pytester):
    done = suite(BUSY + TESTS, "--durations-file", "cost.csv")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["over 0.1 s of CPU: * *test_too_much"])
    rows = {row["kind"]: row for row in csv.DictReader((pytester.path / "cost.csv").read_text().splitlines())}
    assert {kind: int(row["tests"]) for kind, row in rows.items()} == {"unit": 2, "long": 1}
    assert rows["unit"]["slowest"] == "test_too_much" and float(rows["unit"]["fixtures_cpu_s"]) >= 0.3


def test_a_test_that_hangs_is_ended_and_named(suite):
    done = suite(
        "import threading\ndef test_hangs():\n    threading.Event().wait()\ndef test_next():\n    pass\n", "--timeout", "1"
    )
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*Timeout (>1.0s)*", "FAILED *::test_hangs*"])


def test_tests_that_change_the_checkout_are_told_and_fail_the_suite_that_holds_its_budget(suite, pytester):
    subprocess.run(["git", "init", "--quiet"], cwd=pytester.path, check=True)
    (pytester.path / ".gitignore").write_text("*\n!kept.txt\n")
    kept = 'from pathlib import Path\nWHERE = Path(__file__).parent / "%s"\ndef test_writes():\n    WHERE.write_text("")\n'
    assert suite(kept % "ignored.txt").ret == pytest.ExitCode.OK
    done = suite(kept % "kept.txt", "--over-budget", "fail")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["the tests changed the checkout: ?? kept.txt"])
    assert done.ret == pytest.ExitCode.TESTS_FAILED
