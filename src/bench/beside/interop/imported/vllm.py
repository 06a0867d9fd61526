"""Result files of vLLM's `vllm bench serve`. They do not name the version that wrote them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, Sent, all_there, held, no_load

_ENDPOINTS = {"openai": "completions", "vllm": "completions", "openai-chat": "chat"}
# Within `_AT_ONCE_S`, and `_EACH_S` for each request, leaves what the client sends at once; else it follows a timed trace, whose file
# says `inf` too. convention: a client's own work on a request takes about 1 ms
_AT_ONCE_S, _EACH_S = 0.1, 0.01


def _read(_: Path, content: Any) -> Iterator[PeerRun]:
    of = Part(content)
    backend = of.get("backend", str)
    if backend not in _ENDPOINTS:
        raise ValueError(f"backend is {backend!r}, but only {', '.join(_ENDPOINTS)} can be read")
    columns = [of.values(key) for key in ("start_times", "ttfts", "input_lens", "output_lens")]
    columns += [of.values("itls", list), of.values("errors", str)]
    if not columns[0] or len(set(map(len, columns))) != 1:
        raise ValueError("start_times, ttfts, itls, input_lens, output_lens and errors are missing, or differ in length")
    all_there(len(columns[0]), of.get("completed", need=True) + of.get("failed", need=True))
    yield PeerRun(
        model=of.get("model_id", str, need=True),
        endpoint=_ENDPOINTS[backend],
        load=_load(of, sorted(columns[0])),
        sent=[_sent(*each) for each in zip(*columns, strict=True)],
    )


def _load(of: Part, starts: Sequence[float]) -> Load:
    cap = of.get("max_concurrency", int)
    if (ramp := of.get("ramp_up_strategy", str)) is not None:
        raise no_load("ramp_up_strategy", ramp)
    if of.content.get("request_rate") != "inf":
        rate, shape = of.get("request_rate", need=True), of.get("burstiness") or 1.0
        if cap is not None:
            raise no_load("max_concurrency", cap)
        return ("poisson" if shape == 1 else "gamma"), "request_rate", float(rate)
    most = min(cap or len(starts), len(starts))
    if (spread := starts[most - 1] - starts[0]) > _AT_ONCE_S + _EACH_S * most:
        raise no_load(f"the time in which the first {most} requests were sent", f"{spread:.3g} s")
    return held(most, len(starts))


def _sent(start: float, ttft: float, prompt: int, output: int, gaps: list[float], error: str) -> Sent:
    if error or not ttft:
        return Sent(start=start, failed="".join(error.strip().splitlines()[-1:]))  # of a traceback what was raised
    times = list(itertools.accumulate(gaps, initial=start + ttft))
    return Sent(start=start, end=times[-1], times=times, prompt=prompt, output=output)


VLLM = Format(
    name="vllm",
    title="vLLM bench",
    file="the JSON of `vllm bench serve --save-result --save-detailed`",
    versions="0.32",
    keys=frozenset({"model_id", "request_throughput", "num_prompts"}),
    read=_read,
)
