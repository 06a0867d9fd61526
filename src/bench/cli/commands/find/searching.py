"""A search on a running server, as a terminal sees it: alone in its folder, with a line a run, from what earlier ones left."""

from __future__ import annotations

import fcntl
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.cli.output import progress
from bench.errors import BenchError, count_text
from bench.search.placing import Aim, Answer
from bench.search.probe import Probed
from bench.search.running import RunningServer, ServerGone
from bench.search.search import Budget, Found, Next, search
from bench.search.words import answer_text, look_text, next_text, probed_text, spent_text


def searched(server: RunningServer, aim: Aim, budget: Budget) -> Found:
    """What a search finds, each of its runs on stderr."""

    def report(found: Found) -> None:
        line = f"{look_text(found.looks[-1], aim)}; {answer_text(found.answer, aim)}; {spent_text(found, budget)}"
        print(f"  {line}", file=sys.stderr, flush=True)

    def begin(aim: Aim) -> Probed:
        probed = server.probe(aim)
        print(f"  {probed_text(probed, aim)}", file=sys.stderr, flush=True)
        return probed

    def announce(run: Next) -> None:
        server.announced = next_text(run, aim), run.seconds

    server.folder.mkdir(parents=True, exist_ok=True)
    with _alone(server.folder), _bars(server):
        known = server.known()
        if known:
            print(
                f"{server.folder}: goes on from {count_text(len(known), 'run')} of the same load on the same server",
                file=sys.stderr,
            )
        try:
            return search(aim, budget, server.measure, known, report, begin=begin, announce=announce, before=server.probed())
        except ServerGone as error:
            print(f"bench: {error}", file=sys.stderr)
            return _until_now(server, aim)


def _until_now(server: RunningServer, aim: Aim) -> Found:
    """What the runs show that were measured before the server was lost."""
    known = server.known()
    if not known:
        return Found(Answer(0.0, 0.0, math.inf, "gone"))
    found = search(aim, Budget(len(known), math.inf), server.measure, known, before=server.probed())
    found.answer = replace(found.answer, why="gone")
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BenchError(
                f"--output-dir {folder}: another search runs in it. Wait for it, or name another folder."
            ) from None
        for left in folder.glob(".unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _bars(server: RunningServer) -> ExitStack:
    stack, now = ExitStack(), ExitStack()

    def say(text: str, seconds: float | None) -> None:
        now.close()
        if not sys.stderr.isatty():
            print(text, file=sys.stderr, flush=True)
        now.enter_context(progress(text, seconds))

    server.say = say
    stack.callback(now.close)
    return stack


def as_json(found: Found, axis: str, aim: Aim) -> dict[str, Any]:
    """What was found, for another program."""
    answer = found.answer
    return {
        "limit": answer.limit if answer.known else None,
        "low": answer.low,
        "high": answer.high if math.isfinite(answer.high) else None,
        "axis": axis,
        "why": answer.why,
        "seconds": round(found.seconds, 1),
        "runs": [
            {
                "load": look.load,
                "requests": look.requests,
                "seconds": round(look.seconds, 2),
                "invalid": list(look.reasons),
                "failed": look.observation.failed if look.observation else None,
                "of_limit": {
                    slo.column.removesuffix("_s"): round(math.exp(look.observation.excesses[slo.column].value), 4)
                    if look.observation
                    else None
                    for slo in aim.slos
                },
            }
            for look in found.looks
        ],
    }
