"""What lies between a run's clients and its engines, such as a gateway: whether it queues, buffers or repeats requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from bench.analysis.workers import prefilling
from bench.parse.stream import ONE_EACH, engine_is_ahead

_SAME = 0.01  # share by which client and engines may differ in the number of requests whose TTFT they average; convention
LEAST_WAIT_S = 0.05  # shortest wait before the engines that is named (s); tuned: benchmarks.fronts
# share of the clients' mean TTFT or E2E from which what lies between is named; tuned: benchmarks.fronts, above the 16 % that an honest
# API server adds to a burst of 400 (docs/h200)
WAIT_SHARE = 0.25
_FEWEST = 1  # further requests that prove nothing, such as a health check; convention
FEW_FURTHER = 0.005  # share of the requests sent that further ones must exceed; convention
_ALIKE = 0.25  # share by which the mean prompt of further requests may differ from the load's; tuned: benchmarks.fronts

FrontKind = Literal["queues", "buffers", "gathers", "repeats", "repeats_or_others"]


@dataclass(frozen=True)
class Front:
    """One thing that what lies between clients and engines did to a run's requests.

    Attributes:
        kind: `queues`: it lets requests wait. `buffers`: it passes whole answers on. `gathers`: it passes several tokens on together.
            `repeats`: it sends requests again, or to several engines. `repeats_or_others`: that, or others sent requests like these.
        wait_s: `queues`: mean wait of a request, beyond the way's own time. `buffers`: by how much later than the engine made it a
            client gets its first token, in the mean (s).
        waiting: `queues`: requests that wait there, in the mean (Little's law: rate × wait).
        requests: `buffers`: answers. `repeats`: requests that the engines counted beyond those that were sent.
        tokens: `gathers`: that come together. every_s: `gathers`: in what time the engine makes one (s).
    """

    kind: FrontKind
    wait_s: float | None = None
    waiting: float | None = None
    requests: float | None = None
    tokens: float | None = None
    every_s: float | None = None


def front_wait() -> pl.Expr:
    """How long requests wait before they reach the engines, in the mean (s), of a summary table's rows.

    The clients' mean TTFT less the engines' is the way's own time and the wait. The way is the least difference of the runs with the
    same deployment, workload and arrival, so the wait is too short where something waits in all of them. Null where that is one load
    alone, where engine and client did not average the same requests, where first tokens come together with later ones, and where the
    engine makes tokens faster than clients get them. Then the API server is the limit (`front_end` of `bench.analysis.advice`).
    """
    same = (pl.col("server_ttft_n") - pl.col("ttft_n")).abs() <= _SAME * pl.col("ttft_n")
    alone = pl.max_horizontal("tokens_per_chunk", "tokens_per_arrival").fill_null(1.0) <= ONE_EACH
    longer = pl.when(same & alone & (pl.col("ttft_n") > 0)).then(pl.col("ttft_mean_s") - pl.col("server_ttft_mean_s"))
    curve = ("deployment", "workload", "arrival")
    loads = pl.when(longer.is_not_null()).then("level").drop_nulls().n_unique().over(curve)
    ahead = engine_is_ahead().fill_null(value=False)
    return pl.when((loads > 1) & ~ahead).then(longer - longer.min().over(curve))


def front(run: Mapping[str, Any]) -> list[Front]:
    """What lies between did to a run's requests, as far as client and engines show it. Args: run: a row of the summary table."""
    return [each for each in (_queue(run), _buffer(run), _gathered(run), *(_repeats(run) or ())) if each]


def unknown_fronts(run: Mapping[str, Any]) -> list[FrontKind]:
    """What cannot be known of a run: whether something queues, or repeats. Args: run: a row of the summary table."""
    found: list[FrontKind] = []
    if run.get("front_wait_s") is None:
        found.append("queues")
    if _repeats(run) is None:
        found.append("repeats")
    return found


def _counted(run: Mapping[str, Any]) -> float | None:
    """Requests that the engines counted; None where scrapes do not hold the whole load."""
    whole = False not in (run.get("scraped_before"), run.get("scraped_after"))
    return run.get("server_requests") if whole else None


def _queue(run: Mapping[str, Any]) -> Front | None:
    wait, ttft, rate = run.get("front_wait_s"), run.get("ttft_mean_s"), run.get("throughput_requests_per_s")
    if wait is None or ttft is None or wait <= max(LEAST_WAIT_S, WAIT_SHARE * ttft):
        return None
    return Front("queues", wait_s=wait, waiting=None if rate is None else rate * wait)


def _buffer(run: Mapping[str, Any]) -> Front | None:
    """Answers that came at one moment, though the engine had their first tokens long before."""
    answers, counted = run.get("held_back_answers"), run.get("server_ttft_n")
    if not answers or run.get("ttft_n") != 0 or counted is None or abs(counted - run["ok"]) > _SAME * run["ok"]:
        return None
    mean, first = run.get("e2e_mean_s"), run.get("server_ttft_mean_s")
    apart = run.get("server_itl_mean_s")  # an engine that makes all of an answer at once has none
    if mean is None or first is None or not apart or mean - first <= WAIT_SHARE * mean:
        return None
    return Front("buffers", wait_s=mean - first, requests=answers)


def _gathered(run: Mapping[str, Any]) -> Front | None:
    """Chunks of a token each that come together, though the engine makes one token after the other."""
    each, together, every = run.get("tokens_per_chunk"), run.get("tokens_per_arrival"), run.get("server_itl_mean_s")
    if run.get("ttft_n") == 0 or each is None or together is None or not every or run.get("spec_accepted_tokens"):
        return None
    return Front("gathers", tokens=together, every_s=every) if each <= ONE_EACH < together else None


def _repeats(run: Mapping[str, Any]) -> list[Front] | None:
    """Requests that the engines counted beyond those that were sent, with prompts like theirs; None where that is not known.

    Tries of one request follow one another: in the engines they take no longer, all together, than the client waited. Where they take
    longer, or where that is not known, they may be others' requests too. Of a request that failed, or that the client sent again,
    nobody knows whether the engines counted it, nor how much of its prompt, and some engines count a preempted prompt twice. Workers
    that prefill for others count each request once more.
    """
    counted, answered, sent = _counted(run), run["ok"], run["requests"] + (run.get("client_resent") or 0)
    if counted is None or prefilling(run):
        return None
    few = max(_FEWEST, FEW_FURTHER * sent)
    if counted - answered <= few:
        return []
    further = counted - sent
    each, prompts = run.get("counted_prompt_tokens"), run.get("server_prompt_tokens")
    if further <= few or run["failed"] or run.get("preemptions") or not each or prompts is None:
        return None
    # Some engines leave out what their prefix cache served, which of a prompt that comes again is nearly all.
    hits = 0.0 if run.get("prefix_hit_rate_expected") else run.get("prefix_hits") or 0.0
    longer = [(tokens - each * answered) / further for tokens in (prompts, prompts + hits)]
    if all(abs(length - each) > _ALIKE * each for length in longer):
        return []
    inside, waited = run.get("server_e2e_mean_s"), run.get("e2e_mean_s")
    known = inside is not None and waited is not None
    one_by_one = known and inside * counted <= waited * answered  # type: ignore[operator]
    return [Front("repeats" if one_by_one else "repeats_or_others", requests=further)]
