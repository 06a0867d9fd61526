"""Send requests until the server answers as it will: no first run may show a start's cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from bench.errors import BenchError
from bench.headers import RATE_LIMITED, UNAUTHORIZED
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.runs.deployment import Warmup
from bench.runs.launch import Launch
from bench.runs.request import RequestRecord
from bench.study.config import Measurement
from bench.study.specs import RunSpec
from bench.workloads.schedule import PlannedRequest, schedule

_IN_A_ROW = 3  # requests in a row whose TTFTs must be alike; convention
_SPREAD = 0.25  # largest range of TTFTs in a row that are alike, as a share of their median; convention
AT_ONCE = 4  # requests with which a warm-up ends; convention
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
            reason = records[0].error
            raise BenchError(
                f"{target.base_url} answered none of the first {count} requests of warm-up: {_failure(records[0])}"
                + (f", {reason.rstrip('.')}. " if reason else ". ")
                + _advice(records[0], missing[0])
            )
        return [(r.e2e_s if r.ttft_s is None else r.ttft_s) if r.outcome == "ok" else None for r in records]

    while not stable and len(ttfts) + _IN_A_ROW <= max(_IN_A_ROW, settings.warmup_requests):
        latest = send("closed", _IN_A_ROW)
        ttfts += latest
        if alone.prompts.sized:
            stable = _alike(latest)
        else:
            stable = len(ttfts) > _IN_A_ROW and all(
                _alike(pair) for pair in zip(ttfts[-2 * _IN_A_ROW : -_IN_A_ROW], latest, strict=True)
            )
    firsts = {request.request_class: request for request in reversed(planned)}
    for request in firsts.values():
        if request.request_class != model.request_class:
            ttfts += send("closed", 1, request)
    return Warmup(ttft_s=(*ttfts, *send("burst", AT_ONCE)), stable=stable)


def _alike(values: Sequence[float | None]) -> bool:
    known = sorted(value for value in values if value is not None)
    return len(known) == len(values) and known[-1] - known[0] <= _SPREAD * median(known)


def _failure(record: RequestRecord) -> str:
    return record.outcome + (f" {record.status}" if record.outcome == "http_error" else "")


def _advice(record: RequestRecord, run: RunSpec) -> str:
    if record.status == RATE_LIMITED:
        return f"Raise the endpoint's rate limit, or let workloads.{run.family} wait as it asks (honour_retry_after: true)."
    if record.status in UNAUTHORIZED:
        return "Check OPENAI_API_KEY, or the header that carries the key."
    if record.outcome in ("truncated", "disconnect"):
        return "The answer broke off: look into the log of the server, and of what stands before it."
    if record.outcome == "timeout":
        return "Raise measurement.request_timeout_s, or shorten the lengths."
    # A shorter request was answered before this one.
    return (
        f"A request of a few tokens was answered before: check the lengths of {run.workload_name}, and the model's vocabulary."
    )


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
