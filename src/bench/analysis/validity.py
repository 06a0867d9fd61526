"""Which parts of a run can be trusted, and why not. What the server fails to do under load is a result, not a reason."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import polars as pl

from bench.analysis.workers import worker_verdicts
from bench.axes import AXES
from bench.errors import BenchError, shown
from bench.parse.drift import Drift, RoundPart
from bench.study.config import Thresholds

Part = Literal["load", "content", "client", "telemetry", "machine"]
PARTS: tuple[Part, ...] = ("load", "content", "client", "telemetry", "machine")
Check = Literal[
    "burst_spread",
    "schedule_delay",
    "other_requests",
    "other_tokens",
    "held_back",
    "nothing_sent",
    "unreachable",
    "refused",
    "none_answered",
    "not_counted",
    "prompt_lengths",
    "output_lengths",
    "cached_tokens",
    "hit_rate",
    "lru_hits",
    "loop_lag",
    "loop_stall",
    "clock_skew",
    "client_cpu",
    "other_processes",
    "clock_step",
    "drift",
    "worker_silent",
    "worker_restarted",
    "scrape_gap",
    "never_scraped",
    "scrape_share",
    "not_scraped_before",
    "not_scraped_after",
    "metrics_missing",
    "counters_fell",
    "tokens_not_counted",
]
# Checks that the run would fail again; the others come and go with what else a machine does.
LASTING: frozenset[Check] = frozenset(
    {
        "held_back",
        "nothing_sent",
        "refused",
        "none_answered",
        "not_counted",
        "prompt_lengths",
        "output_lengths",
        "cached_tokens",
        "hit_rate",
        "lru_hits",
        "client_cpu",
        "never_scraped",
        "metrics_missing",
        "tokens_not_counted",
    }
)
_TIMES: tuple[Part, ...] = ("load", "content", "client", "machine")
_COUNTS: tuple[Part, ...] = ("load", "content", "telemetry")
# largest step of the wall clock against the clock of the stamps (s); convention: corrections move both, only a suspension or a set
# time moves one
_CLOCK_STEP_S = 1.0
_FULL = 0.95  # KV usage from which hardly a block is left that holds only what was cached; convention
# cached tokens a request where a cache shares single tokens, as llama.cpp's slots do: prompts of few ids begin alike now and then,
# and a cache of blocks has hits of a block or none; convention
_BY_CHANCE = 0.05
_OVERLOAD = {"http_408", "http_425", "http_429"}  # the client errors by which servers and proxies shed load
# Failures by which a server that is overloaded, or what stands before it, may answer every request.
_OF_LOAD = {*_OVERLOAD, "http_503", "http_504", "timeout", "disconnect", "unreachable"}

# Of a reason's code: its numbers, and what the names of outcomes begin with.
_NUMBERS = ("value", "limit", "share", "counted")
_OUTCOME = "outcome_"


@dataclass(frozen=True)
class Reason:
    """One check that a run did not pass.

    Attributes:
        part: what it speaks against. check: which one it is.
        value: what was found (s, requests, tokens, or a share). limit: the threshold, or what was expected.
        share: of the requests in flight that the server lacked. names: metrics that are missing, counters that fell, workers,
            or what is wrong with scrapes.
        outcomes: requests that were refused, by their outcome. drift: of a machine that was slower in one round than in the others.
        counted: mean length by the server's count (tokens).
    """

    part: Part
    check: Check
    value: float | None = None
    limit: float | None = None
    share: float | None = None
    names: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    drift: Drift | None = None
    counted: float | None = None

    @property
    def code(self) -> str:
        """What the summary table holds of it, such as `client.loop_lag value=0.2 limit=0.1`."""
        found = {name: getattr(self, name) for name in _NUMBERS}
        found |= {f"{_OUTCOME}{kind}": n for kind, n in self.outcomes.items()}
        if self.drift:
            at, other = self.drift.at, self.drift.other
            found |= {"log": self.drift.log, "usual": self.drift.usual, "round": at.round, "since": at.since}
            found |= {"other_round": other.round, "other_since": other.since} if other else {}
        said = [("name", name) for name in self.names] + [(name, value) for name, value in found.items() if value is not None]
        return shlex.join([f"{self.part}.{self.check}", *(f"{name}={value}" for name, value in said)])

    @classmethod
    def of(cls, code: str) -> Reason:
        """The reason with this code; a BenchError where there is none."""
        try:
            return cls._of(code)
        except (ValueError, KeyError):
            raise BenchError(
                f"the table of runs has the reason {shown(code)}, which this version does not know: another one wrote it. "
                "Make it again from its runs, with `make figures` or `bench figures`."
            ) from None

    @classmethod
    def _of(cls, code: str) -> Reason:
        place, *pairs = shlex.split(code)
        part, _, check = place.partition(".")
        if part not in PARTS or check not in get_args(Check):
            raise ValueError(code)
        said = [(name, value) for name, _, value in (pair.partition("=") for pair in pairs)]
        found = dict(said)
        drift = None
        if "round" in found:
            other = RoundPart(int(found["other_round"]), found.get("other_since")) if "other_round" in found else None
            at = RoundPart(int(found["round"]), found.get("since"))
            drift = Drift(at, other, float(found["log"]), float(found["usual"]))
        return cls(
            part,
            cast("Check", check),
            names=tuple(value for name, value in said if name == "name"),
            outcomes={name.removeprefix(_OUTCOME): int(n) for name, n in said if name.startswith(_OUTCOME)},
            drift=drift,
            **{name: float(found[name]) for name in _NUMBERS if name in found},
        )


@dataclass(frozen=True)
class Verdict:
    """What of a run can be trusted.

    Attributes:
        found: the checks that it did not pass.
        failed, requests: how many failed, of all that were sent. A failure is the server's answer to the load, and makes nothing
            invalid.
    """

    found: tuple[Reason, ...]
    failed: int = 0
    requests: int = 0

    @property
    def failed_share(self) -> float | None:
        """Requests that failed, as a share of all (0–1); None where none was sent."""
        return self.failed / self.requests if self.requests else None

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
    found = (
        *_load(run, kinds, thresholds),
        *_content(run, kinds, thresholds),
        *_client(run, thresholds),
        *_telemetry(run, thresholds),
        *_machine(run, thresholds),
    )
    return Verdict((*found, *further), run["failed"], run["requests"])


def _over(part: Part, check: Check, value: float | None, limit: float) -> Iterator[Reason]:
    if value is not None and value > limit:
        yield Reason(part, check, value, limit)


def _load(run: Mapping[str, Any], kinds: Mapping[str, int], thresholds: Thresholds) -> Iterator[Reason]:
    if run["arrival"] == "burst":
        yield from _over("load", "burst_spread", run.get("client_send_spread_s"), thresholds.send_spread_s)
    if not AXES[run["axis"]].held:
        yield from _over("load", "schedule_delay", run.get("client_schedule_delay_p99_s"), thresholds.schedule_delay_p99_s)
    yield from _others(run, kinds, thresholds)
    missing, share = run.get("held_back_requests"), run.get("held_back_share")
    if missing is not None and share is not None and missing > 1 and share > thresholds.in_flight_error:
        yield Reason("load", "held_back", missing, share=share)


def _others(run: Mapping[str, Any], kinds: Mapping[str, int], thresholds: Thresholds) -> Iterator[Reason]:
    """Whether somebody else used the server: by the requests that it had, or by the tokens that it made.

    Requests show it where scrapes came during the load, tokens also between two scrapes. A server may go on with a request that the
    client has given up, or lost: then neither shows anything.
    """
    if kinds.keys() & {"timeout", "disconnect", "truncated"}:
        return
    mine, its = run.get("client_in_flight_mean"), run.get("server_in_flight_mean")
    if mine is not None and its is not None and its - mine > max(1.0, thresholds.in_flight_error * mine):
        yield Reason("load", "other_requests", its, mine)
        return
    made, most = run.get("server_generation_tokens"), run.get("server_tokens_most")
    one = run.get("asked_output_tokens") or 0.0  # one more request, such as a health check, is no load
    if made is not None and most is not None and made - most > max(one, thresholds.token_count_error * most):
        yield Reason("load", "other_tokens", made, most)


def _content(run: Mapping[str, Any], kinds: Mapping[str, int], thresholds: Thresholds) -> Iterator[Reason]:
    refused = {kind: n for kind, n in kinds.items() if kind.startswith(("http_3", "http_4")) and kind not in _OVERLOAD}
    if not run["requests"]:
        yield Reason("content", "nothing_sent")
    elif kinds.get("unreachable") == run["requests"]:
        yield Reason("content", "unreachable")
    elif refused:
        # A wrong model, key, path or length is refused under any load.
        yield Reason("content", "refused", sum(refused.values()), run["requests"], outcomes=refused)
    elif run["failed"] == run["requests"] and 2 * sum(n for kind, n in kinds.items() if kind not in _OF_LOAD) > run["failed"]:
        yield Reason("content", "none_answered", run["failed"], outcomes=kinds)
    uncounted = run.get("uncounted_answers") or 0
    # Prompts of a file with natural answers have no length that could be wrong: uncounted, only tokens/s and TPOT are unknown.
    if uncounted and (run["wrong_prompt_tokens"] or run["wrong_output_tokens"]):
        yield Reason("content", "not_counted", uncounted)
    lengths: tuple[tuple[str, Check], ...] = (("prompt", "prompt_lengths"), ("output", "output_lengths"))
    for part, check in lengths:
        if run[f"wrong_{part}_tokens"] > uncounted:
            counted, asked = run.get(f"counted_{part}_tokens"), run.get(f"asked_{part}_tokens")
            yield Reason("content", check, run[f"wrong_{part}_tokens"], asked, counted=counted)
    yield from _cache(run, thresholds)


def _cache(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[Reason]:
    """What is wrong with the prefix cache's hits: more than by chance where the workload implies none, or a rate
    far from the implied one. What the server adds to each prompt, as a chat's template does, may come from the cache or not.

    Too few are the server's own doing where what was cached had to go: as many as a cache of its size serves are enough, and where that
    is not known, none is too few with a KV cache that was full.
    """
    if run.get("prefix_hit_rate_expected", 0.0) is None:
        return  # several engines have a cache each, or some compute prompts and others answer
    counted = run.get("prefix_hit_rate")
    rate, expected = (
        run.get("prefix_hit_rate_answers") if counted is None else counted,
        run.get("prefix_hit_rate_expected") or 0.0,
    )
    lru = run.get("prefix_hit_rate_lru")
    least = expected if lru is None else min(expected, lru)
    evicted = rate is not None and rate < least and lru is None and (run.get("kv_usage_peak") or 0.0) >= _FULL
    by_chance = _BY_CHANCE * run["requests"]
    template = float(run.get("template_tokens") or 0)
    most = template / run["prompt_tokens"] if template and run.get("prompt_tokens") else 0.0
    if not expected and (run.get("prefix_hits") or 0.0) > by_chance + template * run["requests"]:
        yield Reason("content", "cached_tokens", run["prefix_hits"], template * run["requests"])
    elif rate is not None and not evicted:
        slack = thresholds.prefix_hit_error
        if not least - slack <= rate <= expected + most + slack:
            few = lru is not None and rate < least
            yield Reason("content", "lru_hits" if few else "hit_rate", rate, least if few else expected)


def _client(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[Reason]:
    yield from _over("client", "loop_lag", run.get("client_loop_lag_p99_s"), thresholds.loop_lag_p99_s)
    yield from _over("client", "loop_stall", run.get("client_loop_lag_max_s"), thresholds.loop_lag_max_s)
    yield from _over("client", "clock_skew", run.get("client_clock_skew_s"), thresholds.clock_skew_s)
    yield from _over("client", "client_cpu", run.get("client_cpu_share"), thresholds.client_cpu_share)


def _machine(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[Reason]:
    yield from _over("machine", "other_processes", run.get("host_other_share"), thresholds.other_share)
    step = run.get("host_clock_step_s")
    if step is not None and abs(step) > _CLOCK_STEP_S:
        yield Reason("machine", "clock_step", step, _CLOCK_STEP_S)


def _telemetry(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[Reason]:
    apart = worker_verdicts(run.get("workers") or (), thresholds.scrape_gap_s)
    silent, restarted = ([each for each in apart if each.check == check] for check in ("silent", "restarted"))
    if silent:  # a fleet has no scrape that one worker lacks
        gaps = [each.value for each in silent]
        longest = None if None in gaps else max(map(float, gaps))  # type: ignore[arg-type]
        yield Reason(
            "telemetry", "worker_silent", longest, thresholds.scrape_gap_s, names=tuple(each.worker for each in silent)
        )
    else:
        yield from _over("telemetry", "scrape_gap", run.get("scrape_gap_max_s"), thresholds.scrape_gap_s)
    if restarted:
        yield Reason("telemetry", "worker_restarted", names=tuple(each.worker for each in restarted))
    error = (run["scrape_error"],) if run.get("scrape_error") else ()
    if run.get("scraped") is False and not silent:
        yield Reason("telemetry", "never_scraped", names=error)
    share = run.get("scrape_share")
    if share is not None and share < thresholds.scrape_share and not silent:
        yield Reason("telemetry", "scrape_share", share, thresholds.scrape_share, names=error)
    if run.get("scraped_before") is False:
        yield Reason("telemetry", "not_scraped_before")
    if run.get("scraped_after") is False:
        yield Reason("telemetry", "not_scraped_after")
    if run["metrics_missing"]:
        yield Reason("telemetry", "metrics_missing", names=tuple(run["metrics_missing"]))
    if run.get("counters_fell") and not restarted:
        yield Reason("telemetry", "counters_fell", names=tuple(run["counters_fell"]))
    made, least = run.get("server_generation_tokens"), run.get("server_tokens_least")
    if made is not None and least is not None and made < (1 - thresholds.token_count_error) * least:
        yield Reason("telemetry", "tokens_not_counted", made, least)
