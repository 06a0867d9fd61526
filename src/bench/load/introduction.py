"""A session's first requests: what the server accepts, how it counts text, and whether the openai SDK reads its answers alike."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Timer
from typing import Any, NamedTuple

from bench.errors import BenchError
from bench.headers import BUSY, RATE_LIMITED, UNAUTHORIZED
from bench.http import get_models, listed_models, models_text, problem, tls_context
from bench.load.answer import contents_of
from bench.load.connection import Address
from bench.load.exchange import Assignment, Exchange
from bench.load.loop import Loop
from bench.load.payload import as_json, template
from bench.load.records import record_of
from bench.load.response import Response
from bench.load.sdk import sdk_contents
from bench.load.target import Target
from bench.runs.request import INEXACT, OPTIONAL, Omissible, RequestForm, RequestRecord
from bench.workloads.endpoints import ENDPOINTS, Endpoint, Prompt, dialogue
from bench.workloads.prompts.random_ids import VOCABULARY_OF_LETTERS, letters, prompt_ids

# Patterns that show what a refusal names. A list of ids is refused in the words of the type that was expected.
_NAMED: dict[Omissible, str] = {
    "ignore_eos": r"ignore_eos",
    "token_ids": r"\bprompt\b|StringOrArray|`str`|\bstring|token.?ids|text input",
    "stream_options": r"stream_options|include_usage",
    "max_tokens": r"max_tokens|max_completion_tokens",
    "temperature": r"temperature",
}
_VOCABULARY = r"vocab|invalid token"  # ids that the tokenizer lacks: to send text instead would hide it
_PROMPT = 8  # tokens of a first request's prompt; convention
_OUTPUT = 4  # tokens that it asks for; convention
_FEW = 8  # letters of the shorter prompt by which text is counted; convention
_MANY = 72  # letters of the longer one; convention
_TRIES = 3  # first requests to a busy server; convention
_BETWEEN_S = 1.0  # pause between them (s); convention
_SAID_S = 5.0  # time after which it is said that a first request takes long (s): it may load what a server needs; convention


class Answered(NamedTuple):
    """A first request, its record, and what the SDK was asked to send."""

    exchange: Exchange
    record: RequestRecord
    options: dict[str, Any]


@dataclass
class _Introduction:
    target: Target
    endpoint: Endpoint
    stream: bool
    vocabulary: int
    timeout_s: float
    say: Callable[[str], None]
    answered: Callable[[float], None]
    sent: int = 0

    def ask(self, form: RequestForm, *, letters_: int | None = None, output: int = _OUTPUT, turns: int = 1) -> Answered:
        """One request in this form, and its answer. A busy server is asked again.

        Args:
            letters_: of a prompt that is text; else there is one of ids where the form has them. output: tokens to ask for.
            turns: of a chat, each of whose messages has so many letters; 1: the prompt is no chat.
        """
        text = letters_ is not None or self.endpoint.sends_text(form)
        # No prefix cache may know the prompt: of each request it is another one.
        self.sent += 1
        seed = f"introduction/{time.time_ns()}"
        ids = prompt_ids(seed, self.sent, letters_ or _PROMPT, VOCABULARY_OF_LETTERS if text else self.vocabulary)
        prompt: Prompt = letters(ids) if text else ids
        if turns > 1:
            prompt = dialogue([letters(ids)] * (2 * turns - 1))
        words = f"waiting for {self.target.base_url} to answer a first request, up to {self.timeout_s:g} s"
        patience = Timer(_SAID_S, self.say, [words])
        patience.daemon = True
        patience.start()
        try:
            for left in reversed(range(_TRIES)):
                options = self.endpoint.options(form, prompt, output, stream=self.stream)
                exchange = self._sent(options, output)
                record = record_of(exchange, exchange.sent or 0.0)
                if record.status not in BUSY or not left:
                    break
                time.sleep(min(record.retry_after_s or _BETWEEN_S, self.timeout_s))
        finally:
            patience.cancel()
        latency = record.e2e_s if record.ttft_s is None else record.ttft_s
        if record.outcome == "ok" and latency is not None:
            self.answered(latency)
        return Answered(exchange, record, options)

    def _sent(self, options: dict[str, Any], output: int) -> Exchange:
        """Send a request as a run's requests are sent. Args: output: tokens that it asks for."""
        head, body = template(self.target, self.endpoint, options)
        content = as_json(body)
        exchange = Exchange(0, head % len(content) + content, output_asked=output, due_s=0.0, streamed=self.stream)
        exchange.endpoint = self.endpoint.name
        assignment = Assignment(*self.target.socket, [exchange], self.timeout_s, reuses=False)
        try:
            address = Address(assignment.host, assignment.port, tls_context() if assignment.tls else None)
            with closing(Loop(address, assignment)) as loop:
                loop.open()
                loop.run(time.monotonic())
        except OSError as error:
            exchange.error, exchange.failure = problem(error), "disconnect"
        if exchange.failure == "timeout":
            exchange.error = f"no whole answer within {self.timeout_s:g} s"
        return exchange


def introduce(
    target: Target,
    endpoint: str,
    *,
    stream: bool = True,
    vocabulary: int = 1000,
    omit: Iterable[str] = (),
    scripted: bool = False,
    timeout_s: float = 600.0,
    say: Callable[[str], None] = lambda _: None,
    answered: Callable[[float], None] = lambda _: None,
) -> Target:
    """The target, with the form of requests that it accepts at `endpoint`.

    The first request has every parameter that makes load exact. If it is refused, the parameter that the refusal names is left out.
    Two more requests show how many tokens text has.

    Args:
        endpoint: a name in `bench.workloads.endpoints`. omit: parameters not to send at all, names in `bench.runs.request.OPTIONAL`.
        scripted: whether chats will be sent whose turns have exact lengths; another request shows what the server adds to a turn.
        timeout_s: of a request. say: takes a line about what is not exact, and about what the SDK reads differently.
        answered: takes the TTFT of each answer, without streaming its E2E (s).

    Raises:
        BenchError: the server accepts no form of request, needs a key, redirects, lacks some token ids, does not end its answer, or is
            not there.
    """
    known = _Introduction(target, ENDPOINTS[endpoint], stream, vocabulary, timeout_s, say, answered)
    generates, given = known.endpoint.work.generates, tuple(name for name in OPTIONAL if name in set(omit))
    form, accepted = _accepted(known, RequestForm(omitted=given))
    record = accepted.record
    if found := [name for name in form.omitted if name not in given]:
        say(f"{target.base_url} refuses {' and '.join(found)}: {'; '.join(INEXACT[name] for name in found)}")
    form = replace(form, sdk_differs=_difference(known, accepted))
    if form.sdk_differs:
        say(f"the openai SDK reads an answer differently: {form.sdk_differs}")
    count = record.completion_tokens if generates else None
    if count is not None and (count > _OUTPUT or (count < _OUTPUT and form.sends("ignore_eos"))):
        say(
            f"the server ignores {'ignore_eos' if count < _OUTPUT else known.endpoint.limit(form)}: it generated {count} tokens "
            f"instead of {_OUTPUT} (finish_reason {record.finish_reason}), so answers will not have the lengths asked for"
        )
    counts = getattr(record, known.endpoint.work.counts) is not None
    if not counts:
        say(
            f"{target.base_url} counts no tokens in its answers ({record.error or 'no usage'}): "
            f"tokens/s{' and TPOT' if generates else ''} are not known, and runs of exact lengths are invalid, as nothing shows "
            "whether they had them"
        )
    elif record.error:
        say(f"{target.base_url} sends no token count where one belongs, so it is not known: {record.error}")
    if known.endpoint.sends_text(form):
        form = _counted(known, form)
    if scripted and form.counted:
        form = replace(form, turn_tokens=_turn_tokens(known, form))
    return replace(target, forms={**target.forms, endpoint: form}, counts=counts)


def _accepted(known: _Introduction, form: RequestForm) -> tuple[RequestForm, Answered]:
    """The fullest form that the server accepts, and an answer to it."""
    answer, again = known.ask(form), True  # a failure for a moment is not a refusal of what was sent
    while (refusal := _refusal(known, form, answer)) is not None:
        left = (name for name in OPTIONAL if known.endpoint.sends(form, name) and (known.stream or name != "stream_options"))
        name = next((name for name in left if re.search(_NAMED[name], refusal, re.IGNORECASE)), None)
        if name:
            form = replace(form, omitted=(*form.omitted, name))
        elif not again:
            raise BenchError(_refused(known, answer.record))
        again = name is not None
        answer = known.ask(form)
    return form, answer


def _refusal(known: _Introduction, form: RequestForm, answer: Answered) -> str | None:
    """Why the server did not answer a request in this form; None where it did.

    Raises:
        BenchError: it is for another reason than the form of the request.
    """
    record = answer.record
    target, base, said = known.target, known.target.base_url, _said(known.target, record)
    if record.outcome in ("ok", "truncated"):
        return None if record.outcome == "ok" else said
    if record.outcome == "timeout":
        raise BenchError(f"{base} did not answer a first request of {_PROMPT} tokens: {said}.")
    if record.outcome == "disconnect" and len(record.token_times_s) > _OUTPUT:
        raise BenchError(
            f"{base} ignores {known.endpoint.limit(form)}: it was asked for {_OUTPUT} tokens, and its answer was given up after "
            f"{len(record.token_times_s):,} chunks. Limit the length of answers in the server's own settings."
        )
    if record.status is None or record.outcome == "disconnect":
        raise BenchError(f"{base} does not answer a request: {said}. Check its address, and that it runs.")
    if record.status in UNAUTHORIZED:
        key = "Export another key as OPENAI_API_KEY" if target.key else "OPENAI_API_KEY is not set: export the key"
        raise BenchError(f"{base} answers {record.status}: {said}. {key}; where it goes into another header, name that.")
    if not known.endpoint.sends_text(form) and re.search(_VOCABULARY, said, re.IGNORECASE):
        raise BenchError(
            f"{base} refuses token ids below {known.vocabulary}: {said}. Name the model that it serves, or give --set vocabulary=N, a "
            "number below which all ids are tokens."
        )
    if 300 <= record.status < 400:
        raise BenchError(
            f"{base} answers {record.status}: {said}. Redirections are not followed: give the address that answers requests itself."
        )
    if record.status in BUSY:
        advice = "Raise the server's rate limit, or try" if record.status == RATE_LIMITED else "Try"
        raise BenchError(f"{base} answers {record.status} to a first request, {_TRIES} times: {said}. {advice} again later.")
    return said


def _said(target: Target, record: RequestRecord) -> str:
    silence = "without a word" if record.status else "the connection was lost"
    return target.without_secrets(record.error or silence).rstrip(".")


def _refused(known: _Introduction, last: RequestRecord) -> str:
    target, names = known.target, _listed(known.target)
    status = f" ({last.status})" if last.status != 200 else ""
    lists = f"; its /v1/models lists {models_text(names)}" if names is not None and target.model not in names else ""
    key = "" if target.key or target.headers else " OPENAI_API_KEY is not set: export it if the server asks for a key."
    return (
        f"{target.base_url} does not answer a first request of {_PROMPT} tokens{status}: {_said(target, last)}. Check the model's "
        f"name ({target.model!r}{lists}), whether it has the endpoint {known.endpoint.name} (`endpoint` names another), and what it "
        f"does not take (`omit` leaves it out).{key}"
    )


def _listed(target: Target) -> list[str] | None:
    try:
        return listed_models(get_models(target.base_url, key=target.key, headers=target.headers))
    except OSError:
        return None


def _turn_tokens(known: _Introduction, form: RequestForm) -> int:
    """Tokens that the server adds to a chat for its second turn, beyond those of the messages, by its count of one."""
    record = known.ask(form, letters_=_FEW, output=1, turns=2).record
    rest = (record.prompt_tokens or 0) - form.template_tokens - 3 * _FEW * form.letter_tokens
    if rest < 0:
        said = record.prompt_tokens or record.error or "no"
        known.say(f"the server counts {said} tokens in a chat of three messages of {_FEW} letters: its template leaves some of it out, "
                  "so prompts of later turns are shorter than asked for")  # fmt: skip
    return max(rest, 0)


def _counted(known: _Introduction, form: RequestForm) -> RequestForm:
    """The form with the tokens of a letter and of what the server adds, by its own counts of a short and a long prompt."""
    counts = []
    for count in (_FEW, _MANY):
        record = known.ask(form, letters_=count, output=1).record
        if not record.prompt_tokens:  # a stream without a usage: a whole answer has one
            record = replace(known, stream=False).ask(form, letters_=count, output=1).record
        counts.append(record.prompt_tokens or 0)
    few, many = counts
    each, rest = divmod(many - few, _MANY - _FEW)
    if few and each > 0 and not rest and few >= each * _FEW:
        return replace(form, letter_tokens=each, template_tokens=few - each * _FEW, counted=True)
    says = (
        f"counts {few} and {many} tokens in prompts of {_FEW} and {_MANY} letters"
        if few
        else "does not count the tokens of prompts"
    )
    known.say(f"the server {says}: taking each letter for one token, so lengths may differ from those asked for")
    return form


def _difference(known: _Introduction, answer: Answered) -> str | None:
    """Where the SDK reads an answer differently."""
    exchange, record, endpoint = answer.exchange, answer.record, known.endpoint
    try:
        theirs = sdk_contents(known.target, endpoint, answer.options, exchange)
    except Exception as error:  # whatever a parser of other people's text may raise
        said = known.target.without_secrets(f"{type(error).__name__}: {error}")[:300]
        return f"the SDK fails ({said}), and Saturate has {record.outcome}"
    ours = contents_of(Response(exchange), streamed=exchange.streamed)
    text, read = ("".join(map(endpoint.text, contents)) for contents in (ours, theirs))  # without reasoning
    usages = [endpoint.usage(content) or {} for content in theirs]
    choices = [choice for content in theirs for choice in content.get("choices") or ()]
    pairs = (
        ("text", read, text),
        ("finish_reason", _last(choices, "finish_reason"), record.finish_reason),
        ("prompt_tokens", _last(usages, "prompt_tokens"), record.prompt_tokens),
        ("completion_tokens", _last(usages, "completion_tokens"), record.completion_tokens),
    )
    apart = (f"{name} is {theirs!r} to the SDK, {ours!r} to Saturate" for name, theirs, ours in pairs if theirs != ours)
    return "; ".join(apart)[:500] or None


def _last(objects: Sequence[Mapping[str, Any]], key: str) -> Any:
    return next((value for each in reversed(objects) if (value := each.get(key)) is not None), None)
