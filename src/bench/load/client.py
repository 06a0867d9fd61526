"""Send one run's load and keep every stamp: the run is planned here, and sent by load processes (`bench.load`)."""

from __future__ import annotations

import math
import os
import pickle
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from bench.axes import AXES
from bench.errors import BenchError
from bench.load.exchange import Assignment, Exchange, Report
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.runs.request import RequestRecord
from bench.runs.run import Stopped
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.schedule import PlannedRequest, schedule
from bench.workloads.workload import Workload

# -P: a file in the working directory that is called like a module must not stand in for it.
PROCESS = (sys.executable, "-P", "-m", "bench.load")
# most streams of a process; measured: benchmarks/client, 1,200 streams of 50 tokens a second take half a core
_STREAMS_A_PROCESS = 1024
_ANSWER_S = 10.0  # time within which an open loop's requests count as streams at once (s); convention: long for an answer
_READY_S = 0.1  # time of an open loop's densest arrivals for which connections are ready (s); convention
_SPARE = 8  # connections that are ready beside these; convention
# requests that a closed loop holds for each connection that is ready, where each carries one; convention: idle ones take threads of
# some servers (llama.cpp)
_HELD_A_SPARE = 8
_LOOK_S = 1.0  # time between looks whether the server lives (s); convention
_LEAD_S = 0.02  # time between the word and the start (s), so that every process has heard it; convention


@dataclass(frozen=True)
class Load:
    """What is sent: a workload at a level.

    Attributes:
        seed: makes the prompts; no other run may have it, or a cache would help. schedule_seed: draws arrivals and lengths, and
            the order of prompts from a file; the same for runs that are compared. vocabulary: token ids lie below it.
        timeout_s: a request without its end after this time fails. processes: load processes; None chooses.
    """

    workload: Workload
    level: float
    seed: str
    schedule_seed: str = "0"
    vocabulary: int = 1000
    timeout_s: float = 600.0
    processes: int | None = None


@dataclass(frozen=True)
class LoadResult:
    """What happened. Times are seconds on CLOCK_MONOTONIC.

    Attributes:
        records: one a request, in the order of their index. planned: what each was to be.
        start, end: the run's start, and when the last exchange had ended.
        stopped: that it ended early, without the requests that were not due yet; None where all were sent.
    """

    records: list[RequestRecord]
    planned: list[PlannedRequest]
    start: float
    end: float
    processes: list[Report]  # how each load process fared, without its records
    stopped: Stopped | None = None


class PreparedLoad:
    """A load whose requests are planned, and whose first request the SDK has built.

    Attributes:
        longer: that prompts are longer than asked for, as the server adds more to them; None where all have their lengths.

    Raises:
        BenchError: a request cannot be built, a file of prompts cannot be read, or every prompt is to be shorter than what the server
            adds to it.
    """

    def __init__(self, target: Target, load: Load) -> None:
        self._target, self._load = target, load
        self.longer: str | None = None
        self._planned = self._fitted(schedule(load.workload, load.level, load.schedule_seed))
        self._exchange = exchanges(
            target, load.workload, seed=load.seed, schedule_seed=load.schedule_seed, vocabulary=load.vocabulary
        )

    def _fitted(self, planned: list[PlannedRequest]) -> list[PlannedRequest]:
        """The requests, those with prompts shorter than what the server adds as short as can be; `self.longer` says so."""
        load, server = self._load.workload, self._target.base_url
        form, endpoint = self._target.form(load.endpoint), ENDPOINTS[load.endpoint]
        fewest = {name: part.prompts.fewest(endpoint, form) for name, part in load.parts.items()}
        begins = [x for x in planned if not x.turn and x.prompt_asked is not None]
        short = [x for x in begins if x.prompt_tokens < fewest[x.request_class]]
        missing: dict[int, int] = defaultdict(int)  # of each conversation: a trace's may begin with several requests
        for x in short:
            missing[x.conversation] = max(missing[x.conversation], fewest[x.request_class] - x.prompt_tokens)
        if short:
            shortest = min(short, key=lambda x: x.prompt_tokens)
            least, adds = fewest[shortest.request_class], f"{server} adds {form.template_tokens} to each"
            if len(short) == len(begins):
                raise BenchError(f"prompts of {shortest.prompt_asked} tokens cannot be made: {adds}. Ask for {least} or more.")
            asked = f"{len(short):,} of {len(begins):,} prompts were to have {shortest.prompt_asked} tokens or more"
            self.longer = f"{asked}, and have {least}: {adds}"
        added = min((x.messages[-1] for x in planned if x.turn and x.messages), default=math.inf)
        least = form.turn_tokens + form.letter_tokens
        if endpoint.chats and added < least:
            raise BenchError(
                f"turns that add {added} tokens cannot be made: {server} adds {form.turn_tokens} to each. Ask for {least} or more as "
                "turns.new_tokens."
            )
        return [_longer(x, missing[x.conversation]) if x.conversation in missing else x for x in planned]

    def prime(self) -> list[RequestRecord]:
        """Send the longest piece that prompts share, those of each class, so that a prefix cache holds it when the run begins.

        Returns:
            The records of these requests; none where prompts share nothing.

        Raises:
            BenchError: the server does not accept connections, or a load process ended.
        """
        longest: dict[str | None, PlannedRequest] = {}
        for request in sorted(self._planned, key=lambda x: -x.shared_tokens):
            if request.shared_tokens:
                longest.setdefault(request.request_class, request)
        alone = [
            replace(x, index=index, prompt_asked=x.shared_tokens, output_tokens=1, due_s=0.0, after=(), messages=())
            for index, x in enumerate(longest.values())
        ]
        if not alone:
            return []
        with self.waiting(planned=alone) as send:
            return send().records

    @contextmanager
    def waiting(
        self, alive: Callable[[], None] = lambda: None, planned: list[PlannedRequest] | None = None
    ) -> Iterator[Callable[[], LoadResult]]:
        """Start its load processes, which takes a while, and yield what sends it; they have ended when the context has.

        What is yielded opens the connections, sends everything, and returns when every exchange has ended.

        Args:
            alive: called every second while the load is sent; it may raise, which ends the load.
            planned: other requests, in place of the load's.

        Raises:
            BenchError: the server does not accept connections, or a load process ended.
        """
        planned = self._planned if planned is None else planned
        assignments = _assignments(self._target, self._load, planned, [*map(self._exchange, planned)])
        with ExitStack() as stack:
            processes = [stack.enter_context(_Process(self._target, each)) for each in assignments]
            yield lambda: _run(self._target, processes, planned, alive)


def _longer(request: PlannedRequest, tokens: int) -> PlannedRequest:
    """A request whose conversation begins with a prompt longer by so many tokens, which shares nothing with others."""
    first, *others = request.messages or (0,)
    return replace(
        request,
        prompt_asked=request.prompt_tokens + tokens,
        messages=(first + tokens, *others) if request.messages else (),
        reusable_tokens=request.reusable_tokens + tokens if request.turn else 0,
        blocks=(),
        shared_tokens=0,
    )


def run_load(target: Target, load: Load) -> LoadResult:
    """Prepare and run a load."""
    with PreparedLoad(target, load).waiting() as send:
        return send()


def _run(target: Target, processes: Sequence[_Process], planned: list[PlannedRequest], alive: Callable[[], None]) -> LoadResult:
    for process in processes:
        process.assign()
    for process in processes:
        process.wait_until_ready()
    skews = [process.clock_skew() for process in processes]
    start = time.monotonic() + _LEAD_S
    for process in processes:
        process.tell(start)
    reports = [process.report(alive) for process in processes]
    records = sorted((record for report in reports for record in report.records), key=lambda record: record.index)
    records = [replace(r, error=target.without_secrets(r.error)) if r.error else r for r in records]
    reports = [replace(report, records=[], clock_skew_s=skew) for report, skew in zip(reports, skews, strict=True)]
    stopped = None
    if (at := reports[0].stopped) is not None:
        stopped = Stopped(why="overloaded", at_s=round(at - start, 3), sent=len(records), planned=len(planned))
        sent = {record.index for record in records}
        planned = [x for x in planned if x.index in sent]
    return LoadResult(records, planned, start, max(report.end for report in reports), reports, stopped)


def _assignments(
    target: Target, load: Load, planned: Sequence[PlannedRequest], exchanges: Sequence[Exchange]
) -> list[Assignment]:
    """Each process's share: whole conversations, in turn, and its part of what is held in flight."""
    roots = [request for request in planned if not request.after]
    closed, opened = load.workload.arrival == "closed", not AXES[load.workload.axis].held
    moments = [request.due_s or 0.0 for request in roots] if opened else []
    streams = _most_within(moments, _ANSWER_S) if opened else min(len(roots), int(load.level))
    count = load.processes or max(1, min(len(os.sched_getaffinity(0)), math.ceil(streams / _STREAMS_A_PROCESS)))
    count = max(1, min(count, streams))
    densest = _most_within(moments, _READY_S)
    shares: dict[int, list[Exchange]] = defaultdict(list)
    turn = {request.conversation: number for number, request in enumerate(roots)}
    for request, exchange in zip(planned, exchanges, strict=True):
        shares[turn[request.conversation] % count].append(exchange)
    assignments = []
    for number in range(count):
        mine = shares[number]
        held = streams // count + (number < streams % count)
        spare = _SPARE + math.ceil(densest / count) if opened else 0 if target.reuses else 1 + held // _HELD_A_SPARE
        assignments.append(
            Assignment(
                *target.socket,
                mine,
                load.timeout_s,
                connections=min(spare if opened else held + spare, len(mine)),
                spare=spare,
                in_flight=held if closed else 0,
                honour_retry_after=load.workload.honour_retry_after,
                reuses=target.reuses,
                # One process of several sees its own share alone.
                stop_overloaded=load.workload.stop_overloaded and count == 1,
            )
        )
    return assignments


def _most_within(moments: Sequence[float], window_s: float) -> int:
    """Most of the rising `moments` in any `window_s`."""
    most = first = 0
    for i, moment in enumerate(moments):
        while moments[first] < moment - window_s:
            first += 1
        most = max(most, i - first + 1)
    return most


class _Process:
    """A load process: started, given what to send, and never left behind."""

    def __init__(self, target: Target, assignment: Assignment) -> None:
        self._target, self._assignment = target, assignment

    def __enter__(self) -> _Process:
        # A group of its own: Ctrl-C is for the session, whose end it hears of by its pipe.
        self._process = subprocess.Popen(PROCESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it has nothing to tidy up
        self._process.wait()
        self._from.close()
        with suppress(BrokenPipeError):
            self._to.close()

    def assign(self) -> None:
        """Tell it what it sends; it opens its connections then, none of which a server could close while the run waits for others."""
        self.tell(self._assignment)

    def wait_until_ready(self) -> None:
        if error := self._hear():
            raise BenchError(
                f"{self._target.base_url} does not accept {self._assignment.connections} connections: {error}. "
                "Check the address, that the server runs, and `ulimit -n`."
            )

    def clock_skew(self) -> float:
        """By how much its clock lies outside the interval in which this process asked it (s)."""
        skew = 0.0
        for _ in range(2):  # the first answer pays for what a first call costs
            before = time.monotonic()
            self.tell(None)
            its = self._hear()
            skew = max(0.0, before - its, its - time.monotonic())
        return skew

    def report(self, alive: Callable[[], None]) -> Report:
        """`alive` is called every second until the last exchange has ended."""
        while not select.select([self._from], [], [], _LOOK_S)[0]:
            alive()
        report = self._hear()
        if isinstance(report, str):
            raise BenchError(f"a load process could not go on: {report}.")
        if not isinstance(report, Report):
            raise self._lost()
        return report

    def tell(self, what: Any) -> None:
        try:
            pickle.dump(what, self._to)
            self._to.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def _hear(self) -> Any:
        try:
            return pickle.load(self._from)  # noqa: S301 - our own process
        except Exception:  # bytes that are not a pickle raise nearly anything
            raise self._lost() from None

    def _lost(self) -> BenchError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        return BenchError(
            f"a load process ended with status {self._process.poll()} before the run had ended; its own message, if any, is above. One "
            "that was killed often lacked memory: give the job more, or send fewer and shorter requests."
        )
