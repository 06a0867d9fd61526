"""Reports of GuideLLM, which hold a benchmark for each load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, all_there, failure, held, iso, no_load, request
from bench.runs.request import RequestRecord

_SENT = "info.timings.request_start"
_STAMPS = (_SENT, *(f"info.timings.{name}" for name in ("request_end", "resolve_end", "first_token_iteration")))
_STAMPS += ("info.timings.last_token_iteration", "info.timings.targeted_start")


def _read(_: Path, content: Any) -> list[PeerRun]:
    report = Part(content)
    version = report.get("metadata.guidellm_version", str)
    return [_run(version, each) for each in report.parts("benchmarks")]


def _run(version: str | None, of: Part) -> PeerRun:
    totals = of.part("metrics.request_totals")
    answered, failed = (totals.get(name, int, need=True) for name in ("successful", "errored"))
    requests = _requests(of.parts("requests.successful"), of.parts("requests.errored"))
    all_there(len(requests), answered + failed)
    return PeerRun(
        version=version,
        model=of.get("config.backend.model", str) or "model",
        started=iso(of.get("start_time", need=True)),
        endpoint="chat" if "chat" in (of.get("config.backend.request_format", str) or "") else "completions",
        load=_load(of.part("config.strategy"), totals.get("total", int) or 0),
        requests=requests,
        stamps=False,  # it keeps only the first and the last moment of an answer
    )


def _load(of: Part, requests: int) -> Load:
    kind, rate, most = of.get("type_", str), of.get("rate"), of.get("max_concurrency", int)
    if ramp := of.get("rampup_duration"):
        raise no_load("rampup_duration", ramp)
    streams = {"synchronous": 1, "concurrent": of.get("streams", int), "throughput": most or requests}.get(kind or "")
    if streams is not None:
        return held(streams, requests)
    if most is not None:
        raise no_load("max_concurrency", most)
    if kind in ("constant", "poisson") and rate:
        return kind, "request_rate", rate
    raise no_load("type_", kind)


def _requests(successful: list[Part], errored: list[Part]) -> list[RequestRecord]:
    """Those that were answered and those that failed, in the order of sending; without those that were cut off."""
    wrong = set(map(id, errored))
    both = sorted((each for each in (*successful, *errored) if each.get(_SENT) is not None), key=lambda each: each.get(_SENT))
    found = []
    for index, each in enumerate(both):
        moments = [None if (at := each.get(name)) is None else at - both[0].get(_SENT) for name in _STAMPS]
        begin, end, resolved, first, last, targeted = moments
        error = each.get("info.error", str)
        found.append(
            request(
                index,
                begin or 0.0,
                resolved if end is None else end,
                ends=(first, last),
                chunks=each.get("info.timings.token_iterations", int) or None,
                prompt_tokens=each.get("prompt_tokens", int),
                completion_tokens=each.get("output_tokens", int),
                cached_tokens=each.get("cached_tokens", int),
                scheduled_s=targeted,
                **(failure(error or "") if id(each) in wrong else {"error": error}),
            )
        )
    return found


GUIDELLM = Format(
    name="guidellm",
    title="GuideLLM",
    file="the JSON of `guidellm run --output kind=json,path=FILE`",
    versions="0.8.1",
    is_result=lambda content: isinstance(content, dict) and {"metadata", "benchmarks"} <= content.keys(),
    read=_read,
)
