"""Reports of GuideLLM, which hold a benchmark for each load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, Sent, all_there, held, no_load


def _read(_: Path, content: Any) -> Iterator[PeerRun]:
    report = Part(content)
    for of in report.parts("benchmarks"):
        answered, failed = (of.get(f"metrics.request_totals.{name}", int, need=True) for name in ("successful", "errored"))
        sent = [_sent(each, failed=False) for each in of.parts("requests.successful")]
        sent += [_sent(each, failed=True) for each in of.parts("requests.errored")]
        all_there(len(sent), answered + failed)
        yield PeerRun(
            version=report.get("metadata.guidellm_version", str),
            model=of.get("config.backend.model", str) or "model",
            started=of.get("start_time", need=True),
            endpoint="chat" if "chat" in (of.get("config.backend.request_format", str) or "") else "completions",
            load=_load(of.part("config.strategy"), of.get("metrics.request_totals.total", int) or 0),
            sent=sent,
            stamps=False,  # it keeps only the first and the last moment of an answer
        )


def _load(of: Part, requests: int) -> Load:
    kind, rate, most = of.get("type_", str), of.get("rate"), of.get("max_concurrency", int)
    if ramp := of.get("rampup_duration"):
        raise no_load("rampup_duration", ramp)
    streams = {"synchronous": 1, "concurrent": of.get("streams", int), "throughput": most or requests}.get(kind)
    if streams is not None:
        return held(streams, requests)
    if most is not None:
        raise no_load("max_concurrency", most)
    if kind in ("constant", "poisson") and rate:
        return kind, "request_rate", rate
    raise no_load("type_", kind)


def _sent(of: Part, *, failed: bool) -> Sent:
    at = of.part("info.timings").get
    return Sent(
        start=at("request_start", need=True),
        end=at("request_end") or at("resolve_end"),
        due=at("targeted_start"),
        first=at("first_token_iteration"),
        last=at("last_token_iteration"),
        pieces=at("token_iterations", int),
        prompt=of.get("prompt_tokens", int),
        output=of.get("output_tokens", int),
        cached=of.get("cached_tokens", int),
        failed=(of.get("info.error", str) or "") if failed else None,
    )


GUIDELLM = Format(
    name="guidellm",
    title="GuideLLM",
    file="the JSON of `guidellm run --output kind=json,path=FILE`",
    versions="0.8.1",
    keys=frozenset({"metadata", "benchmarks"}),
    read=_read,
)
