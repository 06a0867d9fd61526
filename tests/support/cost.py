"""What tests cost: the CPU seconds of each, a budget that tests without a marker keep, and the table that is committed. And whether they
leave the checkout as it was.

A test's CPU time is that of its own phase: of this process, and of the processes that it started and that have ended. What its
fixtures take is counted beside it.
"""

from __future__ import annotations

import csv
import resource
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

MOST_S = 2.0  # CPU time of a test without one of the markers below
_BESIDE = 2  # times as long that it takes at most on a core that it shares
KINDS = ("engine", "workflow", "long")  # markers; a test without any is a unit
# Of `long`: what `make test-all PART=…` takes. docs/contributing.md says which change needs which.
PARTS = ("slurm", "vllm", "kills", "fleets", "prometheus", "wheel", "truth", "workflows", "outputs", "inputs")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cost")
    group.addoption(
        "--over-budget",
        choices=["warn", "fail"],
        default="warn",
        help=f"what becomes of a test over {MOST_S:g} s of CPU, and of a suite that changes the checkout",
    )
    group.addoption("--durations-file", type=Path, metavar="CSV", help="write there what each file costs")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Account(config), "account")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest begin first: files are dealt to several processes, and none should be left with a long one at the end."""
    for item in items:
        for mark in item.iter_markers("long"):
            if mark.kwargs.get("part") not in PARTS:
                raise pytest.UsageError(f"{item.nodeid}: long(part=…) is one of {', '.join(PARTS)}")
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in KINDS])


def _kind(item: pytest.Item) -> str:
    return next((name for name in KINDS if item.get_closest_marker(name)), "unit")


@contextmanager
def _counted(item: pytest.Item, what: str) -> Iterator[None]:
    def cpu_s() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used)

    began = cpu_s()
    try:
        yield
    finally:
        item.user_properties.append((what, cpu_s() - began))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    item.user_properties.append(("kind", _kind(item)))
    with _counted(item, "fixtures"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with _counted(item, "test"):
        result = yield
    spent = dict(item.user_properties)["test"]
    if (
        isinstance(spent, float)
        and spent > _BESIDE * MOST_S
        and _kind(item) == "unit"
        and item.config.getoption("--over-budget") == "fail"
    ):
        pytest.fail(
            f"{spent:.1f} s of CPU; a test without a marker has {MOST_S:g} s. Make it smaller, or mark it `long`", pytrace=False
        )
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    with _counted(item, "fixtures"):
        return (yield)


def _changes(folder: Path) -> set[str]:
    """What differs from the last commit, and what is new; nothing where there is no repository."""
    if not shutil.which("git"):
        return set()
    told = subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True)
    return set(told.stdout.splitlines())


@dataclass
class _Cost:
    tests: int = 0
    test_s: float = 0.0
    fixtures_s: float = 0.0
    slowest: tuple[float, str] = (0.0, "")


class _Account:
    """Of the process that reports: what all tests cost together."""

    def __init__(self, config: pytest.Config) -> None:
        self.file: Path | None = config.getoption("--durations-file")
        self.costs: dict[tuple[str, str, str], _Cost] = defaultdict(_Cost)  # by room, file and kind
        self.over: list[tuple[float, str]] = []
        self.changes = _changes(config.rootpath)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":  # the last of a test's reports has all of its properties
            return
        name = report.nodeid.partition("@")[0]
        file, _, test = name.partition("::")
        kind = str(dict(report.user_properties)["kind"])
        spent = {what: sum(s for name, s in report.user_properties if name == what) for what in ("test", "fixtures")}
        cost = self.costs[Path(file).parent.name, file, kind]
        cost.tests += 1
        cost.test_s += spent["test"]
        cost.fixtures_s += spent["fixtures"]
        cost.slowest = max(cost.slowest, (spent["test"], test))
        if kind == "unit" and spent["test"] > MOST_S:
            self.over.append((spent["test"], name))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.left = _changes(session.config.rootpath) - self.changes
        if self.left and not session.exitstatus and session.config.getoption("--over-budget") == "fail":
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        out = terminalreporter
        out.section("CPU seconds by room: tests, and their fixtures")
        rooms = sorted({room for room, _, _ in self.costs})
        out.line(f"{'':14}" + "".join(f"{kind:>20}" for kind in ("unit", *KINDS)))
        for room in [*rooms, "all"]:
            cells = []
            for kind in ("unit", *KINDS):
                own = [cost for (where, _, what), cost in self.costs.items() if room in {where, "all"} and what == kind]
                s = [sum(cost.test_s for cost in own), sum(cost.fixtures_s for cost in own)]
                cells.append(f"{sum(cost.tests for cost in own):,}: {s[0]:.0f} + {s[1]:.0f} s" if own else "")
            out.line(f"{room:14}" + "".join(f"{cell:>20}" for cell in cells))
        for spent, name in sorted(self.over, reverse=True):
            out.line(f"over {MOST_S:g} s of CPU: {spent:.1f} s {name}", yellow=True)
        for change in sorted(self.left):
            out.line(f"the tests changed the checkout: {change}", red=True)
        if self.file:
            with self.file.open("w", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(["room", "file", "kind", "tests", "cpu_s", "fixtures_cpu_s", "slowest_s", "slowest"])
                for (room, name, kind), cost in sorted(self.costs.items()):
                    s = (cost.test_s, cost.fixtures_s, cost.slowest[0])
                    rows.writerow([room, name, kind, cost.tests, *(f"{each:.1f}" for each in s), cost.slowest[1]])
