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
            load=_load(of, of.get("metrics.request_totals.total", int) or 0),
            sent=sent,
            stamps=False,  # it keeps only the first and the last moment of an answer
        )


def _load(of: Part, requests: int) -> Load:
    def get(key: str, kind: Any = int | float) -> Any:
        return of.get(f"config.strategy.{key}", kind)

    kind, rate, most = get("type_", str), get("rate"), get("max_concurrency", int)
    if ramp := get("rampup_duration"):
        raise no_load("rampup_duration", ramp)
    streams = {"synchronous": 1, "concurrent": get("streams", int), "throughput": most or requests}.get(kind)
    if streams is not None:
        return held(streams, requests)
    if most is not None:
        raise no_load("max_concurrency", most)
    if kind in ("constant", "poisson") and rate:
        return kind, "request_rate", rate
    raise no_load("type_", kind)


def _sent(of: Part, *, failed: bool) -> Sent:
    def at(name: str) -> float | None:
        moment: float | None = of.get(f"info.timings.{name}")
        return moment

    return Sent(
        start=of.get("info.timings.request_start", need=True),
        end=at("request_end") or at("resolve_end"),
        due=at("targeted_start"),
        first=at("first_token_iteration"),
        last=at("last_token_iteration"),
        pieces=of.get("info.timings.token_iterations", int),
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
