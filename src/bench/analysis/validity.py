"""What of a run can be trusted, and if something cannot, why. What the server fails to do under load is a result, and no reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from bench.records.columns import columns_of
from bench.study.config import Thresholds

__all__ = ["PARTS", "Part", "Reason", "Verdict", "invalid", "verdict"]

Part = Literal["load", "content", "client", "telemetry", "machine"]
PARTS: dict[Part, str] = {
    "load": "the load was not the one asked for",
    "content": "other requests were served than asked for",
    "client": "the load generator was late, starved or the limit itself",
    "telemetry": "the server's metrics are incomplete",
    "machine": "something else ran on the machine, or its speed changed",
}
_TIMES: tuple[Part, ...] = ("load", "content", "client", "machine")
_COUNTS: tuple[Part, ...] = ("load", "content", "telemetry")
_FULL = 0.95  # of the KV cache in use: then hardly a block is left that holds only what was cached
_OVERLOAD = {"http_408", "http_425", "http_429"}  # the client errors by which servers and proxies shed load


@dataclass(frozen=True)
class Reason:
    """One check that a run did not pass: the part that it speaks against, and what was found."""

    part: Part
    text: str


@dataclass(frozen=True)
class Verdict:
    """What of a run can be trusted.

    Attributes:
        found: the checks that it did not pass.
        failed_share: requests that failed, as a share of all (0–1); None where none was sent. failures: the same in words; None where
            none failed. A failure is the server's answer to the load: it makes nothing invalid.
    """

    found: tuple[Reason, ...]
    failed_share: float | None = 0.0
    failures: str | None = None

    @property
    def reasons(self) -> list[str]:
        """What was found, in words."""
        return [reason.text for reason in self.found]

    @property
    def faults(self) -> list[Part]:
        """The parts at fault, in the order of `PARTS`."""
        return [part for part in PARTS if any(reason.part == part for reason in self.found)]

    @property
    def valid(self) -> bool:
        """Whether latencies and throughput can be trusted."""
        return not set(self.faults) & set(_TIMES)

    @property
    def counts_valid(self) -> bool:
        """Whether what the server counted can be trusted (KV usage, queue, preemptions). A late client takes nothing from that."""
        return not set(self.faults) & set(_COUNTS)

    @property
    def telemetry_valid(self) -> bool:
        """Whether both can be trusted: what a cause rests on, which joins latencies with what the server counted."""
        return not self.found

    def columns(self) -> dict[str, Any]:
        """The verdict as columns of the summary table: those of its section `verdict`."""
        return {name: getattr(self, name) for name in columns_of("verdict")}


def invalid() -> pl.Expr:
    """Whether some part of a run's results cannot be trusted, by its `valid` and `counts_valid`."""
    return ~(pl.col("valid") & pl.col("counts_valid"))


def verdict(run: Mapping[str, Any], thresholds: Thresholds, further: Iterable[Reason] = ()) -> Verdict:
    """The verdict on a run, each reason with its number.

    Args:
        run: one run's summary. What it does not hold, or holds as null, was not measured, and is no fault.
        further: reasons that no run shows by itself, such as a machine that was slower in one round than in the others.
    """
    kinds = {key.removeprefix("outcome_"): n for key, n in run.items() if key.startswith("outcome_") and n}
    parts: dict[Part, Iterator[str]] = {
        "load": _load(run, kinds, thresholds),
        "content": _content(run, kinds, thresholds),
        "client": _client(run, thresholds),
        "telemetry": _telemetry(run, thresholds),
        "machine": _machine(run, thresholds),
    }
    found = [Reason(part, text) for part, texts in parts.items() for text in texts]
    return Verdict(
        (*found, *further),
        run["failed"] / run["requests"] if run["requests"] else None,
        f"{run['failed']} of {run['requests']} requests failed{_listed(kinds)}" if run["failed"] else None,
    )


def _listed(kinds: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{n} {kind}' for kind, n in kinds.items())})" if kinds else ""


def _over(run: Mapping[str, Any], key: str, limit: float, what: str) -> Iterator[str]:
    value = run.get(key)
    if value is not None and value > limit:
        yield f"{what} {value:.3g} s, over {limit:g} s"


def _load(run: Mapping[str, Any], kinds: Mapping[str, int], thresholds: Thresholds) -> Iterator[str]:
    if run["arrival"] == "burst":
        yield from _over(run, "client_send_spread_s", thresholds.send_spread_s, "the burst took too long to leave:")
    if run["axis"] != "concurrency":
        yield from _over(
            run, "client_schedule_delay_p99_s", thresholds.schedule_delay_p99_s, "requests left late: P99 of the delay"
        )
    yield from _in_flight(run, kinds, thresholds)


def _in_flight(run: Mapping[str, Any], kinds: Mapping[str, int], thresholds: Thresholds) -> Iterator[str]:
    """Whether the server had other requests too, or not all of those that the client had sent."""
    mine, its = run.get("client_in_flight_mean"), run.get("server_in_flight_mean")
    # A server may go on with a request that the client has given up, or lost.
    left = kinds.keys() & {"timeout", "disconnect", "truncated"}
    if not left and mine is not None and its is not None and its - mine > max(1.0, thresholds.in_flight_error * mine):
        yield f"the server had {its:.1f} requests in flight in the mean, the client {mine:.1f}: others use it too"
    missing, share = run.get("held_back_requests"), run.get("held_back_share")
    if missing is not None and share is not None and missing > 1 and share > thresholds.in_flight_error:
        yield (
            f"of the requests that the client had in flight the server lacked {missing:.3g} ({share:.0%}) at half of the scrapes or "
            "more: something holds them back"
        )


def _content(run: Mapping[str, Any], kinds: Mapping[str, int], thresholds: Thresholds) -> Iterator[str]:
    refused = {kind: n for kind, n in kinds.items() if kind.startswith("http_4") and kind not in _OVERLOAD}
    if not run["requests"]:
        yield "no request was sent"
    elif kinds.get("unreachable") == run["requests"]:
        yield "no request reached the server"
    elif refused:
        # A wrong model, key, path or length is refused under any load.
        yield f"{sum(refused.values())} of {run['requests']} requests were refused for what they are{_listed(refused)}"
    for key, what in (("wrong_prompt_tokens", "prompt"), ("wrong_output_tokens", "output")):
        if run[key]:
            yield f"{run[key]} requests had another {what} length than asked for"
    yield from _cache(run, thresholds)


def _cache(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[str]:
    """What is wrong with the prefix cache's hits: any where the workload implies none, or a rate far from the implied one.

    Too few are the server's own doing where its KV cache was full: what was cached had to go, and that is what overload looks like.
    """
    if run.get("prefix_hit_rate_expected", 0.0) is None:
        return  # several engines have a cache each
    rate, expected = run.get("prefix_hit_rate"), run.get("prefix_hit_rate_expected") or 0.0
    evicted = rate is not None and rate < expected and (run.get("kv_usage_peak") or 0.0) >= _FULL
    if not expected and run.get("prefix_hits"):
        yield f"{run['prefix_hits']:.0f} tokens came from the prefix cache, where none should"
    elif rate is not None and abs(rate - expected) > thresholds.prefix_hit_error and not evicted:
        yield f"the prefix cache served {rate:.1%} of the prompts' tokens, where the workload implies {expected:.1%}"


def _client(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[str]:
    yield from _over(run, "client_loop_lag_p99_s", thresholds.loop_lag_p99_s, "the client's event loop was late: P99")
    yield from _over(run, "client_loop_lag_max_s", thresholds.loop_lag_max_s, "the client's event loop stood still for")
    yield from _over(run, "client_clock_skew_s", thresholds.clock_skew_s, "the clocks of our processes differ by")
    share = run.get("client_cpu_share")
    if share is not None and share > thresholds.client_cpu_share:
        yield f"the client was the limit: {share:.0%} of a core in a load process, over {thresholds.client_cpu_share:.0%}"


def _machine(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[str]:
    others = run.get("host_other_share")
    if others is not None and others > thresholds.other_share:
        yield f"other processes took {others:.0%} of the cores' time, over {thresholds.other_share:.0%}"


def _telemetry(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[str]:
    yield from _over(run, "scrape_gap_max_s", thresholds.scrape_gap_s, "no scrape for")
    if run.get("scraped") is False:
        yield "no scrape succeeded"
    share = run.get("scrape_share")
    if share is not None and share < thresholds.scrape_share:
        yield f"only {share:.0%} of the scrapes due during the load came, under {thresholds.scrape_share:.0%}"
    if run.get("scraped_before") is False:
        yield "no scrape came before the load: what the server counted until the first one is lost"
    if run.get("scraped_after") is False:
        yield "no scrape came after the load: what the server counted since the last one is lost"
    if run["metrics_missing"]:
        yield f"the exposition lacks {'; '.join(run['metrics_missing'])}"
    if run.get("counters_fell"):
        yield f"the server's counters fell back ({', '.join(run['counters_fell'])}): it was started again, or another one answered"
