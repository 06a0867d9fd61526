"""How many instances a rate of requests takes, were they as fast as bandwidth and FLOP/s allow, or a share of that."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from bench.models.catalogue import Accelerator
from bench.models.geometry import Geometry
from bench.servers.plan import Demand, Setting, placed_on, plan

# share of both ceilings that a server reaches; measured: docs/h200/index.md
EFFICIENCY = 0.57
EFFICIENCY_SOURCE = (
    "docs/h200/index.md, measured 2026-11-27 with vLLM 0.26 on an H200: the lowest of 57 and 58 % of the prefill and 63 and 71 % of "
    "the decode ceiling, of models of 7 and 14 B; of 1.5 B it was 6 and 21 %"
)
PLANNED = ("ttft", "tpot", "e2e")  # latencies that a plan knows


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts or answers, lognormal.

    Attributes:
        median: tokens. sigma: standard deviation of their logarithm; 0: all alike.
    """

    median: float
    sigma: float = 0.0

    @classmethod
    def of(cls, points: Mapping[float, float]) -> Lengths:
        """Those with these percentiles: share of the requests (0–1) → tokens; one, or two that rise.

        Raises:
            ValueError: they do not rise, or are not one or two.
        """
        (first, low), *others = sorted(points.items())
        if not others:
            return cls(low)
        ((second, high),) = others
        one, two = (NormalDist().inv_cdf(share) for share in (first, second))
        if high < low:
            raise ValueError("a higher percentile has fewer tokens")
        sigma = math.log(high / low) / (two - one)
        return cls(low * math.exp(-sigma * one), sigma)

    @property
    def mean(self) -> float:
        """Tokens in the mean."""
        return self.median * math.exp(self.sigma**2 / 2)

    def at(self, share: float) -> float:
        """Tokens that so many of the requests do not exceed (0–1)."""
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(share)) if self.sigma else self.median


def needed(
    geometry: Geometry,
    device: Accelerator,
    setting: Setting,
    prompt: Lengths,
    output: Lengths,
    *,
    rate: float,
    limits: Sequence[tuple[str, float, float]] = (),
    efficiency: float = 1.0,
) -> dict[str, Any]:
    """What `rate` requests/s take of instances of `setting.tensor_parallel` devices, and what one instance does then.

    With n requests in flight a step takes s(n) = n ÷ decode(n), and between steps prompts are computed: a request takes
    P ÷ prefill + O · s(n) ÷ n of the instance's time. Its reciprocal is the rate that n sustain; TPOT = s(n) + n · P ÷ (O · prefill).
    n is the most that the KV cache and `max_num_seqs` hold and the limits allow; TTFT has no queue in it.

    Args:
        limits: latency (in `PLANNED`), share of the requests that have to be within it (0–1), seconds. efficiency: share of
            both ceilings that is reached (0–1).

    Returns:
        `in_flight`, `requests_per_s`, `ttft_s` and `tpot_s` of an instance, `instances`, `gpus`; all null where `why` says why not.
    """
    nothing = dict.fromkeys(("in_flight", "requests_per_s", "ttft_s", "tpot_s", "instances", "gpus"))
    demand = Demand(round(prompt.mean), round(output.mean))
    planned = plan(geometry, device, demand, setting)
    held = planned["predicted_saturation"]
    if held is None or held < 1:
        return {**nothing, "why": planned["why"]}
    roofline = placed_on(geometry, device, setting).roofline
    prefill = efficiency * roofline.prefill(demand.prompt)

    def step(count: int) -> float:
        return count / (efficiency * roofline.decode(count, demand.prompt + demand.output / 2))

    def tpot(count: int) -> float:
        return step(count) + count * demand.prompt / (demand.output * prefill)

    def first(share: float) -> float:
        return roofline.first_token(round(prompt.at(share))) / efficiency

    latencies: Mapping[str, Callable[[int, float], float]] = {
        "ttft": lambda count, share: first(share) + (step(count) if count > 1 else 0.0),
        "tpot": lambda count, _: tpot(count),
        "e2e": lambda count, share: first(share) + output.at(share) * tpot(count),
    }

    def missed(count: int) -> bool:
        return any(latencies[latency](count, share) > limit for latency, share, limit in limits)

    most = bisect_left(range(1, 1 + min(int(held), setting.max_num_seqs)), x=True, key=missed)
    if not most:
        latency, share, limit = next(each for each in limits if latencies[each[0]](1, each[1]) > each[2])
        least = latencies[latency](1, share)
        return {
            **nothing,
            "why": f"one request alone takes {1000 * least:.3g} ms of the {1000 * limit:g} that {latency.upper()} may take",
        }
    each = 1 / (demand.prompt / prefill + demand.output * step(most) / most)
    instances = math.ceil(round(rate / each, 9))
    return {
        "in_flight": most,
        "requests_per_s": each,
        "ttft_s": latencies["ttft"](most, 0.5),
        "tpot_s": tpot(most),
        "instances": instances,
        "gpus": instances * setting.tensor_parallel,
        "why": None,
    }
