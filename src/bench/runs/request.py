"""`requests.jsonl`: one line a request; and how a session writes its requests, by what the server accepts and how it counts text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

# What Saturate sends to be exact, and a server may refuse. In the order in which it is left out where an answer does not say why.
Omissible = Literal["ignore_eos", "token_ids", "stream_options", "max_tokens", "temperature"]
OPTIONAL: tuple[Omissible, ...] = get_args(Omissible)
# What is not exact without each of them. `max_tokens` has another name of the same meaning.
INEXACT: dict[str, str] = {
    "token_ids": "prompts are text, whose lengths follow from the server's own counts",
    "ignore_eos": "answers may end before the length that was asked for",
    "stream_options": "the server counts tokens in a stream only if it does so unasked",
    "max_tokens": "the limit of an answer is called max_completion_tokens",
    "temperature": "the server samples as it does by default",
}
# factor by which tokens may be more than their chunks, or TPOT off, where nothing says how many were streamed: a token that spells no
# whole character may have no chunk; tuned: benchmarks.stream_truth
SURE = 1.1


@dataclass(frozen=True, kw_only=True)
class RequestForm:
    """How requests to one endpoint of a server are written.

    Attributes:
        omitted: what is not sent, names in `OPTIONAL`. Without `token_ids` prompts are text; without `max_tokens` the limit of an
            answer is called `max_completion_tokens`.
        letter_tokens, template_tokens: tokens of each letter of a prompt that is text, and of what the server adds to it.
        turn_tokens: tokens that it adds for each further turn of a chat: an answer and a user's message.
        counted: whether the server's own counts show these two; else each letter is taken for one token.
        sdk_differs: how the openai SDK reads an answer differently; None if it does not, or nothing was compared.
    """

    omitted: tuple[str, ...] = ()
    letter_tokens: int = 1
    template_tokens: int = 0
    turn_tokens: int = 0
    counted: bool = False
    sdk_differs: str | None = None

    def sends(self, name: Omissible) -> bool:
        """Whether it is sent."""
        return name not in self.omitted


Outcome = Literal["ok", "http_error", "stream_error", "truncated", "disconnect", "timeout"]


@dataclass(frozen=True)
class RequestRecord:
    """One line of `requests.jsonl`. Times are seconds since the run's start, on one monotonic clock; None where absent.

    Attributes:
        index: number of the request in its run. after: index of the request whose end let it go: the turn before it
            in its conversation, or the last one of those that it waited for.
        outcome: `ok`; `http_error`: a status other than 200; `stream_error`: an error inside an answer that began with 200, or a body
            that is not an answer; `truncated`: the answer ended before its last event; `disconnect`; `timeout`.
        error: the server's message, what is wrong with its answer (of an `ok` one, the counts that are none), or the system's message
            where the connection failed. status: the HTTP status.
        prompt_asked, output_asked: tokens of the prompt as sent, and tokens asked for; null of a prompt from a file, and of an answer
            that ends by itself.
        prompt_tokens, completion_tokens: as the server counted them (`usage`).
        cached_tokens: prompt tokens that its prefix cache served, where it reports them. reasoning_tokens: completion tokens that are
            reasoning, as the server counts them, else by its chunks where each is a token; None where neither shows it.
        scheduled_s, sent_s, headers_s, first_byte_s, first_token_s, first_output_s, last_token_s, end_s: the stamps;
            `first_output_s` is that of the first token that is not reasoning.
        ttft_s: first chunk that carries a token − sent; None without streaming. e2e_s: last token chunk − sent.
        token_times_s: arrival of each chunk that carries tokens.
        streamed_tokens, streamed_least: the most and the fewest tokens that the stream may have carried: the same where each chunk has
            one token or counts its own; else tokens may have been generated that no chunk carries. None where nothing is counted.
            first_tokens: how many of the most came at the first moment (1, but for answers that come in larger pieces); None likewise.
            arrivals: at how many moments tokens came; some pieces come together.
        draft_tokens, accepted_tokens: tokens that the server drafted for the answer, and how many of them the model accepted, where the
            answer carries them.
        finish_reason: why the answer ended, in the server's words. done: whether the stream ended with `[DONE]`.
        resent: how often it was sent again, as the server closed a connection that it had answered on before while the request was on
            its way; `sent_s` is the last time.
        retry_after_s: for how long the answer asked to wait before another try (`Retry-After`, seconds or a date). attempts: how often
            it was sent, where the workload honours that; `sent_s` is the first time then, and the answer is the last one. waited_s: for
            how long it was held back between them, together.
        request_class: its class; absent where the workload has none.
        answer: its text without reasoning, where the workload keeps answers (`keep_answers`); it and the next three are absent
            otherwise. request_digest: of the request's body but for the model's name: the same for the same question.
        prompt_place, prompt_digest: which of a file's prompts it is, as `line 3`, and a digest of that prompt as the file has it.
    """

    index: int
    after: int | None
    outcome: Outcome
    error: str | None
    status: int | None
    prompt_asked: int | None
    output_asked: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    scheduled_s: float | None
    sent_s: float | None
    headers_s: float | None
    first_byte_s: float | None
    first_token_s: float | None
    first_output_s: float | None
    last_token_s: float | None
    end_s: float | None
    ttft_s: float | None
    e2e_s: float | None
    token_times_s: list[float]
    streamed_tokens: int | None = None
    streamed_least: int | None = None
    first_tokens: float | None = 1.0
    arrivals: int = 0
    finish_reason: str | None = None
    done: bool = True
    resent: int = 0
    retry_after_s: float | None = None
    attempts: int = 1
    waited_s: float = 0.0
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    reasoning_tokens: int | None = None
    request_class: str | None = None
    answer: str | None = None
    request_digest: str | None = None
    prompt_place: str | None = None
    prompt_digest: str | None = None


KEPT = ("answer", "request_digest", "prompt_place", "prompt_digest")  # what a record has only where answers are kept
_ABSENT = ("request_class", *KEPT)  # keys without a value that are left out


def write_requests(records: Iterable[RequestRecord], path: Path) -> None:
    """Write one JSON line a request."""
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            content = {key: value for key, value in asdict(record).items() if value is not None or key not in _ABSENT}
            file.write(json.dumps(content, separators=(",", ":")) + "\n")
