"""Whether a run is valid: every check, what it speaks against, and its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from bench.axes import AXES
from bench.errors import BenchError, count_text, shown, shown_share, was_were
from bench.parse.fleet import worker_verdicts
from bench.parse.server import FULL
from bench.runs.sentences import filled
from bench.study.config import Thresholds

Part = Literal["load", "content", "client", "telemetry", "machine"]
#: What is wrong where a part of a run cannot be trusted.
PARTS: dict[Part, str] = {
    "load": "the load was not the one asked for",
    "content": "other requests were served than asked for",
    "client": "the load generator was late, starved or the limit itself",
    "telemetry": "the server's metrics are incomplete",
    "machine": "something else ran on the machine, or its speed changed",
}


@dataclass(frozen=True)
class Check:
    """A row of the table of checks.

    Attributes:
        part: what it speaks against. text: its sentence, with the numbers of a `Reason`, as `bench.runs.sentences` takes it.
        lasting: whether the run would fail it again; the others come and go with what else a machine does.
        column, limit: a column of the summary, and the threshold that it may not exceed; empty where more than that is asked.
    """

    part: Part
    text: str
    lasting: bool = False
    column: str = ""
    limit: str = ""


_COUNTED = "[ ({counted:.4g} tokens on average, not {limit:.4g})]"
_OVER = "{value:.3g} s, over {limit:g} s"
CHECKS = {
    "burst_spread": Check(
        "load", f"the burst took too long to leave: {_OVER}", column="client_send_spread_s", limit="send_spread_s"
    ),
    "schedule_delay": Check(
        "load",
        f"requests left late: P99 of the delay {_OVER}",
        column="client_schedule_delay_p99_s",
        limit="client_delay_p99_s",
    ),
    "other_requests": Check(
        "load", "the server had {value:.1f} requests in flight on average, the client {limit:.1f}: others use it too"
    ),
    "other_tokens": Check("load", "the server made {value:.0f} tokens, the load at most {limit:.0f}: others use it too"),
    "held_back": Check(
        "load",
        "the server had {value:.0f} ({share:share}) fewer requests in flight than the client, at half of the scrapes or more: "
        "something holds them back",
        lasting=True,
    ),
    "nothing_sent": Check("content", "no request was sent", lasting=True),
    "unreachable": Check("content", "no request reached the server"),
    "refused": Check(
        "content", "refused for what they are: {value:.0f} of {limit:requests}[ ({kinds})][: {names}]", lasting=True
    ),
    "none_answered": Check("content", "every request failed, and not because of the load[ ({kinds})]", lasting=True),
    "not_counted": Check(
        "content",
        "in {value:requests} the server does not count the prompt's or the answer's tokens, so lengths cannot be checked",
        lasting=True,
    ),
    "prompt_lengths": Check("content", f"{{value:requests}} had another prompt length than asked for{_COUNTED}", lasting=True),
    "output_lengths": Check("content", f"{{value:requests}} had another output length than asked for{_COUNTED}", lasting=True),
    "cached_tokens": Check("content", "{value:.0f} tokens came from the prefix cache, where {most} should", lasting=True),
    "hit_rate": Check(
        "content",
        "the prefix cache served {value:share.1} of the prompts' tokens, where the workload implies {limit:share.1}",
        lasting=True,
    ),
    "lru_hits": Check(
        "content",
        "the prefix cache served {value:share.1} of the prompts' tokens, where one of its size serves {limit:share.1}",
        lasting=True,
    ),
    "loop_lag": Check(
        "client", f"the client's event loop was late: P99 {_OVER}", column="client_loop_lag_p99_s", limit="client_delay_p99_s"
    ),
    "loop_stall": Check(
        "client", f"the client's event loop stood still for {_OVER}", column="client_loop_lag_max_s", limit="loop_lag_max_s"
    ),
    "clock_skew": Check(
        "client", f"the clocks of our processes differ by {_OVER}", column="client_clock_skew_s", limit="clock_skew_s"
    ),
    "client_cpu": Check(
        "client",
        "the client was the limit: {value:share} of a core in a load process, over {limit:share}",
        lasting=True,
        column="client_cpu_share",
        limit="client_cpu_share",
    ),
    "worker_silent": Check("telemetry", f"no scrape of {{names}}[ for {_OVER}]"),
    "worker_restarted": Check("telemetry", "{names} started again during the run: what had been counted is lost"),
    "scrape_gap": Check("telemetry", f"no scrape for {_OVER}"),
    "never_scraped": Check("telemetry", "no scrape succeeded[: {names}]", lasting=True),
    "scrape_share": Check(
        "telemetry", "only {value:share} of the scrapes due during the load came, under {limit:share}[: {names}]"
    ),
    "not_scraped_before": Check(
        "telemetry", "no scrape came before the load: what the server counted until the first one is lost"
    ),
    "not_scraped_after": Check(
        "telemetry", "no scrape came after the load: what the server counted since the last one is lost"
    ),
    "metrics_missing": Check("telemetry", "the exposition lacks {names}", lasting=True),
    "counters_fell": Check(
        "telemetry", "the server's counters fell back ({names}): it was started again, or another one answered"
    ),
    "tokens_not_counted": Check(
        "telemetry",
        "the metrics count {value:.0f} generated tokens, the answers {limit:.0f} or more: they are another server's, one of "
        "several replicas', or old",
        lasting=True,
    ),
    "other_processes": Check(
        "machine",
        "other processes took {value:share} of the cores' time, over {limit:share}",
        column="host_other_share",
        limit="other_share",
    ),
    "clock_step": Check(
        "machine",
        "the wall clock moved by {value:+.3g} s against the clock of the stamps: the machine was suspended, or its time set",
    ),
    "drift": Check("machine", "{names}"),
}
TIMES: tuple[Part, ...] = ("load", "content", "client", "machine")
_COUNTS: tuple[Part, ...] = ("load", "content", "telemetry")
# largest step of the wall clock against the clock of the stamps (s); convention: corrections move both, only a suspension or a set
# time moves one
_CLOCK_STEP_S = 1.0
# cached tokens a request where a cache shares single tokens, as llama.cpp's slots do: prompts of few ids begin alike now and then,
# and a cache of blocks has hits of a block or none; convention
_BY_CHANCE = 0.05
_OVERLOAD = {"http_408", "http_425", "http_429"}  # the client errors by which servers and proxies shed load
# Failures by which a server that is overloaded, or what stands before it, may answer every request.
_OF_LOAD = {*_OVERLOAD, "http_503", "http_504", "timeout", "disconnect", "unreachable"}


@dataclass(frozen=True)
class Reason:
    """One check that a run did not pass.

    Attributes:
        check: a key of `CHECKS`.
        value: what was found (s, requests, tokens, or a share). limit: the threshold, or what was expected.
        share: of the requests in flight that the server lacked. names: metrics that are missing, counters that fell, workers,
            what is wrong with scrapes, what the server said, or how a round differs from the others.
        outcomes: requests that were refused, by their outcome. counted: mean length by the server's count (tokens).
    """

    check: str
    value: float | None = None
    limit: float | None = None
    share: float | None = None
    names: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    counted: float | None = None

    @property
    def part(self) -> Part:
        """What it speaks against."""
        return CHECKS[self.check].part

    @property
    def code(self) -> str:
        """What the summary table holds of it, such as `client.loop_stall: the client's event loop stood still for 2 s, over 1 s`."""
        return f"{self.part}.{self.check}: {reason_text(self)}"


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
        return not set(self.faults) & set(TIMES)

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
    kinds = _outcomes(run)
    found = [
        *_limited(run, thresholds),
        *_others(run, kinds, thresholds),
        *_content(run, kinds),
        *_cache(run, thresholds),
        *_telemetry(run, thresholds),
        *further,
    ]
    order = list(CHECKS)
    return Verdict(tuple(sorted(found, key=lambda reason: order.index(reason.check))), run["failed"], run["requests"])


def _limited(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[Reason]:
    """The checks of one column against its threshold."""
    asked = {"burst_spread": run["arrival"] == "burst", "schedule_delay": not AXES[run["axis"]].held}
    for name, check in CHECKS.items():
        value = run.get(check.column) if check.column and asked.get(name, True) else None
        if value is not None and value > (limit := getattr(thresholds, check.limit)):
            yield Reason(name, value, limit)
    step = run.get("host_clock_step_s")
    if step is not None and abs(step) > _CLOCK_STEP_S:
        yield Reason("clock_step", step, _CLOCK_STEP_S)
    missing, share = run.get("held_back_requests"), run.get("held_back_share")
    if missing is not None and share is not None and missing > 1 and share > thresholds.count_error:
        yield Reason("held_back", missing, share=share)


def _others(run: Mapping[str, Any], kinds: Mapping[str, int], thresholds: Thresholds) -> Iterator[Reason]:
    """Whether somebody else used the server: by the requests that it had, or by the tokens that it made.

    Requests show it where scrapes came during the load, tokens also between two scrapes. A server may go on with a request that the
    client has given up, or lost: then neither shows anything.
    """
    if kinds.keys() & {"timeout", "disconnect", "truncated"}:
        return
    mine, its = run.get("client_in_flight_mean"), run.get("server_in_flight_mean")
    if mine is not None and its is not None and its - mine > max(1.0, thresholds.count_error * mine):
        yield Reason("other_requests", its, mine)
        return
    made, most = run.get("server_generation_tokens"), run.get("server_tokens_most")
    one = run.get("asked_output_tokens") or 0.0  # one more request, such as a health check, is no load
    if made is not None and most is not None and made - most > max(one, thresholds.count_error * most):
        yield Reason("other_tokens", made, most)


def _content(run: Mapping[str, Any], kinds: Mapping[str, int]) -> Iterator[Reason]:
    refused = {kind: n for kind, n in kinds.items() if kind.startswith(("http_3", "http_4")) and kind not in _OVERLOAD}
    if not run["requests"]:
        yield Reason("nothing_sent")
    elif kinds.get("unreachable") == run["requests"]:
        yield Reason("unreachable")
    elif refused:
        # A wrong model, key, path or length is refused under any load.
        said = (shown(run["failure_said"], 160),) if run.get("failure_said") else ()
        yield Reason("refused", sum(refused.values()), run["requests"], names=said, outcomes=refused)
    elif run["failed"] == run["requests"] and 2 * sum(n for kind, n in kinds.items() if kind not in _OF_LOAD) > run["failed"]:
        yield Reason("none_answered", run["failed"], outcomes=kinds)
    uncounted = run.get("uncounted_answers") or 0
    # Prompts of a file with natural answers have no length that could be wrong: uncounted, only tokens/s and TPOT are unknown.
    if uncounted and (run["wrong_prompt_tokens"] or run["wrong_output_tokens"]):
        yield Reason("not_counted", uncounted)
    for part in ("prompt", "output"):
        if (wrong := run[f"wrong_{part}_tokens"]) > uncounted:
            counted, asked = run.get(f"counted_{part}_tokens"), run.get(f"asked_{part}_tokens")
            yield Reason(f"{part}_lengths", wrong, asked, counted=counted)


def _cache(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[Reason]:
    """What is wrong with the prefix cache's hits: more than by chance where the workload implies none, or a rate
    far from the implied one. What the server adds to each prompt, as a chat's template does, may come from the cache or not.

    Too few are the server's own doing where what was cached had to go: as many as a cache of its size serves are enough, and where that
    is not known, none is too few with a KV cache that was full.
    """
    if run.get("prefix_hit_rate_expected", 0.0) is None:
        return  # several engines have a cache each, or some compute prompts and others answer
    rate, expected, lru = _hit_rate(run), run.get("prefix_hit_rate_expected") or 0.0, run.get("prefix_hit_rate_lru")
    least = expected if lru is None else min(expected, lru)
    evicted = rate is not None and rate < least and lru is None and (run.get("kv_usage_peak") or 0.0) >= FULL
    template = float(run.get("template_tokens") or 0)
    most = template / run["prompt_tokens"] if template and run.get("prompt_tokens") else 0.0
    slack = thresholds.prefix_hit_error
    if not expected and (run.get("prefix_hits") or 0.0) > (_BY_CHANCE + template) * run["requests"]:
        yield Reason("cached_tokens", run["prefix_hits"], template * run["requests"])
    elif rate is not None and not evicted and not least - slack <= rate <= expected + most + slack:
        few = lru is not None and rate < least
        yield Reason("lru_hits" if few else "hit_rate", rate, least if few else expected)


def _hit_rate(run: Mapping[str, Any]) -> float | None:
    """By the server's counters, or else by its answers."""
    counted = run.get("prefix_hit_rate")
    return run.get("prefix_hit_rate_answers") if counted is None else counted


def _telemetry(run: Mapping[str, Any], thresholds: Thresholds) -> Iterator[Reason]:
    apart = worker_verdicts(run.get("workers") or (), thresholds.scrape_gap_s)
    silent, restarted = (
        {each.worker: each.value for each in apart if each.check == check} for check in ("silent", "restarted")
    )
    gap, share = run.get("scrape_gap_max_s"), run.get("scrape_share")
    error = (run["scrape_error"],) if run.get("scrape_error") else ()
    if silent:  # a fleet has no scrape that one worker lacks
        longest = None if None in silent.values() else max(map(float, silent.values()))  # type: ignore[arg-type]
        yield Reason("worker_silent", longest, thresholds.scrape_gap_s, names=tuple(silent))
    else:
        if gap is not None and gap > thresholds.scrape_gap_s:
            yield Reason("scrape_gap", gap, thresholds.scrape_gap_s)
        if run.get("scraped") is False:
            yield Reason("never_scraped", names=error)
        if share is not None and share < thresholds.scrape_share:
            yield Reason("scrape_share", share, thresholds.scrape_share, names=error)
    named = {"worker_restarted": restarted, "metrics_missing": run["metrics_missing"]}
    named |= {} if restarted else {"counters_fell": run.get("counters_fell")}
    yield from (Reason(check, names=tuple(names)) for check, names in named.items() if names)
    yield from (Reason(f"not_{when}") for when in ("scraped_before", "scraped_after") if run.get(when) is False)
    made, least = run.get("server_generation_tokens"), run.get("server_tokens_least")
    if made is not None and least is not None and made < (1 - thresholds.count_error) * least:
        yield Reason("tokens_not_counted", made, least)


def reason_text(reason: Reason) -> str:
    """Why a part of a run cannot be trusted, with its number."""
    words = {
        "kinds": _kinds(reason.outcomes) or None,
        "most": f"at most {reason.limit:.0f}" if reason.limit else "none",
        "names": "; ".join(reason.names) or None,
    }
    return filled(CHECKS[reason.check].text, {**vars(reason), **words})


def read_code(code: str) -> tuple[str, str]:
    """The check and the sentence of a `Reason.code`.

    Raises:
        BenchError: there is no such check, or no sentence.
    """
    place, colon, text = code.partition(": ")
    check = place.partition(".")[2]
    if check not in CHECKS or not colon:
        raise BenchError(
            f"the table of runs has the reason {shown(code)}, which this version does not know: another one wrote it. "
            "Make it again from its runs, with `make figures` or `bench figures`."
        )
    return check, text


def reason_texts(codes: Iterable[str]) -> list[str]:
    """The reasons in a run's column `reasons`, in words."""
    return [read_code(code)[1] for code in codes]


def failures(run: Mapping[str, Any]) -> str | None:
    """How many requests failed, how, and what was said about it; None where none did. Args: run: its summary, or its row."""
    if not run["failed"]:
        return None
    how = f" ({listed})" if (listed := _kinds(_outcomes(run))) else ""
    said = f": {shown(run['failure_said'], 160)}" if run.get("failure_said") else ""
    return f"{count_text(run['failed'], 'request', of=run['requests'])} failed{how}{said}"


def retries(run: Mapping[str, Any]) -> str | None:
    """How many requests were sent again after they were refused, and how long that took; None if none was."""
    if not run.get("retried"):
        return None
    return (
        f"{count_text(run['retried'], 'request', of=run['requests'])} {was_were(run['retried'])} refused and sent again, after waits "
        f"of up to {run['retry_wait_max_s']:.3g} s"
    )


def hits(run: Mapping[str, Any]) -> str | None:
    """What the prefix cache served, beside what it could; None where nothing was to be served, or nothing says what was."""
    rate, expected, lru = _hit_rate(run), run.get("prefix_hit_rate_expected"), run.get("prefix_hit_rate_lru")
    if not expected or rate is None:
        return None
    size = "" if lru is None else f"; a cache of its size serves {shown_share(lru, 1)}"
    return f"{shown_share(rate, 1)} of the prompts' tokens; {shown_share(expected, 1)} had been sent before{size}"


def stopped(run: Mapping[str, Any]) -> str | None:
    """That a run ended early, and why; None where all of its requests were sent."""
    if run.get("stopped_at_s") is None:
        return None
    sent = f"{count_text(run['requests'], 'request', of=run['num_requests'])} sent"
    return f"stopped after {run['stopped_at_s']:.0f} s: requests pile up ({sent})"


def _outcomes(run: Mapping[str, Any]) -> dict[str, int]:
    """How many requests failed by each outcome."""
    return {key.removeprefix("outcome_"): n for key, n in run.items() if key.startswith("outcome_") and n}


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items())
