"""Result files of vLLM's `vllm bench serve`. They do not name the version that wrote them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, all_there, failure, held, no_load, request
from bench.runs.request import RequestRecord

_ENDPOINTS = {"openai": "completions", "vllm": "completions", "openai-chat": "chat"}
# Within `_AT_ONCE_S`, and `_EACH_S` for each request, leaves what the client sends at once; else it follows a timed trace, whose file
# says `inf` too. convention: a client's own work on a request takes about 1 ms
_AT_ONCE_S, _EACH_S = 0.1, 0.01
# How far the rate of so many gaps, as of a Poisson process, lies from that asked for, at most; derived: with odds of 1 to 150
_OFF, _ENOUGH = 3.0, 7


def _read(_: Path, content: Any) -> list[PeerRun]:
    of = Part(content)
    backend = of.text("backend") or of.text("endpoint_type")  # its name until 0.10
    if backend not in _ENDPOINTS:
        raise ValueError(f"backend is {backend!r}, and only {', '.join(_ENDPOINTS)} are read")
    needed = ("completed", "duration", "total_input_tokens", "total_output_tokens", "request_throughput", "output_throughput")
    completed, duration, prompts, outputs, rate, tokens = (of.need(key, of.number(key)) for key in needed)
    reported = {"duration_s": duration, "ok": completed, "throughput_requests_per_s": rate, "throughput_tokens_per_s": tokens}
    reported["counted_prompt_tokens"] = prompts / max(1, completed)
    reported["counted_output_tokens"] = outputs / max(1, completed)
    failed = of.count("failed")
    if failed is not None:
        reported["requests"] = completed + failed
    for ours, its in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2el")):
        reported |= dict(of.times(ours, 1e-3, f"{{}}_{its}_ms"))
    return [
        PeerRun(
            model=of.need("model_id", of.text("model_id")),
            endpoint=_ENDPOINTS[backend],
            load=_load(of, None if failed is None else int(completed) + failed),
            requests=_requests(of, completed + (failed or 0), whole=failed is not None),
            reported=reported,
        )
    ]


def _load(of: Part, counted: int | None) -> Load:
    if (ramp := of.text("ramp_up_strategy")) is not None:
        raise no_load("ramp_up_strategy", ramp)
    starts, prompts, cap = sorted(of.values("start_times") or ()), of.count("num_prompts"), of.count("max_concurrency")
    count = len(starts) or (of.need("num_prompts", prompts) if counted is None else counted)
    if of.content.get("request_rate") != "inf":
        rate, shape = of.need("request_rate", of.number("request_rate")), of.number("burstiness") or 1.0
        if cap is not None:
            raise no_load("max_concurrency", cap)
        sent = (count - 1) / (starts[-1] - starts[0]) if starts and starts[-1] > starts[0] else rate
        if shape * (count - 1) >= _ENOUGH and not rate / _OFF < sent < rate * _OFF:
            raise ValueError(
                f"request_rate is {rate:g}, and start_times come at {sent:.3g} requests/s, which is no load that is read"
            )
        return ("poisson" if shape == 1 else "gamma"), "request_rate", float(rate)
    most = min(cap or count, count)
    spread = starts[most - 1] - starts[0] if starts else 0.0
    if spread <= _AT_ONCE_S + _EACH_S * most:
        return held(most, count)
    if most < count:
        raise ValueError(
            f"max_concurrency is {most}, and the first {most} requests were sent within {spread:.3g} s, not at once: a trace with such "
            "a cap is no load that is read"
        )
    return "trace", "time_scale", 1.0


def _requests(of: Part, counted: float, *, whole: bool) -> list[RequestRecord]:
    """Empty where the file has aggregates alone. Args: counted: requests that it counts. whole: whether these are all."""
    starts, ttfts = of.values("start_times"), of.values("ttfts")
    gaps, prompts, outputs = of.values("itls", list, "list"), of.values("input_lens"), of.values("output_lens")
    if starts is None or ttfts is None or gaps is None or prompts is None or outputs is None:
        return []
    errors = of.values("errors", str, "text") or [""] * len(starts)
    if len({len(starts), len(ttfts), len(gaps), len(prompts), len(outputs), len(errors)}) != 1:
        raise ValueError("start_times, ttfts, itls, input_lens, output_lens and errors are not of one length")
    if whole or len(starts) < counted:
        all_there("start_times", len(starts), "completed and failed come to", counted)
    first, found = min(starts, default=0.0), []
    for i, (start, ttft, each, error) in enumerate(zip(starts, ttfts, gaps, errors, strict=True)):
        if error or not ttft:  # of a traceback what was raised
            found.append(request(i, start - first, **failure(error.strip().splitlines()[-1] if error.strip() else "")))
            continue
        later = [Part.typed(gap, int | float, f"itls[{i}]", "number") for gap in each]
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
