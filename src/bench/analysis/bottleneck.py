"""Why a curve's operating point is not higher, and what would raise it: what the server told at the load that missed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.analysis.slo import load_text
from bench.study import Slo

__all__ = ["Bottleneck", "bottleneck"]

_MIB = 2**20
_NEAR = 0.5  # of the limit


@dataclass(frozen=True)
class Bottleneck:
    """What ends a curve's operating range.

    Attributes:
        cause: `kv` (its KV cache is full), `sequences` (requests wait while it has room), `prefill` (prompts queue for arithmetic),
            `decode` (steps take too long), `none` (nothing measured misses) or `unknown`.
        why, mend: in words, each a sentence or two.
        runs: those that carry it.
    """

    cause: str
    why: str
    mend: str
    runs: tuple[str, ...] = ()


def bottleneck(runs: pl.DataFrame, point: Mapping[str, Any], slos: list[Slo]) -> Bottleneck:
    """Why a curve does not carry more.

    At the level above the highest that meets the SLOs with room in its KV cache: the KV cache, if a run filled it and requests wait or
    were preempted, or if it was full up to C_max; else the engine's bounds, if requests wait; else prefill, if TTFT is missed, or E2E
    and most of its growth lies before the first token; else decode. Evidence, not proof: what is full when a limit is passed need not
    be all that bounds it.

    Args:
        runs: summary rows of one curve. point: its row of `operating_points`. slos: those that it was made for.
    """
    valid = runs.filter("valid")
    if valid.is_empty():
        return Bottleneck("unknown", "It has no valid run.", "")
    if point["kind"] == "unjudged":
        return Bottleneck("unknown", "Its SLOs cannot be judged.", "")
    operated = point["room_at"] or 0.0
    there = valid.filter(pl.col("level") > operated).filter(pl.col("level") == pl.col("level").min())
    if there.is_empty():
        highest = valid.filter(pl.col("level") == operated)
        why = f"No measured load misses: {operated:g} is the highest level that has a valid run."
        return Bottleneck("none", why, "Measure higher levels to find the limit.", tuple(highest["run"].to_list()))
    names = tuple(there["run"].to_list())
    at = f"At {load_text(there['level'][0], point['unit'])}"
    waiting, preempted = (math.ceil(_mean(there, column) or 0.0) for column in ("waiting_standing", "preemptions"))
    below = operated < (point["c_max"] or 0.0)
    if there["saturated"].any() and (waiting or preempted or below):
        why = f"{at} the KV cache is full{_room(there)}{_waits(waiting, preempted)}."
        return Bottleneck("kv", why, _more_kv(there) + _next(there, slos), names)
    if waiting:
        usage = _mean(there, "kv_usage_peak")
        room = f"although {1 - usage:.0%} of the KV cache is free" if usage is not None else "and the KV cache is not told"
        why = f"{at} {waiting} request{'s wait' if waiting > 1 else ' waits'} {room}: the engine's own bounds hold them back."
        return Bottleneck("sequences", why, "Raise max_num_seqs, or the tokens of a step (max-num-batched-tokens).", names)
    if _mean(there, "ttft_mean_s") is None and "ttft" not in {slo.metric for slo in slos}:
        why = f"{at} it takes too long; answers that are not streamed do not tell whether prefill or decode does."
        return Bottleneck("unknown", why, "", names)
    missed = {slo.metric for slo in slos if (_mean(there, slo.column) or 0.0) > slo.limit_s}
    if "ttft" in missed or ("e2e" in missed and _grew_before_the_first_token(valid.filter(pl.col("level") == operated), there)):
        told = _prefill(there, point["axis"])
        why = f"{at} the KV cache has room, and requests wait for the arithmetic of one another's prompts{told}."
        return Bottleneck("prefill", why, _FASTER_PREFILL, names)
    tpot = _mean(there, "tpot_p50_s")
    step = f": a step takes {1000 * tpot:.3g} ms (TPOT P50)" if tpot is not None else ""
    return Bottleneck("decode", f"{at} decoding is too slow{step}.", _FASTER_DECODE, names)


_FASTER_PREFILL = (
    "More arithmetic (a faster device, or more of them), shorter prompts or prefixes that the cache serves; a burst that "
    "arrives spread out waits less."
)
_FASTER_DECODE = "More memory bandwidth (a faster device, or more of them), smaller weights, or fewer requests in a step."


def _mean(runs: pl.DataFrame, column: str) -> float | None:
    return runs[column].mean() if column in runs.columns else None  # type: ignore[return-value]


def _room(runs: pl.DataFrame) -> str:
    """What the cache holds, as the division that it is."""
    tokens, request = _mean(runs, "kv_tokens"), _request(runs)
    predicted = _mean(runs, "predicted_saturation")
    if tokens is None or predicted is None or runs["axis"][0] != "concurrency":
        return f" ({tokens:,.0f} tokens)" if tokens is not None else ""
    kept = ", and vLLM keeps a block for itself" if predicted == runs["level"][0] else ""
    return f" ({tokens:,.0f} tokens ÷ {request:,.0f} of a request = {predicted:.3g}{kept})"


def _request(runs: pl.DataFrame) -> float:
    return (_mean(runs, "prompt_tokens") or 0.0) + (_mean(runs, "output_tokens") or 0.0)


def _waits(waiting: float, preempted: float) -> str:
    told = []
    if waiting:
        told.append(f"{waiting:.0f} request{'s wait' if round(waiting) != 1 else ' waits'} for room")
    if preempted:
        told.append(
            f"{preempted:.0f} preemption{'s throw' if round(preempted) != 1 else ' throws'} work away that is done again"
        )
    return f": {', and '.join(told)}" if told else ""


def _more_kv(runs: pl.DataFrame) -> str:
    """What would make room."""
    each = _mean(runs, "kv_bytes_per_token")
    one = f": {each * _request(runs) / _MIB:.3g} MiB hold one request more" if each is not None else ""
    return (
        f"More KV memory{one}. A KV type of half the bytes, or a model with half the KV bytes a token, holds twice as many; "
        "so do requests of half the tokens."
    )


def _grew_before_the_first_token(before: pl.DataFrame, after: pl.DataFrame) -> bool:
    """Whether half or more of what mean E2E grew by, from one level to the next, is TTFT."""
    grown = {key: (_mean(after, f"{key}_mean_s") or 0.0) - (_mean(before, f"{key}_mean_s") or 0.0) for key in ("ttft", "e2e")}
    return grown["e2e"] > 0 and grown["ttft"] >= grown["e2e"] / 2


def _next(runs: pl.DataFrame, slos: list[Slo]) -> str:
    """Whether prefill would be the limit soon after: TTFT's median is no matter of memory."""
    limit = min((slo.limit_s for slo in slos if slo.metric == "ttft"), default=None)
    median = _mean(runs, "ttft_p50_s")
    if limit is None or median is None or median < _NEAR * limit:
        return ""
    return (
        f" But the median TTFT is {median:.3g} s there already, which is the prompts' arithmetic: without faster prefill, room "
        "for more "
        "requests raises C_max little."
    )


def _prefill(runs: pl.DataFrame, axis: str) -> str:
    prompts, level = _mean(runs, "prompt_tokens"), _mean(runs, "level")
    slowest = _mean(runs, "ttft_p99_s")
    if axis == "concurrency" and prompts and level and slowest:
        told = f"{level:g} prompts of {prompts:,.0f} tokens take" if level > 1 else f"a prompt of {prompts:,.0f} tokens takes"
        return f": {told} {slowest:.4g} s, {level * prompts / slowest:,.0f} prompt tokens/s"
    return ""
