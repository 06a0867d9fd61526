"""The `bench` command: the study's runs, and each stage by itself."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import bench
from bench.cli import compare, config, figures, models, pack, parse, plan, runs, scrape, size, wheels, workload
from bench.errors import BenchError

__all__ = ["main"]

_COMMANDS = (runs, models, plan, workload, scrape, parse, figures, compare, size, wheels, pack, config)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, 1 for a bad result, 2 for what the user can mend, 130 for Ctrl-C, 143 for SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Saturate: find where an LLM inference server saturates, and why. In a clone of the project `make figures` "
        "runs a whole study; these commands look at one, or run a single stage against any OpenAI-compatible server.",
    )
    parser.add_argument("--version", action="version", version=f"saturate {bench.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add(commands)
    options = parser.parse_args(arguments)
    try:
        with _ending_in_order():
            options.run(options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to say
        return 0
    return 0


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end what the context holds open, as an error would: no process and no half-written folder stays behind."""

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough; the clean-up must not be interrupted
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's alone
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
