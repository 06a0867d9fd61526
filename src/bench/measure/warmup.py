"""Load that is no run's: warm-up, until the server answers as it will, and short reference loads between runs, always the same,
which show how fast the machine is now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean, median

from bench.bounds import PATIENCE_S
from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.runs.deployment import Warmup
from bench.runs.launch import Launch
from bench.runs.request import RequestRecord
from bench.runs.run import ReferenceLoad
from bench.study.config import Measurement
from bench.study.specs import RunSpec
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.schedule import PlannedRequest, schedule

_IN_A_ROW = 3  # requests in a row whose TTFTs must be alike; convention
_SPREAD = 0.25  # largest range of TTFTs in a row that are alike, as a share of their median; convention
AT_ONCE = 4  # requests with which a warm-up ends, and of a reference load in flight; convention
_WARM_OUTPUT = 16  # most output tokens of a request of warm-up: TTFT is what has to become stable; convention


def warm_up(target: Target, missing: Sequence[RunSpec], settings: Measurement, launch: Launch) -> Warmup:
    """Send prompts as long as the first run's first one, three by three, until TTFT is stable; then one of each other class that the
    run has, to its model, as an adapter is loaded by its first request; then four at once.

    TTFT is stable where three of equal length are alike, or, of prompts from a file, where each is like the same one before.

    Raises:
        BenchError: the first three failed, each of them: the server does not do what every run would ask of it.
    """
    if not missing or not settings.warmup_requests:
        return Warmup()
    first = load_of(missing[0], launch, settings.request_timeout_s)
    planned = schedule(first.workload, first.level, first.schedule_seed)
    model = planned[0]
    alone = first.workload.of(model.request_class)
    ttfts: list[float | None] = []
    stable = False

    def send(arrival: str, count: int, like: PlannedRequest = model) -> list[float | None]:
        requests, output = count if arrival == "closed" else None, min(like.output_tokens, _WARM_OUTPUT)
        workload = first.workload.of(like.request_class).alike(arrival, requests, like.prompt_asked, output)
        workload = workload.model_copy(update={"honour_retry_after": first.workload.honour_retry_after})
        load = replace(
            first, workload=workload, level=1 if arrival == "closed" else count, seed=f"warm-up/{len(ttfts)}/{first.seed}"
        )
        own = first.workload.classes[like.request_class].model if like.request_class else None
        records = run_load(replace(target, model=own or target.model), load).records
        if not ttfts and all(record.outcome != "ok" for record in records):
            said = " ".join(str(each) for each in (records[0].outcome, records[0].status, records[0].error) if each)
            raise BenchError(
                f"{target.base_url} answered none of the first {count} requests of warm-up: {said.rstrip('.')}. A request of a few "
                f"tokens was answered before: check the lengths of {missing[0].workload_name}, and measurement.request_timeout_s."
            )
        return [(r.e2e_s if r.ttft_s is None else r.ttft_s) if r.outcome == "ok" else None for r in records]

    while not stable and len(ttfts) + _IN_A_ROW <= max(_IN_A_ROW, settings.warmup_requests):
        latest = send("closed", _IN_A_ROW)
        ttfts += latest
        pairs = [latest] if alone.prompts.sized else [*zip(ttfts[-2 * _IN_A_ROW : -_IN_A_ROW], latest, strict=False)]
        stable = bool(pairs) and all(map(_alike, pairs))
    firsts = {request.request_class: request for request in reversed(planned)}
    for request in firsts.values():
        if request.request_class != model.request_class:
            ttfts += send("closed", 1, request)
    return Warmup(ttft_s=(*ttfts, *send("burst", AT_ONCE)), stable=stable)


def _alike(values: Sequence[float | None]) -> bool:
    known = sorted(value for value in values if value is not None)
    return len(known) == len(values) and known[-1] - known[0] <= _SPREAD * median(known)


def load_of(run: RunSpec, launch: Launch, timeout_s: float) -> Load:
    """What a run sends."""
    return Load(
        workload=run.workload,
        level=run.level,
        seed=run.digest,
        schedule_seed=run.schedule_seed,
        vocabulary=launch.vocabulary or Load.vocabulary,
        timeout_s=timeout_s,
    )


_TIMES = 2  # times that it is sent: the faster one counts, as what interrupts a machine for a moment is no drift; convention
_LONGEST_PROMPT = 256  # longest prompt of a reference load (tokens); convention
_LONGEST_OUTPUT = 32  # longest output of a reference load (tokens); convention


def reference_load(
    target: Target, first: Load, requests: int, place: tuple[int, str | None], alive: Callable[[], None]
) -> ReferenceLoad | None:
    """Send the reference load twice.

    Lengths are those of `first`'s first request, bounded, so that it fits wherever the workload does; prompts of a file are the first
    ones of that run, each time.

    Args:
        first: the deployment's first run, whatever is measured now: it decides the lengths and the endpoint.
        requests: how many each time. place: the round, and when it began; None: now. alive: raises where the server is dead.

    Returns:
        None where a request failed.

    Raises:
        ServerDied: the server is dead.
    """
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    model = schedule(first.workload, first.level, first.schedule_seed)[0]
    alone = first.workload.of(model.request_class)
    asked = model.prompt_asked
    fewest = alone.prompts.fewest(ENDPOINTS[first.workload.endpoint], target.form(first.workload.endpoint))
    prompt = None if asked is None else max(min(asked, _LONGEST_PROMPT), fewest)
    output = model.output_tokens and min((asked or 0) - (prompt or 0) + model.output_tokens, _LONGEST_OUTPUT)
    in_flight = min(AT_ONCE, requests)
    workload = alone.alike("closed", requests, prompt, output)
    load = replace(first, workload=workload, level=in_flight, timeout_s=min(first.timeout_s, PATIENCE_S))
    tokens = sum(request.tokens for request in schedule(workload, in_flight, load.schedule_seed))
    seconds = []
    for time in range(_TIMES):
        try:
            # The moment is in the seed: no prefix cache may know a prompt of an earlier reference.
            records = run_load(target, replace(load, seed=f"reference/{started}/{time}/{first.seed}")).records
        except BenchError:
            records = []
        took = _seconds(records)
        if took is None:
            alive()
            return None
        seconds.append(round(took, 6))
    return ReferenceLoad(
        round=place[0],
        since=place[1] or started,
        started=started,
        requests=requests,
        in_flight=in_flight,
        prompt_tokens=prompt,
        output_tokens=output,
        seconds=tuple(seconds),
        tokens_per_s=round(tokens / fmean(seconds), 3),
    )


def _seconds(records: list[RequestRecord]) -> float | None:
    """From the first request sent to the end of the last; None where one failed, or none was sent."""
    sent = [record.sent_s for record in records if record.sent_s is not None]
    ends = [record.end_s for record in records if record.end_s is not None]
    if not sent or not ends or any(record.outcome != "ok" for record in records):
        return None
    return max(ends) - min(sent)
