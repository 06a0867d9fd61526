"""`bench find`: the highest load that a running server carries within SLOs."""

from __future__ import annotations

import fcntl
import json
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests

from bench.axes import AXES, CONCURRENCY, RATE
from bench.cli.common import introduced, refuse_wrong_address, requests_of, target_of
from bench.cli.output import print_json, progress
from bench.endpoints import ENDPOINTS
from bench.errors import BenchError
from bench.http import get_models, listed_models, models_text, problem
from bench.load.target import Target
from bench.measure.exposition import Found as Metrics
from bench.measure.exposition import find_metrics, worth_reading
from bench.records.form import RequestForm
from bench.search import Aim, Answer, Budget, Found, Measured, search
from bench.search.chart import draw
from bench.search.placing import FEWEST_RUNS
from bench.search.running import RunningServer, ServerGone
from bench.search.words import answer_text, look_text, probed_text, spent_text, why_text
from bench.study import Slo, Workload, load_workload, parse_slo
from bench.study.workload import OPEN

__all__ = ["run", "status"]

_SCRAPE_INTERVAL_S = 0.2
_SEED = "find"
_RESULT = "find.json"


def run(options: SimpleNamespace) -> None:
    slos = tuple(parse_slo(text) for text in options.slo)
    _refuse_contradictions(options)
    content = _workload(options)
    aim = _aim(options, slos, load_workload({**content, "num_requests": 1}, source="bench find"))
    _refuse_conversations(options, aim)
    target = target_of(options)
    refuse_wrong_address(options.metrics)
    _refuse_unreachable(target)
    budget = Budget(options.max_runs, 60 * options.max_minutes)
    former = _former(options, content, aim, target)
    found = _answered(former, aim, budget) if former else None
    server = former if former and found else _server(options, content, aim, target)
    found = found or _searched(server, aim, budget)
    figure = draw(found, aim, options.output_dir / "limit")
    result = {
        **_result(found, CONCURRENCY if aim.held else RATE, aim),
        "server": target.base_url,
        "model": options.model,
        "slos": options.slo,
        "workload": content,
        "omit": options.omit,
        "requests_omit": server.target.form(content["endpoint"]).omitted,
    }
    (options.output_dir / _RESULT).write_text(json.dumps(result, indent=2) + "\n")
    if options.json:
        print_json(result)
    else:
        _print(found, aim, figure)
    sys.exit(status(found, options.at_least))


def _former(options: SimpleNamespace, content: dict[str, Any], aim: Aim, target: Target) -> RunningServer | None:
    """The server, with the form of requests that the last search in this folder found; None without one, or after another `--omit`."""
    try:
        last = json.loads((options.output_dir / _RESULT).read_text())
        if last["omit"] != options.omit:
            return None
        form = RequestForm(omitted=tuple(last["requests_omit"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = find_metrics(target.base_url, options.metrics, target.headers)
    if options.metrics and found.state != "read":
        return None  # which is refused, whether it would be read or not
    return _running(options, content, aim, replace(target, forms={content["endpoint"]: form}), found, {})


def _answered(server: RunningServer, aim: Aim, budget: Budget) -> Found | None:
    """What the runs of earlier searches answer; None where another has to be measured. No request is sent."""

    class Another(Exception):
        """Run to measure."""

    def measure(*_: object) -> Measured:
        raise Another

    with suppress(Another), _alone(server.folder):
        known = server.known()
        return search(aim, budget, measure, known) if known else None
    return None


def _searched(server: RunningServer, aim: Aim, budget: Budget) -> Found:
    """What a search finds, each of its runs on stderr."""

    def report(found: Found, answer: Answer, _: str) -> None:
        line = f"{look_text(found.looks[-1], aim)}; {answer_text(answer, aim)}; {spent_text(found, budget)}"
        print(f"  {line}", file=sys.stderr, flush=True)

    def begin(aim: Aim) -> float:
        probed = server.probe(aim)
        print(f"  {probed_text(probed, aim)}", file=sys.stderr, flush=True)
        return probed.load

    server.folder.mkdir(parents=True, exist_ok=True)
    with _alone(server.folder), _bars(server):
        known = server.known()
        if known:
            print(f"{server.folder}: goes on from {len(known)} runs of the same load on the same server", file=sys.stderr)
        try:
            return search(aim, budget, server.measure, known, report, begin=begin)
        except ServerGone as error:
            found = _until_now(server, aim, error)
            print(f"bench: {error}", file=sys.stderr)
            return found


def _until_now(server: RunningServer, aim: Aim, error: ServerGone) -> Found:
    """What the runs measured before the server was lost show. Raises `error` if there are none."""
    known = server.known()
    if not known:
        raise error
    found = search(aim, Budget(len(known), math.inf), server.measure, known)
    found.answers = {name: replace(answer, why="gone") for name, answer in found.answers.items()}
    return found


def _refuse_contradictions(options: SimpleNamespace) -> None:
    if options.concurrency == options.request_rate:
        raise BenchError("Give either --concurrency or --request-rate: the load to look for.")
    if options.burstiness is not None and options.concurrency:
        raise BenchError("--burstiness is for --request-rate: a closed loop has no gaps of its own.")
    if not 0 <= options.failed_share < 1:
        raise BenchError(f"--failed-share is {options.failed_share:g}; it is a share, 0 or more and below 1.")
    if not 2 <= options.precision < 100:
        raise BenchError(f"--precision is {options.precision:g}; it is a percentage, 2 or more and below 100.")
    if options.at_least is not None and options.at_least > options.most:
        raise BenchError(
            f"--at-least is {options.at_least:g}, and no more than --most {options.most:g} is tried. Raise --most."
        )
    if len({parse_slo(text).column for text in options.slo}) < len(options.slo):
        raise BenchError("--slo: the same percentile of the same latency is limited twice. Keep the stricter limit.")
    if options.start is not None and options.start > options.most:
        raise BenchError(f"--start is {options.start:g}, above --most {options.most:g}.")
    if options.concurrency and any(value is not None and value % 1 for value in (options.start, options.most)):
        raise BenchError("--start and --most of --concurrency are whole numbers.")


def _refuse_conversations(options: SimpleNamespace, aim: Aim) -> None:
    """Those of a closed loop, and those whose pauses alone take longer than the search may."""
    if aim.turns > 1 and aim.held:
        raise BenchError(
            f"{_named(options)} with --concurrency: conversations that begin together keep in step, and their latencies "
            "with them. Use --request-rate, which counts conversations/s."
        )
    pauses_s = (aim.turns - 1) * aim.think_s
    minutes = FEWEST_RUNS * aim.latencies(near=False) * pauses_s / 60
    if minutes > options.max_minutes:
        raise BenchError(
            f"{_named(options)}: its conversations pause for {pauses_s:g} s, so that {FEWEST_RUNS} runs, the fewest of a "
            f"search, take {math.ceil(minutes)} minutes, and --max-minutes is {options.max_minutes:g}. Raise it, or search in a study, "
            "whose `turns` can have shorter pauses (`think_s`)."
        )


def _named(options: SimpleNamespace) -> str:
    """The option that says that there are conversations."""
    return f"--archetype {options.archetype}" if options.archetype else f"--workload {options.workload}"


def _workload(options: SimpleNamespace) -> dict[str, Any]:
    """What a configuration would say of requests and of their arrivals; how many are sent, the search says.

    Raises:
        BenchError: a `--workload` has a load that no search can find.
    """
    arrival = None if options.workload else "closed" if options.concurrency else "poisson"
    content = requests_of(options, arrival=arrival if options.burstiness is None else "gamma", burstiness=options.burstiness)
    if content.get("step") or content.get("ramp"):
        raise BenchError(f"--workload {options.workload} has a step or a ramp, and a search needs a steady load. Remove it.")
    content = {key: value for key, value in content.items() if key not in ("num_requests", "duration_s")}
    workload = load_workload({**content, "num_requests": 1}, source=str(options.workload or "bench find"))
    if AXES[workload.axis].held != options.concurrency or workload.arrival in ("burst", "trace"):
        given = "--concurrency" if options.concurrency else "--request-rate"
        raise BenchError(
            f"--workload {options.workload} has arrival {workload.arrival}, and a search of {given} sends "
            + ("arrival closed." if options.concurrency else f"one of {', '.join(OPEN)}.")
        )
    workload.prompts.check(ENDPOINTS[workload.endpoint])
    return content


def _aim(options: SimpleNamespace, slos: tuple[Slo, ...], workload: Workload) -> Aim:
    turns = workload.turns
    return Aim(
        slos=slos,
        failed_share=options.failed_share,
        held=options.concurrency,
        precision=options.precision / 100,
        start=options.start,
        lowest=None,
        highest=options.most,
        burstiness=workload.burstiness or 1.0,
        turns=turns.count if turns else 1,
        think_s=turns.think_s if turns else 0.0,
    )


def _server(options: SimpleNamespace, content: dict[str, Any], aim: Aim, target: Target) -> RunningServer:
    """The server, once it has answered first requests, with what it exposes.

    Raises:
        BenchError: it accepts no form of request, or `--metrics` exposes nothing that is known.
    """
    target = introduced(target, options, content["endpoint"], stream=content.get("stream", True))
    found = find_metrics(target.base_url, options.metrics, target.headers, served=True)
    read = worth_reading(found, named="--metrics" if options.metrics else None, say=partial(print, file=sys.stderr))
    recording = {
        "scrape_interval_s": _SCRAPE_INTERVAL_S,
        "metrics": found.address,
        "metrics_headers": found.headers,
        "say": partial(print, file=sys.stderr),
    }
    return _running(options, content, aim, target, found, recording if read else {"scrape_interval_s": None})


def _running(
    options: SimpleNamespace, content: dict[str, Any], aim: Aim, target: Target, found: Metrics, recording: dict[str, Any]
) -> RunningServer:
    return RunningServer(
        target=target,
        workload=content,
        held=aim.held,
        slos=tuple(aim.slos),
        folder=options.output_dir,
        recording=recording,
        version=found.info.get("version"),
        seed=_SEED,
        vocabulary=options.vocabulary,
        timeout_s=options.timeout,
        say=lambda *_: None,
    )


def _refuse_unreachable(target: Target) -> None:
    """Raises BenchError where nothing answers. A server that lists other models may serve the one that is named all the same."""
    try:
        answer = get_models(target.base_url, key=target.key, headers=target.headers)
    except requests.RequestException as error:
        raise BenchError(f"--base-url {target.base_url}: no server answers there ({problem(error)}).") from None
    names = listed_models(answer)
    if names and target.model not in names:  # else a request decides
        print(f"--model {target.model}: the server lists {models_text(names)}, and not this name", file=sys.stderr)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder against a second search, and remove what a killed one left unfinished."""
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
    """Shows what is measured now, until the context ends."""
    stack, now = ExitStack(), ExitStack()

    def say(text: str, seconds: float | None) -> None:
        now.close()
        now.enter_context(progress(text, seconds))
        if not sys.stderr.isatty():
            print(text, file=sys.stderr, flush=True)

    server.say = say
    stack.callback(now.close)
    return stack


def _result(found: Found, axis: str, aim: Aim) -> dict[str, Any]:
    answer = found.answer
    return {
        "limit": answer.limit if math.isfinite(answer.limit) else None,
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
                    f"{slo.metric}_{slo.percentile}": round(math.exp(look.observation.excesses[slo.column].value), 4)
                    if look.observation
                    else None
                    for slo in aim.slos
                },
            }
            for look in found.looks
        ],
    }


def _print(found: Found, aim: Aim, figure: Path) -> None:
    print(f"{answer_text(found.answer, aim, whole=True)}.")
    print(why_text(found, aim))
    print(f"The figure: {figure}")


def status(found: Found, at_least: float | None) -> int:
    """The exit status, as the command's help has it."""
    answer = found.answer
    if answer.why == "gone":
        return 1
    if at_least is not None:
        return 0 if answer.low >= at_least else 1 if answer.high < at_least else 3
    if answer.why == "found":
        return 0
    return 1 if answer.why == "invalid" or not found.observations else 3
