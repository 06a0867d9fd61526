"""Inputs by the thousand to all that reads data of others: only a BenchError or a result, within a second, and nothing written outside.

python -m benchmarks.fuzz --inputs 100000
python -m benchmarks.fuzz --target pack --seed 17 --inputs 1000        # that batch once more
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from bench.errors import BenchError
from benchmarks.fuzzed import TARGETS, Target

__all__ = ["Outside", "TooSlow", "check", "inside"]

LIMIT_S = 1.0  # CPU time: on a busy machine others' work must not fail an input
_HANG_S = 20  # wall time after which an input is interrupted
_BATCH = 1000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGING = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.utime")


class Outside(Exception):
    """Something was written, made or removed outside of the folder."""


class TooSlow(Exception):
    """An input took more than a second of CPU time."""


_watched: list[tuple[str, list[str]]] = []  # the folder that may change, and what changed elsewhere


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event == "open":
        path, _, flags = arguments
        changes = [path] if flags is not None and flags & _WRITING else []
    elif event in _CHANGING:
        changes = list(arguments[: 2 if event in ("os.rename", "os.link") else 1])
    else:
        return
    folder, found = _watched[-1]
    for path in changes:
        if isinstance(path, str | bytes | os.PathLike):
            where = os.path.realpath(os.fsdecode(path)) if event == "open" else os.path.abspath(os.fsdecode(path))
            if where != os.devnull and not where.startswith(folder) and not _relative_to_descriptor(event, arguments):
                found.append(f"{event} {where}")


def _relative_to_descriptor(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a path is relative to an open folder, as shutil.rmtree's are: the folder itself was looked at when it was opened."""
    return event in ("os.remove", "os.rmdir") and len(arguments) > 1 and arguments[1] not in (None, -1)


sys.addaudithook(_audit)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in `folder`, which is emptied for each input; raise Outside where anything changes beyond it."""
    before, found = Path.cwd(), list[str]()
    os.chdir(folder)
    _watched.append((f"{os.path.realpath(folder)}{os.sep}", found))
    try:
        yield
    finally:
        _watched.pop()
        os.chdir(before)
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    if found:
        raise Outside(found[0])


def check(target: Target, value: Any, folder: Path) -> tuple[float, bool]:
    """Read one input.

    Returns:
        CPU time (s), and whether it was refused.

    Raises:
        Outside, TooSlow: as they say. Anything else but a BenchError: the code's own, a fault.
    """
    begin, refused = time.process_time(), False
    with inside(folder), _interrupted():
        try:
            target.read(value)
        except BenchError:
            refused = True
    spent = time.process_time() - begin
    if spent > LIMIT_S:
        raise TooSlow(f"{spent:.1f} s")
    return spent, refused


@contextmanager
def _interrupted() -> Iterator[None]:
    """Raise TooSlow in an input that does not end."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"more than {_HANG_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class _Tally:
    """What came of a target's inputs."""

    inputs: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    slowest: str = ""
    failures: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)


def _batch(name: str, number: int, inputs: int, tally: _Tally, folder: Path) -> None:
    """Read `inputs` inputs, the same for the same seed `number`."""

    @seed(number)
    @settings(
        max_examples=inputs, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(TARGETS[name].inputs)
    def run(value: Any) -> None:
        tally.inputs += 1
        try:
            spent, refused = check(TARGETS[name], value, folder)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {str(error)[:100]}"
            tally.failures[key] += 1
            tally.first.setdefault(key, f"--target {name} --seed {number} --inputs {inputs}, input {repr(value)[:600]}")
            return
        tally.refused += refused
        if spent > tally.slowest_s:
            tally.slowest_s, tally.slowest = spent, repr(value)[:160]

    run()


def main() -> int:
    """Fuzz, print what came out, and return 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="of all targets together (default: %(default)s)")
    parser.add_argument("--target", choices=TARGETS, help="one target alone")
    parser.add_argument("--seed", type=int, default=0, help="of the first batch of 1,000 (default: %(default)s)")
    options = parser.parse_args()
    tallies = {}
    for name in [options.target] if options.target else TARGETS:
        wanted = options.inputs if options.target else round(options.inputs * TARGETS[name].share)
        tally, begin, number = _Tally(), time.monotonic(), options.seed
        with tempfile.TemporaryDirectory() as folder:
            while tally.inputs < wanted:
                _batch(name, number, min(_BATCH, wanted - tally.inputs), tally, Path(folder))
                number += 1
        tallies[name] = tally
        print(
            f"{name:14} {tally.inputs:7,} inputs, {tally.refused:7,} refused, {sum(tally.failures.values()):5,} failures, "
            f"{time.monotonic() - begin:6.0f} s; slowest {tally.slowest_s * 1000:.0f} ms: {tally.slowest}",
            flush=True,
        )
        for key, count in tally.failures.most_common():
            print(f"    {count} × {key}\n        {tally.first[key]}")
    print(
        f"{sum(t.inputs for t in tallies.values()):,} inputs, {sum(sum(t.failures.values()) for t in tallies.values()):,} failures"
    )
    return any(tally.failures for tally in tallies.values())


if __name__ == "__main__":
    sys.exit(main())
