"""The instances that a peak takes, what each should admit, what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from bench.study.slo import Slo

HOUR_S = 3600.0  # seconds of an hour; derived
DAYS_A_MONTH = 30  # days of a month; convention: 730 hours would be 1.4 % more
_HOURS_A_MONTH = 24 * DAYS_A_MONTH  # hours of a month; derived
# shares of the longest queue at which shedding begins, and at which all is shed; source: the texts that
# docs/explanation/memory.md names
_SHED = (0.8, 0.9)
_LITTLE = 2.0  # ratio in Little's law above which load and latency contradict each other; convention


@dataclass(frozen=True)
class OperatingPoint:
    """What one instance sustains within its SLOs.

    Attributes:
        usable_rps: requests/s; it lies between usable_low and usable_high at 95 % confidence, each None where it is not established.
        gpus: that are paid for with an instance; None where they are unknown.
        c_max: requests in flight there, which are what it may admit. latency_s: their mean E2E latency (s).
        prompt_tokens, output_tokens: mean lengths (tokens). kv_tokens: capacity of the KV cache (tokens).
        max_model_len: longest request that the server takes (tokens). engines: that share requests and `kv_tokens` evenly.
        slots: whether each request holds an equal part of the KV cache, of `max_model_len` tokens, whatever its length.
        admit: most requests in flight there, where the load does not hold `c_max` of them: they came by a rate and met the SLOs, and a
            limit at their mean would refuse much of it.
    """

    usable_rps: float
    gpus: int | None = 1
    c_max: float | None = None
    latency_s: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    kv_tokens: int | None = None
    max_model_len: int | None = None
    admit: float | None = None
    engines: int = 1
    slots: bool = False
    usable_low: float | None = None
    usable_high: float | None = None

    @classmethod
    def of(cls, point: Mapping[str, Any], run: Mapping[str, Any]) -> OperatingPoint | None:
        """A measured one.

        Args:
            point: row of `operating_points`. run: a summary row of its curve.

        Returns:
            None where no measured load meets the SLOs, or nothing came at it.
        """
        if point["c_max"] is None or not point["usable_rps"]:
            return None
        held = point["unit"] == "requests in flight"  # neither a rate nor conversations, some of which are idle
        return cls(
            usable_rps=point["usable_rps"],
            gpus=gpus_of(run),
            c_max=point["operate_at"] if held else point["in_flight"],
            latency_s=point["latency_s"],
            prompt_tokens=point["prompt_tokens"],
            output_tokens=point["output_tokens"],
            kv_tokens=run["kv_tokens"],
            max_model_len=run["max_model_len"],
            admit=None if held else point["in_flight_peak"],
            engines=run["engines"] or 1,
            slots=bool(run["kv_slots"]),
            usable_low=point["usable_low"],
            usable_high=point["usable_high"],
        )

    @property
    def little(self) -> float | None:
        """Requests/s that Little's law gives for `c_max` and `latency_s`, ÷ `usable_rps`: 1 where all three were measured together."""
        if self.c_max is None or not self.latency_s:
            return None
        return self.c_max / self.latency_s / self.usable_rps

    @property
    def consistent(self) -> bool | None:
        """Whether `little` is within a factor of 2; None where it is unknown."""
        return None if self.little is None else 1 / _LITTLE <= self.little <= _LITTLE


@dataclass(frozen=True)
class Limits:
    """What one instance should refuse, so that what it accepts meets its SLO.

    Attributes:
        admission: requests in flight; None where `c_max` is unknown.
        queue: longest queue (requests). shed_from, shed_at: queue lengths at which shedding begins, and by which all is shed.
        input_tokens: longest prompt that still fits the KV cache beside all others that are admitted; of slots, that fits one. None
            where it is not known, or where the others fill the cache.
    """

    admission: int | None
    queue: int | None
    shed_from: int | None
    shed_at: int | None
    input_tokens: int | None


def limits(point: OperatingPoint, slo_s: float | None) -> Limits:
    """Limits of one instance.

    The longest queue is SLO × arrival rate (Little's law: a request that finds more before it waits longer than the SLO).

    Args:
        slo_s: the TTFT that is promised (s); without it, there is no queue.
    """
    longest = None
    if point.slots:
        if point.max_model_len is not None and point.output_tokens is not None:
            longest = math.floor(point.max_model_len - point.output_tokens)
    elif point.kv_tokens is not None and point.c_max and point.prompt_tokens is not None and point.output_tokens is not None:
        # Of the engine in which it comes to lie, whose share of requests and tokens is the mean one.
        others = max(0.0, point.c_max / point.engines - 1) * (point.prompt_tokens + point.output_tokens)
        room = point.kv_tokens / point.engines - others
        longest = math.floor(min(room, point.max_model_len or math.inf) - point.output_tokens)
    admission = point.c_max if point.admit is None else point.admit
    queue = None if slo_s is None else math.floor(_exact(slo_s * point.usable_rps))
    return Limits(
        admission=None if admission is None else max(1, math.floor(admission)),
        queue=queue,
        shed_from=math.floor(_exact(_SHED[0] * queue)) if queue else None,
        shed_at=math.floor(_exact(_SHED[1] * queue)) if queue else None,
        input_tokens=longest if longest and longest > 0 else None,
    )


def is_machine(run: Mapping[str, Any]) -> bool:
    """Whether an instance is a machine with an engine on its CPU."""
    return bool(run["gpus"] == 0)


def with_devices(runs: pl.DataFrame) -> pl.DataFrame:
    """The rows with `devices`, GPUs or workers of a CPU engine: tensor × pipeline × data parallelism; null without the first."""
    further = [pl.col(kind).fill_null(1) for kind in ("pipeline_parallel", "data_parallel")]
    return runs.with_columns(devices=math.prod(further, start=pl.col("tensor_parallel")))


def gpus_of(run: Mapping[str, Any]) -> int | None:
    """GPUs that are paid for with an instance; 1, the machine, where the engine runs on a CPU. None where they are unknown."""
    return None if run["gpus"] is None else max(1, run["gpus"])


def sized(
    point: OperatingPoint,
    peak_rps: float,
    *,
    safety: float = 1.3,
    slos: Sequence[Slo] = (),
    gpu_hour: float | None = None,
    token_price: float | None = None,
) -> dict[str, Any]:
    """Everything about a fleet as plain data: `bench fleet` prints it, the report shows it.

    instances = ⌈peak ÷ usable⌉, GPUs = ⌈instances × safety⌉ × GPUs of one: no instance is left without some of its GPUs. The
    instances of the upper end are planned, where that is established.

    Args:
        peak_rps: requests/s of the busiest moment. safety: spare instances for failures and growth, 1.2 to 1.5.
        slos: the least TTFT of all bounds the queue. gpu_hour: USD of one GPU. token_price: USD of 10⁶ output tokens elsewhere.

    Returns:
        `instances` (between `instances_least` and `instances_most` at 95 % confidence, null where that end is not established). Of what
        is planned: `gpus` (null where those of an instance are unknown), `utilisation_at_peak` (0–1), `cost` (null without a price or
        GPUs: USD an `hour`, a `month`, `million_output_tokens_at_peak`, `break_even_million_tokens_a_month`). And what was asked, the
        operating point (its GPUs as `gpus_per_instance`), `little`, `consistent`, `limits` (of a queue: null without a TTFT).
    """
    rates = {"": point.usable_rps, "_least": point.usable_high, "_most": point.usable_low}
    instances = {end: math.ceil(_exact(peak_rps / rate)) if rate and rate > 0 else None for end, rate in rates.items()}
    bought = math.ceil(_exact((instances["_most"] or instances[""] or 0) * safety))
    gpus = None if point.gpus is None else bought * point.gpus
    ttft = min((slo.limit_s for slo in slos if slo.metric == "ttft" and slo.request_class is None), default=None)
    cost: dict[str, float] | None = None
    if gpu_hour is not None and gpus is not None:
        hour = gpu_hour * gpus
        cost = {"price_per_hour": gpu_hour, "hour": hour, "month": hour * _HOURS_A_MONTH}
        if tokens := peak_rps * (point.output_tokens or 0):
            cost["million_output_tokens_at_peak"] = hour / (tokens * HOUR_S) * 1e6
        if token_price is not None:
            cost["break_even_million_tokens_a_month"] = hour * _HOURS_A_MONTH / token_price
    return {
        **{f"instances{end}": number for end, number in instances.items()},
        "gpus": gpus,
        "utilisation_at_peak": peak_rps / (bought * point.usable_rps),
        "peak_rps": peak_rps,
        "safety": safety,
        **{"gpus_per_instance" if key == "gpus" else key: value for key, value in asdict(point).items()},
        "little": point.little,
        "consistent": point.consistent,
        "limits": asdict(limits(point, ttft)),
        "cost": cost,
    }


def _exact(value: float) -> float:
    """Without the last digits, in which 10 × 4 × 1.3 would be 52.00000000000001."""
    return round(value, 9)
