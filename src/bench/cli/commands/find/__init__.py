"""`bench find`: the highest load that a running server sustains within SLOs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from bench.axes import CONCURRENCY, RATE
from bench.cli.entry import command
from bench.cli.options import (
    Json,
    OutputDir,
    ThresholdValues,
    flag,
    limits,
    option,
    positive,
    refuse_strange_classes,
    refuse_wrong_address,
)
from bench.cli.output import print_json
from bench.cli.sending import Sending, above, whole
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.load.target import Target
    from bench.search.placing import Aim
    from bench.search.running import RunningServer
    from bench.search.search import Found
    from bench.study.slo import Slo
    from bench.workloads.workload import Workload

_LOOKED_FOR = "What is looked for"
_BUDGET = "Bounds and budget"
_SCRAPE_INTERVAL_S = 0.2
_SEED = "find"
_RESULT = "find.json"
_MET = {True: "met", False: "missed", None: "not known"}  # at 95 % confidence


@command(
    "bench find --base-url http://127.0.0.1:8000 --model NAME --concurrency --prompt-length 128 --output-length 64 --slo "
    "ttft_p90=1s",
    "bench find --base-url http://127.0.0.1:8000 --model NAME --request-rate --set archetype=rag --slo ttft_p99=2s --slo tpot_p95=50ms",
    "bench find --base-url http://127.0.0.1:8000 --model NAME --request-rate --prompt-length 900 --slo e2e_p95=8s --at-least 5",
    after="Exit status: 0 if both ends of the limit's interval are known as closely as is asked (precision); 3 if they are not, as the "
    "budget is spent, the limit lies above the highest or below every load that is tried, or no load meets the SLOs; 1 if no run could "
    "be judged, or three in a row cannot be trusted. With --at-least 0 if the limit is not lower, 1 if it is, both at 95 % "
    "confidence, 3 if that is not known. In any case 1 if the server stopped answering; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Find(Sending):
    """Give --concurrency or --request-rate, and what is sent: --prompt-length, --prompts, --set archetype=NAME or --workload.
    Answers have 128 tokens where nothing says how many.

    A probe of a few seconds, a closed loop, shows where to begin. Each run is placed where it shows most of the limit, given the runs
    so far and their noise, until its interval is as narrow as precision asks for, or the budget is spent. The same command goes on
    from --output-dir where it was stopped, and measures nothing twice; another --slo or precision uses the runs that are there.

    Of --set, beside a workload's keys: precision (0.1: how close both ends of the interval have to be to its middle, as a share),
    failed_share (0.01: largest share of requests that may fail), start (first load; rates down to a 64th of it are tried; else a probe
    finds it), most (4096: highest load that is tried), max_runs (30), vocabulary (1000: prompt ids are below it), timeout_s (600), omit
    (what to leave out of requests).

    The API key is read from OPENAI_API_KEY.
    """

    decides: ClassVar = frozenset({"num_requests", "duration_s", "trace", "step", "stop_overloaded"})
    settings: ClassVar = {
        **Sending.settings,
        "failed_share": (0.01, above(0, 1, least=True)),
        "precision": (0.1, above(0.02, 1, least=True)),
        "start": (None, above(0)),
        "most": (4096.0, above(0)),
        "max_runs": (30, whole(1)),
    }
    slo: Annotated[list[str], limits(_LOOKED_FOR)]
    concurrency: Annotated[bool, flag("--concurrency", "Look for the most requests in flight.", _LOOKED_FOR)] = False
    request_rate: Annotated[bool, flag("--request-rate", "Look for the most requests a second.", _LOOKED_FOR)] = False
    at_least: Annotated[float | None, option("N", "For CI: whether the limit is N or more.", _LOOKED_FOR, parser=positive)] = (
        None
    )
    max_minutes: Annotated[float, option("MINUTES", "Time under load to spend.", _BUDGET, parser=positive)] = 30.0
    output_dir: OutputDir = Path("find")
    threshold: ThresholdValues = None
    json: Json = False

    def run(self) -> None:
        """Search, and print the answer; the exit status says how it ended."""
        from bench.cli.commands.find.searching import as_json, searched
        from bench.runs.files import write_object
        from bench.search.search import Budget
        from bench.study.read import thresholds_of
        from bench.study.slo import parse_slo

        slos = tuple(parse_slo(text) for text in self.slo)
        self._refuse_contradictions(slos)
        content, workload = self._workload()
        refuse_strange_classes(slos, workload.classes, "the workload does")
        aim = self._aim(slos, workload)
        if aim.turns > 1 and aim.held:
            raise BenchError(
                "The workload with --concurrency: conversations that begin together keep in step, and so do their latencies. Use "
                "--request-rate, which counts conversations/s."
            )
        target = self.target()
        refuse_wrong_address(self.metrics)
        other_share = thresholds_of(self.threshold).other_share
        _refuse_unreachable(target)
        budget = Budget(self.setting("max_runs"), 60 * self.max_minutes)
        found = searched(self._server(content, workload, aim, target), aim, budget)
        result = {
            **as_json(found, CONCURRENCY if aim.held else RATE, aim),
            "server": target.base_url,
            "model": self.model,
            "slos": self.slo,
            "workload": content,
            "met": met(found, self.at_least),
        }
        write_object(result, self.output_dir / _RESULT)
        if self.json:
            print_json(result)
        else:
            _print(found, aim, other_share, self.at_least)
        sys.exit(status(found, self.at_least))

    def _refuse_contradictions(self, slos: Sequence[Slo]) -> None:
        if self.concurrency == self.request_rate:
            raise BenchError("Give either --concurrency or --request-rate: the load to look for.")
        start, most = self.setting("start"), self.setting("most")
        if self.at_least is not None and self.at_least > most:
            raise BenchError(
                f"--at-least is {self.at_least:g}, but loads above {most:g} are not tried. Raise that: --set most=N."
            )
        if len({slo.column for slo in slos}) < len(slos):
            raise BenchError("--slo: one percentile has two limits. Keep the stricter one.")
        if start is not None and start > most:
            raise BenchError(f"--set start={start:g}: above the highest load to try, {most:g} (most).")
        if self.concurrency and any(value is not None and value % 1 for value in (start, most)):
            raise BenchError("--set start=N and most=N of --concurrency are whole numbers.")

    def _workload(self) -> tuple[dict[str, Any], Workload]:
        """What a configuration would say of requests and of their arrivals, without their number; and that workload, of one request."""
        from bench.workloads.workload import OPEN

        content = self.content(None if self.workload else "closed" if self.concurrency else "poisson")
        if content.get("step"):
            raise BenchError("The workload has step, but a search needs a steady load. Remove it.")
        content = {key: value for key, value in content.items() if key not in ("num_requests", "duration_s")}
        workload = self.checked({**content, "num_requests": 1})
        sent = ("closed",) if self.concurrency else OPEN
        if workload.arrival not in sent:
            given = "--concurrency" if self.concurrency else "--request-rate"
            raise BenchError(
                f"The workload has arrival {workload.arrival}, and a search of {given} sends "
                + ("arrival closed." if self.concurrency else f"one of {', '.join(sent)}.")
            )
        return content, workload

    def _aim(self, slos: tuple[Slo, ...], workload: Workload) -> Aim:
        from bench.search.placing import Aim, gap_shape

        return Aim(
            slos=slos,
            failed_share=self.setting("failed_share"),
            held=self.concurrency,
            precision=self.setting("precision"),
            start=self.setting("start"),
            highest=self.setting("most"),
            burstiness=gap_shape(workload),
            turns=workload.turn_count,
            think_s=workload.think_s,
            shares={name: each.share for name, each in workload.classes.items()},
        )

    def _server(self, content: dict[str, Any], workload: Workload, aim: Aim, target: Target) -> RunningServer:
        """The server, once it has answered first requests, with what it exposes."""
        from bench.measure.exposition import find_metrics, worth_reading
        from bench.search.running import RunningServer
        from bench.study.read import thresholds_of

        target = self.introduced(target, workload)
        found = find_metrics(target.base_url, self.metrics, target.headers, served=True)
        read = worth_reading(found, named="--metrics" if self.metrics else None, say=partial(print, file=sys.stderr))
        recording = {
            "scrape_interval_s": _SCRAPE_INTERVAL_S,
            "metrics": found.address,
            "metrics_headers": found.headers,
            "say": partial(print, file=sys.stderr),
        }
        return RunningServer(
            target=target,
            workload=content,
            held=aim.held,
            slos=tuple(aim.slos),
            folder=self.output_dir,
            recording=recording if read else {"scrape_interval_s": None},
            version=found.info.get("version"),
            thresholds=thresholds_of(self.threshold),
            seed=_SEED,
            vocabulary=self.setting("vocabulary"),
            timeout_s=self.setting("timeout_s"),
            say=lambda *_: None,
        )


def _refuse_unreachable(target: Target) -> None:
    """A server that lists other models may serve the one that is named all the same."""
    import requests

    from bench.http import get_models, listed_models, models_text, problem

    try:
        answer = get_models(target.base_url, key=target.key, headers=target.headers)
    except requests.RequestException as error:
        raise BenchError(f"--base-url {target.base_url} does not answer: {problem(error)}.") from None
    names = listed_models(answer)
    if names and target.model not in names:  # else a request decides
        print(f"--model {target.model}: the server lists {models_text(names)}, and not this name", file=sys.stderr)


def _print(found: Found, aim: Aim, other_share: float, at_least: float | None) -> None:
    from bench.findings.trust import accept_option
    from bench.search.words import answer_text, load_text, why_text

    print(f"{answer_text(found.answer, aim, whole=True)}.")
    if at_least is not None:
        print(f"At least {load_text(at_least, aim)}: {_MET[met(found, at_least)]}.")
    print(why_text(found, aim))
    others = max((look.row.get("host_other_share") or 0.0 for look in found.looks if len(look.reasons) == 1), default=None)
    if allowed := accept_option(others, other_share):
        print(allowed)


def met(found: Found, at_least: float | None) -> bool | None:
    """Whether the limit is that or more, at 95 % confidence; None where that is not known, or not asked."""
    answer = found.answer
    if at_least is None or answer.why == "gone" or answer.low < at_least <= answer.high:
        return None
    return answer.low >= at_least


def status(found: Found, at_least: float | None) -> int:
    """The exit status, as the command's help has it."""
    answer = found.answer
    if answer.why == "gone":
        return 1
    if at_least is not None:
        return {True: 0, False: 1, None: 3}[met(found, at_least)]
    if answer.why == "found":
        return 0
    if answer.why == "alone":
        return 3
    return 1 if answer.why == "invalid" or not found.observations else 3
