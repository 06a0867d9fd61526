"""Result files of vLLM's `vllm bench serve`. They do not name the version that wrote them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.imported.kind import Definition, Format, PeerRun, all_there, failure, held, number, request, seconds
from bench.runs.files import typed
from bench.runs.request import RequestRecord

_SERVE, _SENDS = "vllm/benchmarks/serve.py", "vllm/benchmarks/lib/endpoint_request_func.py"
_ENDPOINTS = {"openai": "completions", "vllm": "completions", "openai-chat": "chat"}
_DEFINITIONS = (
    Definition("TTFT", "from before the request is built and a connection is found, to the first event with choices", _SENDS),
    Definition("E2E", "to the last event with choices, which may carry no token (llama.cpp's closing one)", _SENDS),
    Definition("ITL", "gaps between events with choices, the closing one among them", _SENDS),
    Definition("TPOT", "(E2E − TTFT) ÷ (n − 1), as here; n from usage, else from the client's tokenizer", _SERVE),
    Definition("throughput", "÷ the client's whole run, from before the first request to after the last", _SERVE),
    Definition("percentiles", "interpolated between requests (numpy.percentile)", _SERVE),
)


# Within `_AT_ONCE_S`, and `_EACH_S` for each request, leaves what the client sends at once; else it follows a timed trace, whose file
# says `inf` too. convention: a client's own work on a request takes about 1 ms
_AT_ONCE_S, _EACH_S = 0.1, 0.01


# How far the rate of so many gaps, as of a Poisson process, lies from that asked for, at most; derived: with odds of 1 to 150
_OFF, _ENOUGH = 3.0, 7


@dataclass(frozen=True)
class _Result:
    """The keys that are read; times in seconds, reported ones in ms."""

    model_id: str
    num_prompts: int
    request_rate: float | str
    completed: int
    duration: float
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float
    output_throughput: float
    backend: str | None = None
    endpoint_type: str | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None
    ramp_up_strategy: str | None = None
    failed: int | None = None
    start_times: tuple[float, ...] | None = None
    ttfts: tuple[float, ...] | None = None
    itls: tuple[tuple[float, ...], ...] | None = None
    latencies: tuple[float, ...] | None = None
    input_lens: tuple[int, ...] | None = None
    output_lens: tuple[int, ...] | None = None
    errors: tuple[str, ...] | None = None


def _read(_: Path, content: Any) -> list[PeerRun]:
    result = typed(_Result, content)
    backend = result.backend or result.endpoint_type  # its name until 0.10
    if backend not in _ENDPOINTS:
        raise ValueError(f"backend is {backend!r}, and only {', '.join(_ENDPOINTS)} are read")
    arrival, axis, level = _load(result)
    reported = {
        "duration_s": result.duration,
        "ok": float(result.completed),
        "throughput_requests_per_s": result.request_throughput,
        "throughput_tokens_per_s": result.output_throughput,
        "counted_prompt_tokens": result.total_input_tokens / max(1, result.completed),
        "counted_output_tokens": result.total_output_tokens / max(1, result.completed),
    }
    if result.failed is not None:
        reported["requests"] = float(result.completed + result.failed)
    for ours, its in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2el")):
        keys = {f"mean_{its}_ms": f"{ours}_mean_s", f"median_{its}_ms": f"{ours}_p50_s"}
        keys |= {f"p{p}_{its}_ms": f"{ours}_p{p}_s" for p in (50, 90, 95, 99)}
        reported |= seconds(content, 1e-3, keys)
    return [
        PeerRun(
            version=None,
            model=result.model_id,
            endpoint=_ENDPOINTS[backend],
            arrival=arrival,
            axis=axis,
            level=level,
            requests=_requests(result),
            reported=reported,
        )
    ]


def _load(result: _Result) -> tuple[str, str, float]:
    if result.ramp_up_strategy is not None:
        raise ValueError(f"ramp_up_strategy is {result.ramp_up_strategy!r}: a rate that rises is no load that is read")
    starts = sorted(result.start_times or ())
    count = len(starts) or (result.num_prompts if result.failed is None else result.completed + result.failed)
    rate = math.inf if result.request_rate == "inf" else number(result.request_rate, "request_rate")
    if not math.isinf(rate):
        if result.max_concurrency is not None:
            raise ValueError(f"max_concurrency is {result.max_concurrency}: a rate with such a cap is no load that is read")
        shape = result.burstiness or 1.0
        sent = (count - 1) / (starts[-1] - starts[0]) if starts and starts[-1] > starts[0] else rate
        if shape * (count - 1) >= _ENOUGH and not rate / _OFF < sent < rate * _OFF:
            raise ValueError(
                f"request_rate is {rate:g}, and start_times come at {sent:.3g} requests/s, which is no load that is read"
            )
        return ("poisson" if shape == 1 else "gamma"), "request_rate", rate
    most = min(result.max_concurrency or count, count)
    spread = starts[most - 1] - starts[0] if starts else 0.0
    if spread <= _AT_ONCE_S + _EACH_S * most:
        return held(most, count)
    if most < count:
        raise ValueError(
            f"max_concurrency is {most}, and the first {most} requests were sent within {spread:.3g} s, not at once: a trace with such "
            "a cap is no load that is read"
        )
    return "trace", "time_scale", 1.0


def _requests(result: _Result) -> list[RequestRecord]:
    """Empty where the file has aggregates alone."""
    starts, ttfts, itls = result.start_times, result.ttfts, result.itls
    prompts, outputs = result.input_lens, result.output_lens
    if starts is None or ttfts is None or itls is None or prompts is None or outputs is None:
        return []
    errors = result.errors or ("",) * len(starts)
    if len({len(starts), len(ttfts), len(itls), len(prompts), len(outputs), len(errors)}) != 1:
        raise ValueError("start_times, ttfts, itls, input_lens, output_lens and errors are not of one length")
    counted = result.completed + (result.failed or 0)
    if result.failed is not None or len(starts) < counted:
        all_there("start_times", len(starts), "completed and failed come to", counted)
    first, found = min(starts, default=0.0), []
    for i, (start, ttft, gaps, error) in enumerate(zip(starts, ttfts, itls, errors, strict=True)):
        sent = start - first
        if error or not ttft:
            said = error.strip().splitlines()[-1] if error.strip() else ""  # of a traceback what was raised
            outcome, status = failure(said)
            found.append(request(i, sent_s=sent, outcome=outcome, error=said or None, status=status))
            continue
        times = list(itertools.accumulate(gaps, initial=sent + ttft))
        found.append(
            request(
                i,
                sent_s=sent,
                first_token_s=times[0],
                last_token_s=times[-1],
                end_s=times[-1],
                token_times_s=times,
                prompt_tokens=prompts[i],
                completion_tokens=outputs[i],
            )
        )
    return found


VLLM = Format(
    name="vllm",
    title="vLLM bench",
    file="the JSON of `vllm bench serve --save-result --save-detailed`",
    versions="0.32",
    definitions=_DEFINITIONS,
    is_result=lambda content: isinstance(content, dict) and {"model_id", "request_throughput", "num_prompts"} <= content.keys(),
    read=_read,
)
