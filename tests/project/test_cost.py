"""The suite holds its own budget: a test that takes too much CPU, or never ends, is caught."""

import csv
import subprocess
from pathlib import Path

import pytest

pytest_plugins = "pytester"

TESTS = """
import subprocess, sys, threading, time
import pytest

WORK = "import time\\nwhile time.process_time() < 0.3: pass"

def work(s=0.3):
    end = time.process_time() + s
    while time.process_time() < end: pass

@pytest.fixture(scope="module")
def made():
    work()

def test_in_time(made):
    pass

def test_too_much():
    work()

def test_child_s():
    subprocess.run([sys.executable, "-c", WORK], check=True)

@pytest.mark.long(part="truth")
def test_long():
    work()
"""
HANGS = "\ndef test_hangs():\n    threading.Event().wait()\ndef test_next():\n    pass\n"


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


def test_a_test_over_its_budget_or_that_hangs_fails_and_fixtures_and_long_tests_do_not(suite):
    done = suite(TESTS + HANGS, "--over-budget", "fail", "--timeout", "3")
    done.assert_outcomes(passed=3, failed=3)
    out = done.stdout.str()
    assert out.count("s of CPU; a test without a marker has 0.1 s") >= 2 and "Timeout (>3.0s)" in out
    assert all(
        f"::{name}" in out.partition("short test summary")[2] for name in ("test_too_much", "test_child_s", "test_hangs")
    )


def test_elsewhere_it_is_listed_and_what_each_file_costs_is_written(suite, pytester):
    done = suite(TESTS, "--durations-file", "cost.csv")
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines(["over 0.1 s of CPU: * *test_too_much"])
    rows = {row["kind"]: row for row in csv.DictReader((pytester.path / "cost.csv").read_text().splitlines())}
    assert {kind: int(row["tests"]) for kind, row in rows.items()} == {"unit": 3, "long": 1}
    assert rows["unit"]["slowest"] in ("test_too_much", "test_child_s") and float(rows["unit"]["fixtures_cpu_s"]) >= 0.3


def test_tests_that_change_the_checkout_are_told_and_fail_the_suite_that_holds_its_budget(suite, pytester):
    subprocess.run(["git", "init", "--quiet"], cwd=pytester.path, check=True)
    (pytester.path / ".gitignore").write_text("*\n!kept.txt\n")
    write = "from pathlib import Path\ndef test_writes():\n    for name in ('kept.txt', 'ignored.txt'): Path(__file__).with_name(name).write_text('')\n"
    done = suite(write, "--over-budget", "fail")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["the tests changed the checkout: ?? kept.txt"])
    assert "ignored.txt" not in done.stdout.str() and done.ret == pytest.ExitCode.TESTS_FAILED
