"""Inputs by the thousand to all that reads data of others: only a BenchError or a result, within a second, and nothing written outside.

python -m benchmarks.fuzz --inputs 100000
python -m benchmarks.fuzz --target pack --seed 17 --inputs 1000        # that batch once more
"""

from __future__ import annotations

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
from benchmarks.harness import Referee, print_table

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
class Batch:
    """What came of some inputs of a target. Attributes: slowest_s: CPU time. first: input of each kind of failure."""

    target: str
    inputs: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)


def read_batch(job: tuple[str, int, int]) -> Batch:
    """Read inputs of a target, the same for the same seed. Args: job: the target's name, a seed, and how many."""
    name, number, inputs = job
    batch = Batch(name)

    @seed(number)
    @settings(
        max_examples=inputs, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(TARGETS[name].inputs)
    def run(value: Any) -> None:
        batch.inputs += 1
        try:
            spent, refused = check(TARGETS[name], value, Path(folder))
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {str(error)[:100]}"
            batch.failures[key] += 1
            batch.first.setdefault(key, f"--target {name} --seed {number} --inputs {inputs}, input {repr(value)[:600]}")
            return
        batch.refused += refused
        batch.slowest_s = max(batch.slowest_s, spent)

    with tempfile.TemporaryDirectory() as folder:
        run()
    return batch


def main() -> int:
    """Fuzz, print what came out, and return 1 where anything failed."""
    referee = Referee(__doc__, seed=0, inputs=100_000)
    referee.option("--target", choices=TARGETS, help="one target alone, which has all inputs")
    options = referee.options()
    shares = {options.target: 1.0} if options.target else {name: target.share for name, target in TARGETS.items()}
    jobs = []
    for name, share in shares.items():
        batches, rest = divmod(round(options.inputs * share), _BATCH)
        jobs += [(name, options.seed + number, size) for number, size in enumerate([_BATCH] * batches + [rest] * (rest > 0))]
    found = referee.spread(read_batch, jobs)
    lines = []
    for name in shares:
        mine = [batch for batch in found if batch.target == name]
        inputs, refused = (f"{sum(counts):,}" for counts in ((b.inputs for b in mine), (b.refused for b in mine)))
        slowest_s, failed = max(batch.slowest_s for batch in mine), sum(batch.failures.total() for batch in mine)
        lines.append([name, inputs, refused, failed, f"{1000 * slowest_s:.0f}"])
    print_table(["target", "inputs", "refused", "failures", "slowest, ms"], lines)
    for batch in found:
        for key, count in batch.failures.items():
            print(f"\n{count} × {key}\n    {batch.first[key]}")
    return any(batch.failures for batch in found)


if __name__ == "__main__":
    sys.exit(main())
