"""How a run's answers were streamed, and which latencies it has for that reason, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.axes import CONCURRENCY
from bench.errors import count_text
from bench.parse.stream import ONE_EACH, long_wait
from bench.runs.request import INEXACT

# what the difference of the clients' and the engines' TTFT shows: not which of the two it is
_QUEUED = (
    "requests waited {wait:.3g} s on average before they reached the engine, longer than at the load where they reached it fastest: a "
    "gateway or the API server queues them, and TTFT and E2E include that wait"
)
_LATE = 0.05  # share of E2E above which it matters that requests of a closed loop leave late


def stream_notes(run: Mapping[str, Any]) -> Iterator[str]:
    """What a reader of a run's latencies should know of its streams and of the wait before the engine; nothing where each token has a
    chunk of its own, and nothing waited.
    """
    each, ok = run.get("tokens_per_chunk"), run["ok"]
    if wait := long_wait(run):
        yield _QUEUED.format(wait=wait)
    if run.get("held_back_answers") and run.get("ttft_n") == 0:
        yield (
            f"{count_text(run['held_back_answers'], 'answer', of=ok)} arrived all at once: something between the server and its client "
            "holds them back, so there is no TTFT, TPOT or ITL"
        )
    elif held := run.get("held_back_answers"):
        yield f"{count_text(held, 'answer', of=ok)} arrived all at once: their TTFT is the time of the whole answer"
    if run.get("ttft_n") != 0:
        yield from _of_chunks(each, run.get("tokens_per_arrival"), bool(run.get("spec_accepted_tokens")))
    if run.get("hidden_tokens"):
        yield (
            f"no chunk shows {count_text(run['hidden_tokens'], 'token')}, such as unstreamed reasoning or tokens without text; TPOT "
            "leaves them out"
        )
    if unknown := (run.get("unknown_streamed") or 0) - (run.get("uncounted_outputs") or 0):
        yield (
            f"in {count_text(unknown, 'answer', of=ok)} it is unknown how many tokens a chunk carries, so "
            f"{'there is' if run.get('tpot_n') == 0 else 'they have'} no TPOT: tokens may be hidden (reasoning, tokens without text), "
            "or uncounted (reasoning that the server leaves out, repeated text)"
            + ("; vLLM tells with --per-request-spec-decode-metrics summary" if run.get("spec_accepted_tokens") else "")
        )
    wrong = run.get("wrong_prompt_tokens") or run.get("wrong_output_tokens")
    if not wrong and (uncounted := run.get("uncounted_outputs")):  # else the verdict says it
        yield (
            f"the server counts no tokens in {count_text(uncounted, 'answer', of=ok)} (no readable usage): tokens/s "
            f"{'and TPOT are' if run.get('tpot_n') == 0 else 'are'} not known"
        )
    yield from _of_requests(run)


def _of_chunks(each: float | None, at_once: float | None, speculated: bool) -> Iterator[str]:
    """What tokens a chunk, and a moment, mean for TPOT, ITL and TTFT. Args: speculated: whether drafted tokens were accepted."""
    if each is not None and each > ONE_EACH:
        yield f"a chunk carries {each:.3g} tokens on average: TPOT counts the tokens after the first chunk, and there is no ITL"
    elif each is not None and each < 1 / ONE_EACH:
        yield f"a chunk carries {each:.2g} tokens on average: there is no ITL"
    elif at_once is not None and at_once > ONE_EACH:
        why = "accepted drafts and the model's own" if speculated else "each in its own chunk, as something gathers them"
        after = "TPOT counts the tokens after the first arrival, and there is no ITL"
        yield f"{at_once:.3g} tokens arrive together on average, {why}: {after}"


def _of_requests(run: Mapping[str, Any]) -> Iterator[str]:
    """What is not as the load says, or as another client reads it."""
    late, lasts = run.get("client_schedule_delay_p50_s"), run.get("e2e_p50_s")
    if run.get("axis") == CONCURRENCY and late and lasts and late > _LATE * lasts:
        yield f"requests left {late:.3g} s late, as connections take that long to open: fewer were in flight than the load says"
    for name in (run.get("requests_omit") or "").split(", "):
        # Natural answers go without `ignore_eos` anyway.
        if name and not (name == "ignore_eos" and run.get("answers") == "natural"):
            yield f"requests leave out {name}: {INEXACT[name]}"
    if short := run.get("short_answers"):
        lengths = f"{run['counted_output_tokens']:.4g} tokens on average, of {run['asked_output_tokens']:.4g} asked for"
        yield f"the model ended {count_text(short, 'answer', of=run['ok'])} early: {lengths}"
    if run.get("sdk_differs"):
        yield f"the openai SDK reads an answer differently: {run['sdk_differs']}"
