"""Result files of vLLM's `vllm bench serve`. They do not name the version that wrote them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, all_there, failure, held, no_load, request, typed
from bench.runs.request import RequestRecord

_ENDPOINTS = {"openai": "completions", "vllm": "completions", "openai-chat": "chat"}
_COLUMNS = {
    "duration_s": "duration",
    "ok": "completed",
    "throughput_requests_per_s": "request_throughput",
    "throughput_tokens_per_s": "output_throughput",
    "counted_prompt_tokens": "total_input_tokens",  # of all requests
    "counted_output_tokens": "total_output_tokens",
}
_TIMES = {ours: (1e-3, f"{{}}_{its}_ms") for ours, its in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2el"))}
# Within `_AT_ONCE_S`, and `_EACH_S` for each request, leaves what the client sends at once; else it follows a timed trace, whose file
# says `inf` too. convention: a client's own work on a request takes about 1 ms
_AT_ONCE_S, _EACH_S = 0.1, 0.01
# How far the rate of so many gaps, as of a Poisson process, lies from that asked for, at most; derived: with odds of 1 to 150
_OFF, _ENOUGH = 3.0, 7


def _read(_: Path, content: Any) -> list[PeerRun]:
    of = Part(content)
    backend = of.get("backend", str) or of.get("endpoint_type", str)  # its name until 0.10
    if backend not in _ENDPOINTS:
        raise ValueError(f"backend is {backend!r}, but only {', '.join(_ENDPOINTS)} can be read")
    for path in _COLUMNS.values():
        of.get(path, need=True)
    reported, failed = of.reported(_COLUMNS, _TIMES), of.get("failed", int)
    asked, counted = of.get("num_prompts", int, need=failed is None), reported["ok"] + (failed or 0)
    reported |= {name: reported[name] / max(1, reported["ok"]) for name in ("counted_prompt_tokens", "counted_output_tokens")}
    reported |= {} if failed is None else {"requests": counted}
    return [
        PeerRun(
            model=of.get("model_id", str, need=True),
            endpoint=_ENDPOINTS[backend],
            load=_load(of, asked if failed is None else int(counted)),
            requests=_requests(of, counted, whole=failed is not None),
            reported=reported,
        )
    ]


def _load(of: Part, count: int) -> Load:
    if (ramp := of.get("ramp_up_strategy", str)) is not None:
        raise no_load("ramp_up_strategy", ramp)
    starts, cap = sorted(of.values("start_times") or ()), of.get("max_concurrency", int)
    count = len(starts) or count
    if of.content.get("request_rate") != "inf":
        rate, shape = of.get("request_rate", need=True), of.get("burstiness") or 1.0
        if cap is not None:
            raise no_load("max_concurrency", cap)
        sent = (count - 1) / (starts[-1] - starts[0]) if starts and starts[-1] > starts[0] else rate
        if shape * (count - 1) >= _ENOUGH and not rate / _OFF < sent < rate * _OFF:
            raise ValueError(
                f"request_rate is {rate:g}, but start_times come at {sent:.3g} requests/s: such a load cannot be read"
            )
        return ("poisson" if shape == 1 else "gamma"), "request_rate", float(rate)
    most = min(cap or count, count)
    spread = starts[most - 1] - starts[0] if starts else 0.0
    if spread <= _AT_ONCE_S + _EACH_S * most:
        return held(most, count)
    if most < count:
        raise ValueError(
            f"max_concurrency is {most}, and the first {most} requests were sent within {spread:.3g} s, not at once: a trace "
            "with such a cap cannot be read"
        )
    return "trace", "time_scale", 1.0


def _requests(of: Part, counted: float, *, whole: bool) -> list[RequestRecord]:
    """Empty where the file has aggregates alone. Args: counted: requests that it counts. whole: whether these are all."""
    columns = [of.values(key) for key in ("start_times", "ttfts", "input_lens", "output_lens")] + [of.values("itls", list)]
    if any(each is None for each in columns):
        return []
    starts, ttfts, prompts, outputs, gaps = (each or [] for each in columns)
    errors = of.values("errors", str) or [""] * len(starts)
    if len({len(each) for each in (starts, ttfts, gaps, prompts, outputs, errors)}) != 1:
        raise ValueError("start_times, ttfts, itls, input_lens, output_lens and errors differ in length")
    if whole or len(starts) < counted:
        all_there("start_times", len(starts), "completed and failed come to", counted)
    first, found = min(starts, default=0.0), []
    for i, (start, ttft, each, error) in enumerate(zip(starts, ttfts, gaps, errors, strict=True)):
        if error or not ttft:  # of a traceback what was raised
            found.append(request(i, start - first, **failure(error.strip().splitlines()[-1] if error.strip() else "")))
            continue
        later = [typed(gap, int | float, f"itls[{i}]") for gap in each]
        times = list(itertools.accumulate(later, initial=start - first + ttft))
        found.append(request(i, start - first, times[-1], times=times, prompt_tokens=prompts[i], completion_tokens=outputs[i]))
    return found


VLLM = Format(
    name="vllm",
    title="vLLM bench",
    file="the JSON of `vllm bench serve --save-result --save-detailed`",
    versions="0.32",
    is_result=lambda content: isinstance(content, dict) and {"model_id", "request_throughput", "num_prompts"} <= content.keys(),
    read=_read,
)
