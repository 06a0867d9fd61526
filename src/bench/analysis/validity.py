"""Whether a run can be trusted, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.study.config import Thresholds

__all__ = ["Verdict", "verdict"]

_FULL = 0.95  # of the KV cache in use: then hardly a block is left that holds only what was cached


@dataclass(frozen=True)
class Verdict:
    """Why a run cannot be trusted; empty lists where it can.

    Attributes:
        content: reasons against all that it says: other requests were served than were asked for, or the server's account of them
            is missing.
        timing: reasons against its latencies and throughput alone: the client was late. What the server counted still holds.
    """

    content: list[str]
    timing: list[str]

    @property
    def reasons(self) -> list[str]:
        """All reasons."""
        return self.content + self.timing


def verdict(run: Mapping[str, Any], thresholds: Thresholds) -> Verdict:
    """The verdict on a run, each reason with its figure.

    Args:
        run: one run's summary. What it does not hold, or holds as null, was not measured, and is no fault.
    """
    content: list[str] = []
    timing: list[str] = []

    def over(reasons: list[str], key: str, limit: float, what: str) -> None:
        value = run.get(key)
        if value is not None and value > limit:
            reasons.append(f"{what} {value:.3g} s, over {limit:g} s")

    failed = run["failed"] / run["requests"] if run["requests"] else 1.0
    if failed > thresholds.failed_share:
        kinds = ", ".join(f"{v} {k.removeprefix('outcome_')}" for k, v in run.items() if k.startswith("outcome_") and v)
        content.append(f"{run['failed']} of {run['requests']} requests failed ({kinds})")
    for key, what in (("wrong_prompt_tokens", "prompt"), ("wrong_output_tokens", "output")):
        if run[key]:
            content.append(f"{run[key]} requests had another {what} length than asked for")
    over(timing, "client_loop_lag_p99_s", thresholds.loop_lag_p99_s, "the client's event loop was late: P99")
    over(timing, "client_loop_lag_max_s", thresholds.loop_lag_max_s, "the client's event loop stood still for")
    if run["arrival"] == "burst":
        over(timing, "client_send_spread_s", thresholds.send_spread_s, "the burst took too long to leave:")
    if run["axis"] != "concurrency":
        over(timing, "client_schedule_delay_p99_s", thresholds.schedule_delay_p99_s, "requests left late: P99 of the delay")
    over(timing, "client_clock_skew_s", thresholds.clock_skew_s, "the clocks of our processes differ by")
    timing += _cores(run, thresholds)
    over(content, "scrape_gap_max_s", thresholds.scrape_gap_s, "no scrape for")
    if run.get("scraped") is False:
        content.append("no scrape succeeded")
    share = run.get("scrape_share")
    if share is not None and share < thresholds.scrape_share:
        content.append(f"only {share:.0%} of the scrapes due during the load came, under {thresholds.scrape_share:.0%}")
    if run.get("scraped_before") is False:
        content.append("no scrape came before the load: what the server counted until the first one is lost")
    if run.get("scraped_after") is False:
        content.append("no scrape came after the load: what the server counted since the last one is lost")
    if run["metrics_missing"]:
        content.append(f"the exposition lacks {'; '.join(run['metrics_missing'])}")
    if run.get("counters_fell"):
        content.append(
            f"the server's counters fell back ({', '.join(run['counters_fell'])}): it was started again, or another one answered"
        )
    content += _cache(run, thresholds)
    content += _in_flight(run, thresholds)
    return Verdict(content, timing)


def _cores(run: Mapping[str, Any], thresholds: Thresholds) -> list[str]:
    """Whether the client lacked a core, or others took them."""
    client, others = run.get("client_cpu_share"), run.get("host_other_share")
    reasons = []
    if client is not None and client > thresholds.client_cpu_share:
        reasons.append(
            f"the client was the limit: {client:.0%} of a core in a load process, over {thresholds.client_cpu_share:.0%}"
        )
    if others is not None and others > thresholds.other_share:
        reasons.append(f"other processes took {others:.0%} of the cores' time, over {thresholds.other_share:.0%}")
    return reasons


def _cache(run: Mapping[str, Any], thresholds: Thresholds) -> list[str]:
    """What is wrong with the prefix cache's hits: any where the workload implies none, or a rate far from the implied one.

    Too few are the server's own doing where its KV cache was full: what was cached had to go, and that is what overload looks like.
    """
    rate, expected = run.get("prefix_hit_rate"), run.get("prefix_hit_rate_expected") or 0.0
    if not expected and run.get("prefix_hits"):
        return [f"{run['prefix_hits']:.0f} tokens came from the prefix cache, where none should"]
    evicted = rate is not None and rate < expected and (run.get("kv_usage_peak") or 0.0) >= _FULL
    if rate is not None and abs(rate - expected) > thresholds.prefix_hit_error and not evicted:
        return [f"the prefix cache served {rate:.1%} of the prompts' tokens, where the workload implies {expected:.1%}"]
    return []


def _in_flight(run: Mapping[str, Any], thresholds: Thresholds) -> list[str]:
    """Whether the server had other requests too, or never had as many as were sent.

    The server's gauges lag by a step, which in a short run of long steps takes much from its mean, but little from its maximum.
    """
    mine, its = run.get("client_in_flight_mean"), run.get("server_in_flight_mean")
    if mine is not None and its is not None and its - mine > max(1.0, thresholds.in_flight_error * mine):
        return [f"the server had {its:.1f} requests in flight in the mean, the client {mine:.1f}: others use it too"]
    mine, its = run.get("client_in_flight_max"), run.get("server_in_flight_max")
    if mine is not None and its is not None and mine - its > max(1.0, thresholds.in_flight_error * mine):
        return [
            f"the server never had more than {its:.0f} requests in flight, the client {mine:.0f}: something holds them back"
        ]
    return []
