"""The load process: `python -m bench.load`, which a session starts and talks to over its standard input and output.

All are pickles. In: an `Assignment`. Out: None, when its connections are open; twice this process's clock, when asked. In: the start on
the common clock. Out: a `Report`. Where it fails it answers with a text instead. If its parent is gone, it ends without a word.
"""

# ruff: noqa: E402 - signals come before the other imports
from __future__ import annotations

import signal

# Ctrl-C is the session's to handle, which ends this process. Before all other imports, which take a tenth of a second.
signal.signal(signal.SIGINT, signal.SIG_IGN)

import gc
import os
import pickle
import resource
import sys
import time
from typing import Any, BinaryIO

from bench.load.connection import Address
from bench.load.exchange import Assignment, Report
from bench.load.loop import Loop, ParentGone
from bench.load.records import record_of
from bench.load.timer import ahead_of_the_server


def main() -> None:
    """Send what the parent assigns."""
    # No garbage collection: a full one stops the loop for tens of milliseconds, and this process lives for one run.
    gc.disable()
    into, out = sys.stdin.buffer, sys.stdout.buffer
    try:
        assignment: Assignment = pickle.load(into)  # noqa: S301 - from the parent, over a pipe
        try:
            _send(assignment, into, out)
        except BrokenPipeError:
            raise ParentGone from None
        except OSError as error:
            _tell(_problem(error, assignment), out)
    except (ParentGone, EOFError, pickle.UnpicklingError, BrokenPipeError):
        os._exit(1)  # an orderly end would try to write what is still buffered


def _tell(what: Any, out: BinaryIO) -> None:
    pickle.dump(what, out)
    out.flush()


def _problem(error: OSError, assignment: Assignment) -> str:
    if not assignment.tls:
        return error.strerror or str(error)
    from bench.http import problem  # noqa: PLC0415 - `requests` takes long to import, and plain HTTP needs nothing of it

    return problem(error)


def _send(assignment: Assignment, into: BinaryIO, out: BinaryIO) -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tls = None
    if assignment.tls:
        from bench.http import tls_context  # noqa: PLC0415 - likewise

        tls = tls_context()
    loop = Loop(Address(assignment.host, assignment.port, tls), assignment, into.fileno())
    loop.open()
    _tell(None, out)
    # Two questions for the clock: the first answer pays for what the first call costs.
    for _ in range(2):
        pickle.load(into)  # noqa: S301 - from the parent
        _tell(time.monotonic(), out)
    start: float = pickle.load(into)  # noqa: S301 - from the parent
    realtime = ahead_of_the_server()
    cpu = time.process_time()
    loop.run(start)
    cpu, end = time.process_time() - cpu, time.monotonic()
    if realtime:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # like all others again
    loop.close()
    sent = [exchange for exchange in assignment.exchanges if exchange.scheduled is not None]
    records = [record_of(exchange, start) for exchange in sent]
    _tell(Report(records, end, loop.lags, cpu, sum(len(x.reads) for x in sent), realtime, loop.stopped), out)


if __name__ == "__main__":
    main()
