"""Whose work a machine does: planted work of our own, and of others."""

import subprocess
import sys
import time

import pytest

from bench.measure import host
from bench.measure.host import HostWatch
from bench.records.run import Host

BUSY = "import time\nwhile time.process_time() < 1: pass"


def test_work_of_what_descends_from_us_is_ours():
    before = host._own_s()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    ours = host._own_s() - before
    assert 0.9 < ours < 2


def test_work_of_what_does_not_is_none_of_ours(tmp_path):
    """A process whose parent has left it."""
    done = tmp_path / "done"
    before = host._own_s()
    subprocess.run(["sh", "-c", '("$1" -c "$2" && touch "$3") &', "sh", sys.executable, BUSY, done], check=True)
    end = time.monotonic() + 60
    while not done.exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert host._own_s() - before < 0.5


@pytest.fixture
def planted(monkeypatch):
    """Ten seconds of two cores, of which ours had six; steal took one, and four were idle."""
    times = iter(
        [{"user": 0.0, "idle": 0.0, "iowait": 0.0, "steal": 0.0}, {"user": 15.0, "idle": 3.0, "iowait": 1.0, "steal": 1.0}]
    )
    own = iter([100.0, 106.0])
    monkeypatch.setattr(host, "_core_times", lambda: next(times))
    monkeypatch.setattr(host, "_own_s", lambda: next(own))


@pytest.mark.usefixtures("planted")
def test_the_rest_of_what_is_busy_is_of_others():
    assert HostWatch(whole=True).seen() == Host(busy_share=0.8, steal_share=0.05, other_share=0.45, clock_step_s=0.0)


@pytest.mark.usefixtures("planted")
def test_what_a_server_elsewhere_uses_is_not_known():
    assert HostWatch(whole=False).seen().other_share is None
