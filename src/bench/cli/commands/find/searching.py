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

import requests

from bench.axes import CONCURRENCY, RATE
from bench.cli.commands.find import Find
from bench.cli.options import refuse_strange_classes, thresholds_of
from bench.cli.output import note, print_json, progress
from bench.errors import BenchError, count_text
from bench.findings.trust import accept_option
from bench.http import get_models, listed_models, models_text, problem
from bench.load.target import Target
from bench.runs.files import write_object
from bench.search.placing import Aim, Answer, decided, gap_shape
from bench.search.probe import Probed
from bench.search.running import RunningServer, ServerGone
from bench.search.search import Budget, Found, Next, search
from bench.search.words import answer_text, load_text, look_text, next_text, probed_text, spent_text, why_text
from bench.study.slo import Slo, parse_slo
from bench.workloads.workload import OPEN, Workload

_SEED = "find"
_RESULT = "find.json"
_MET = {True: "met", False: "missed", None: "not known"}  # at 95 % confidence


def find(asked: Find) -> int:
    """Search, and print the answer; the exit status."""
    slos = tuple(parse_slo(text) for text in asked.slo)
    _refuse_contradictions(asked, slos)
    content, workload = load_of(asked)
    refuse_strange_classes(slos, workload.classes, "the workload does")
    aim = _aim(asked, slos, workload)
    if aim.turns > 1 and aim.held:
        raise BenchError(
            "The workload with --concurrency: conversations that begin together keep in step, and so do their latencies. Use "
            "--request-rate, which counts conversations/s."
        )
    target, thresholds = asked.target(), thresholds_of(asked.threshold)
    _refuse_unreachable(target)
    target = asked.introduced(target, workload)
    info, recording = asked.scraping(target)
    server = RunningServer(
        target=target,
        workload=content,
        held=aim.held,
        slos=slos,
        folder=asked.output_dir,
        recording=recording,
        version=info.get("version"),
        thresholds=thresholds,
        seed=_SEED,
        vocabulary=asked.further.vocabulary,
        timeout_s=asked.further.timeout_s,
        say=lambda *_: None,
    )
    found = _searched(server, aim, Budget(asked.further.max_runs, 60 * asked.max_minutes))
    result = {
        **_plain(found, aim),
        "server": target.base_url,
        "model": asked.model,
        "slos": asked.slo,
        "workload": content,
        "met": _met(found.answer, asked.at_least),
    }
    write_object(result, asked.output_dir / _RESULT)
    if asked.json:
        print_json(result)
    else:
        _print(found, aim, asked.at_least, thresholds.other_share)
    return status(found, asked.at_least)


def _refuse_contradictions(asked: Find, slos: tuple[Slo, ...]) -> None:
    if asked.concurrency == asked.request_rate:
        raise BenchError("Give either --concurrency or --request-rate: the load to look for.")
    start, most = asked.further.start, asked.further.most
    if asked.at_least is not None and asked.at_least > most:
        raise BenchError(f"--at-least is {asked.at_least:g}, but loads above {most:g} are not tried. Raise that: --set most=N.")
    if len({slo.column for slo in slos}) < len(slos):
        raise BenchError("--slo: one percentile has two limits. Keep the stricter one.")
    if start is not None and start > most:
        raise BenchError(f"--set start={start:g}: above the highest load to try, {most:g} (most).")
    if asked.concurrency and any(value is not None and value % 1 for value in (start, most)):
        raise BenchError("--set start=N and most=N of --concurrency are whole numbers.")


def load_of(asked: Find) -> tuple[dict[str, Any], Workload]:
    """What a configuration would say of requests and of their arrivals, without their number; and that workload, of one request."""
    content = asked.content(None if asked.workload else "closed" if asked.concurrency else "poisson")
    if content.get("step"):
        raise BenchError("The workload has step, but a search needs a steady load. Remove it.")
    content = {key: value for key, value in content.items() if key not in ("num_requests", "duration_s")}
    workload = asked.checked({**content, "num_requests": 1})
    given, sent = ("--concurrency", ("closed",)) if asked.concurrency else ("--request-rate", OPEN)
    if workload.arrival not in sent:
        raise BenchError(
            f"The workload has arrival {workload.arrival}, and a search of {given} sends "
            f"{'arrival' if asked.concurrency else 'one of'} {', '.join(sent)}."
        )
    return content, workload


def _aim(asked: Find, slos: tuple[Slo, ...], workload: Workload) -> Aim:
    at_least = asked.at_least
    if at_least is not None and asked.concurrency:  # a whole number
        at_least = math.ceil(at_least)
    return Aim(
        slos=slos,
        failed_share=asked.further.failed_share,
        held=asked.concurrency,
        precision=asked.further.precision,
        start=asked.further.start,
        highest=asked.further.most,
        burstiness=gap_shape(workload),
        turns=workload.turn_count,
        think_s=workload.think_s,
        shares={name: each.share for name, each in workload.classes.items()},
        ends=decided(at_least),
    )


def _refuse_unreachable(target: Target) -> None:
    """A server that lists other models may serve the one that is named all the same."""
    try:
        answer = get_models(target.base_url, key=target.key, headers=target.headers)
    except requests.RequestException as error:
        raise BenchError(f"--base-url {target.base_url} does not answer: {problem(error)}.") from None
    names = listed_models(answer)
    if names and target.model not in names:  # else a request decides
        note(f"--model {target.model}: the server lists {models_text(names)}, and not this name")


def _searched(server: RunningServer, aim: Aim, budget: Budget) -> Found:
    """What a search finds, each of its runs on stderr."""
    known_so_far: list[str] = []

    def report(found: Found) -> None:
        known_so_far[:] = [answer_text(found.answer, aim)]
        note(f"  {look_text(found.looks[-1], aim)}; {known_so_far[0]}; {spent_text(found, budget)}")

    def begin(aim: Aim) -> Probed:
        probed = server.probe(aim)
        note(f"  {probed_text(probed, aim)}")
        return probed

    def announce(run: Next) -> None:
        server.announced = next_text(run, aim), run.seconds

    server.folder.mkdir(parents=True, exist_ok=True)
    with _alone(server.folder), _bars(server):
        if known := server.known():
            note(f"{server.folder}: goes on from {count_text(len(known), 'run')} of the same load on the same server")
        try:
            return search(aim, budget, server.measure, known, report, begin=begin, announce=announce, before=server.probed())
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            note(f"{'; '.join(['Stopped', *known_so_far])}. The same command goes on from the runs that have ended.")
            raise
        except ServerGone as error:
            note(f"bench: {error}")
        if not (known := server.known()):  # what was measured before the server was lost
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


@contextmanager
def _bars(server: RunningServer) -> Iterator[None]:
    """Let the server's lines be drawn with the time so far, each until the next."""
    with ExitStack() as now:

        def say(text: str, seconds: float | None) -> None:
            now.close()
            if not sys.stderr.isatty():
                note(text)
            now.enter_context(progress(text, seconds))

        server.say = say
        yield


def _plain(found: Found, aim: Aim) -> dict[str, Any]:
    """What was found, for another program."""
    answer = found.answer
    return {
        "limit": answer.limit if answer.known else None,
        "low": answer.low,
        "high": answer.high if math.isfinite(answer.high) else None,
        "axis": CONCURRENCY if aim.held else RATE,
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


def _print(found: Found, aim: Aim, at_least: float | None, other_share: float) -> None:
    print(f"{answer_text(found.answer, aim, whole=True)}.")
    if at_least is not None:
        print(f"At least {load_text(at_least, aim)}: {_MET[_met(found.answer, at_least)]}.")
    print(why_text(found, aim))
    others = max((look.row.get("host_other_share") or 0.0 for look in found.looks if len(look.reasons) == 1), default=None)
    if allowed := accept_option(others, other_share):
        print(allowed)


def _met(answer: Answer, at_least: float | None) -> bool | None:
    """Whether the limit is that or more, at 95 % confidence; None where that is not known, or not asked."""
    if at_least is None or answer.why == "gone" or answer.low < at_least <= answer.high:
        return None
    return answer.low >= at_least


def status(found: Found, at_least: float | None) -> int:
    """The exit status, as the command's help has it."""
    why = found.answer.why
    if why != "gone" and at_least is not None:
        return {True: 0, False: 1, None: 3}[_met(found.answer, at_least)]
    if why in ("gone", "invalid") or (why not in ("found", "alone") and not found.observations):
        return 1
    return 0 if why == "found" else 3
