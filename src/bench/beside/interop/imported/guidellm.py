"""Reports of GuideLLM, which hold a benchmark for each load."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, failure, held, no_load, request
from bench.runs.request import RequestRecord

_LATENCIES = (
    ("ttft", "time_to_first_token_ms", 1e-3), ("tpot", "time_per_output_token_ms", 1e-3), ("itl", "inter_token_latency_ms", 1e-3),
    ("e2e", "request_latency", 1.0),
)  # fmt: skip
_MEANS = {
    "requests_per_second": "throughput_requests_per_s",
    "output_tokens_per_second": "throughput_tokens_per_s",
    "prompt_token_count": "counted_prompt_tokens",
    "output_token_count": "counted_output_tokens",
}


def _read(_: Path, content: Any) -> list[PeerRun]:
    report = Part(content)
    report.need("metadata", report.get("metadata", dict, "object"))
    if not (benchmarks := report.parts("benchmarks")):
        raise ValueError("benchmarks is empty: no load was measured")
    return [_run(_version(content), each) for each in benchmarks]


def _run(version: str | None, of: Part) -> PeerRun:
    config, metrics, requests = (
        Part(of.need(key, of.get(key, dict, "object")), f"{of.where}.{key}") for key in ("config", "metrics", "requests")
    )
    totals, backend = metrics.part("request_totals"), config.part("backend")
    answered, failed = (totals.count(name) or 0 for name in ("successful", "errored"))
    ok, wrong = requests.parts("successful"), requests.parts("errored")
    whole = (len(ok), len(wrong)) == (answered, failed)
    begun, duration = (of.need(key, of.number(key)) for key in ("start_time", "duration"))
    reported = {"duration_s": duration}
    for metric, ours in _MEANS.items():
        reported |= dict(metrics.part(metric).part("successful").known({"mean": ours}))
    if totals.content:
        reported |= {"requests": answered + failed, "ok": answered}
    for ours, metric, scale in _LATENCIES:
        successful = metrics.part(metric).part("successful")
        reported |= dict(successful.part("percentiles").times(ours, scale)) | dict(successful.times(ours, scale))
    return PeerRun(
        version=version,
        model=backend.text("model") or "model",
        started=datetime.fromtimestamp(begun, UTC).isoformat(timespec="milliseconds"),
        endpoint="chat" if "chat" in (backend.text("request_format") or "") else "completions",
        load=_load(config.part("strategy"), totals.count("total") or 0),
        requests=_requests(ok, wrong) if whole else (),
        reported=reported,
        lacks="GuideLLM keeps the first and the last moment of an answer alone"
        if whole
        else f"it holds {len(ok) + len(wrong)} of the {answered + failed} requests that it counts",
    )


def _load(of: Part, requests: int) -> Load:
    kind, rate, most = of.text("type_"), of.number("rate"), of.count("max_concurrency")
    if ramp := of.number("rampup_duration"):
        raise no_load(f"{of.where}.rampup_duration", ramp)
    streams = {"synchronous": 1, "concurrent": of.count("streams"), "throughput": most or requests}.get(kind or "")
    if streams is not None:
        return held(streams, requests)
    if most is not None:
        raise no_load(f"{of.where}.max_concurrency", most)
    if kind in ("constant", "poisson") and rate:
        return kind, "request_rate", rate
    if kind == "trace":
        return "trace", "time_scale", of.number("time_scale") or 1.0
    raise no_load(f"{of.where}.type_", kind)


def _requests(successful: list[Part], errored: list[Part]) -> list[RequestRecord]:
    """Those that were answered and those that failed, in the order of sending; without those that were cut off."""
    both = [(each, each.part("info").part("timings"), ok) for of, ok in ((successful, True), (errored, False)) for each in of]
    sent = sorted(
        ((at.number("request_start") or 0.0, i) for i, (_, at, _) in enumerate(both) if at.number("request_start") is not None)
    )
    found = []
    for index, (start, i) in enumerate(sent):
        each, at, ok = both[i]

        def since(key: str, at: Part = at) -> float | None:
            moment = at.number(key)
            return None if moment is None else moment - sent[0][0]

        end, error = since("request_end"), each.part("info").text("error")
        found.append(
            request(
                index,
                start - sent[0][0],
                since("resolve_end") if end is None else end,
                ends=(since("first_token_iteration"), since("last_token_iteration")),
                chunks=at.count("token_iterations") or None,
                prompt_tokens=each.count("prompt_tokens"),
                completion_tokens=each.count("output_tokens"),
                cached_tokens=each.count("cached_tokens"),
                scheduled_s=since("targeted_start"),
                **({"error": error} if ok else failure(error or "")),
            )
        )
    return found


def _is_report(content: Any) -> bool:
    """Whether GuideLLM wrote it; until 0.4 without metadata."""
    found = content.get("benchmarks") if isinstance(content, dict) else None
    return isinstance(found, list) and (
        "metadata" in content or any(isinstance(each, dict) and "metrics" in each for each in found)
    )


def _version(content: Any) -> str | None:
    metadata = content.get("metadata")
    return str(metadata["guidellm_version"]) if isinstance(metadata, dict) and "guidellm_version" in metadata else None


GUIDELLM = Format(
    name="guidellm",
    title="GuideLLM",
    file="the JSON of `guidellm run --output kind=json,path=FILE`",
    versions="0.8.1",
    is_result=_is_report,
    version=_version,
    read=_read,
)
