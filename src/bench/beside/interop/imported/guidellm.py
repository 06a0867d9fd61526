"""Reports of GuideLLM, which hold a benchmark for each load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, failure, held, iso, no_load, request
from bench.runs.request import RequestRecord

_COLUMNS = {"duration_s": "duration"} | {
    ours: f"metrics.{its}.successful.mean"
    for ours, its in (
        ("throughput_requests_per_s", "requests_per_second"),
        ("throughput_tokens_per_s", "output_tokens_per_second"),
        ("counted_prompt_tokens", "prompt_token_count"),
        ("counted_output_tokens", "output_token_count"),
    )
}
_TIMES = {
    "ttft": (1e-3, "metrics.time_to_first_token_ms.successful.{}"),
    "tpot": (1e-3, "metrics.time_per_output_token_ms.successful.{}"),
    "itl": (1e-3, "metrics.inter_token_latency_ms.successful.{}"),
    "e2e": (1.0, "metrics.request_latency.successful.{}"),
}
_SENT = "info.timings.request_start"
_STAMPS = (_SENT, *(f"info.timings.{name}" for name in ("request_end", "resolve_end", "first_token_iteration")))
_STAMPS += ("info.timings.last_token_iteration", "info.timings.targeted_start")


def _read(_: Path, content: Any) -> list[PeerRun]:
    report = Part(content)
    version = report.part("metadata", need=True).content.get("guidellm_version")
    if not (benchmarks := report.parts("benchmarks")):
        raise ValueError("benchmarks is empty: no load was measured")
    return [_run(None if version is None else str(version), each) for each in benchmarks]


def _run(version: str | None, of: Part) -> PeerRun:
    for key in ("config", "metrics", "requests"):
        of.part(key, need=True)
    totals = of.part("metrics.request_totals")
    answered, failed = (totals.get(name, int) or 0 for name in ("successful", "errored"))
    ok, wrong = of.parts("requests.successful"), of.parts("requests.errored")
    whole = (len(ok), len(wrong)) == (answered, failed)
    begun, _ = (of.get(key, need=True) for key in ("start_time", "duration"))
    counts = {"requests": answered + failed, "ok": answered} if totals.content else {}
    return PeerRun(
        version=version,
        model=of.get("config.backend.model", str) or "model",
        started=iso(begun),
        endpoint="chat" if "chat" in (of.get("config.backend.request_format", str) or "") else "completions",
        load=_load(of.part("config.strategy"), totals.get("total", int) or 0),
        requests=_requests(ok, wrong) if whole else (),
        reported=of.reported(_COLUMNS, _TIMES) | counts,
        lacks="GuideLLM keeps only the first and the last moment of an answer"
        if whole
        else f"it holds {len(ok) + len(wrong)} of the {answered + failed} requests that it counts",
    )


def _load(of: Part, requests: int) -> Load:
    kind = of.get("type_", str) or of.get("kind", str)  # its name in 0.7.0
    rate, most = of.get("rate"), of.get("max_concurrency", int)
    if ramp := of.get("rampup_duration"):
        raise no_load(of.at("rampup_duration"), ramp)
    streams = {"synchronous": 1, "concurrent": of.get("streams", int), "throughput": most or requests}.get(kind or "")
    if streams is not None:
        return held(streams, requests)
    if most is not None:
        raise no_load(of.at("max_concurrency"), most)
    if kind in ("constant", "poisson") and rate:
        return kind, "request_rate", rate
    if kind == "trace":
        return "trace", "time_scale", of.get("time_scale") or 1.0
    raise no_load(of.at("type_"), kind)


def _requests(successful: list[Part], errored: list[Part]) -> list[RequestRecord]:
    """Those that were answered and those that failed, in the order of sending; without those that were cut off."""
    wrong = set(map(id, errored))
    both = sorted((each for each in (*successful, *errored) if each.get(_SENT) is not None), key=lambda each: each.get(_SENT))
    found = []
    for index, each in enumerate(both):
        moments = (each.get(name) for name in _STAMPS)
        begin, end, resolved, first, last, targeted = (None if at is None else at - both[0].get(_SENT) for at in moments)
        error = each.get("info.error", str)
        found.append(
            request(
                index,
                begin,
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


def _is_report(content: Any) -> bool:
    """Whether GuideLLM wrote it; until 0.4 without metadata."""
    found = content.get("benchmarks") if isinstance(content, dict) else None
    runs = [each for each in found if isinstance(each, dict) and "metrics" in each] if isinstance(found, list) else []
    return isinstance(found, list) and ("metadata" in content or bool(runs))


GUIDELLM = Format(
    name="guidellm",
    title="GuideLLM",
    file="the JSON of `guidellm run --output kind=json,path=FILE`",
    versions="0.8.1",
    is_result=_is_report,
    version="metadata.guidellm_version",
    read=_read,
)
