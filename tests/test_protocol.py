"""When measuring changes, old runs no longer compare: somebody must say so."""

import hashlib

from bench.study.plan import PROTOCOL
from tests.conftest import ROOT

# What decides a measurement. A change here that alters what is measured or how it is stamped raises PROTOCOL (all runs are measured
# again); one that does not, such as a comment, only renews the digest below: `pytest tests/test_protocol.py` prints it.
MODULES = [
    "src/bench/workload/client.py",
    "src/bench/workload/prompts.py",
    "src/bench/workload/records.py",
    "src/bench/workload/transport.py",
    "src/bench/telemetry/scraper.py",
    "src/bench/measure/recording.py",
    "src/bench/measure/session.py",
]
KNOWN = (1, "8e5ed4352cfdcae0")


def test_a_change_of_the_measuring_is_declared():
    content = b"".join((ROOT / module).read_bytes() for module in MODULES)
    now = (PROTOCOL, hashlib.sha256(content).hexdigest()[:16])
    assert now == KNOWN, f"measuring changed: raise PROTOCOL if old runs no longer compare, then set KNOWN = {now}"
