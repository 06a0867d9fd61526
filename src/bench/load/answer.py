"""What a body holds: when its tokens arrived, how many came at once, the server's counts, and how it ended."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.load.exchange import Exchange
from bench.load.response import BARE, DONE, Event, Response, events, json_object
from bench.runs.environment import without_secrets
from bench.runs.request import SURE
from bench.workloads.endpoints import ENDPOINTS, Drafts, Endpoint, Generated, Usage

# gap of chunks that left the server, or a proxy, in one piece (s); convention: no server makes 5,000 tokens a second of one answer
_TOGETHER_S = 0.0002
_COMMENT = re.compile(rb"[0-9a-fA-F]+\r\n:[^\r\n]*[\r\n]*")  # a chunk by which a server keeps a stream open


@dataclass
class Answer:
    """What a body holds. Stamps are seconds on the clock of its pieces.

    Attributes:
        tokens: arrival of each chunk that carries tokens. first_output: of the first that is not reasoning.
        streamed: the most tokens that the stream may have carried, least: the fewest; the same where each chunk carries one token or
            says how many it carries. None where nothing is counted. first: how many of them came at the first moment, exact in the same
            cases, else the first moment's share of the text. arrivals: at how many moments they came.
        reasoned: tokens that are reasoning; None where neither the server nor the chunks show it.
        usage: the server's counts. drafts: of speculative decoding. finish: why the answer ended. done: whether the stream ended with
            [DONE].
        error: what the server said went wrong, or what is wrong with the answer. failed: whether it says so itself, or is no answer.
        whole: whether it came as one object instead of a stream. closed: whether the usage came that ends a stream.
    """

    tokens: list[float] = field(default_factory=list)
    first_output: float | None = None
    streamed: int | None = None
    least: int | None = None
    first: float | None = None
    arrivals: int = 0
    reasoned: int | None = None
    usage: Usage = field(default_factory=Usage)
    drafts: Drafts = field(default_factory=Drafts)
    finish: str | None = None
    done: bool = False
    error: str | None = None
    failed: bool = False
    whole: bool = False
    closed: bool = False

    @property
    def ended(self) -> bool:
        """Whether the answer says that it is all there, and it holds something."""
        said = self.done or self.finish is not None or self.whole or self.closed
        return said and bool(self.tokens or self.usage.completion)


class _Chunk(NamedTuple):
    stamp: float
    carries: Generated
    so_far: int | None  # tokens of the answer, where the chunk's own usage counts them


def answer_of(response: Response, endpoint: Endpoint, *, streamed: bool) -> Answer:
    """What a response of `endpoint` holds. Args: streamed: whether a stream was asked for."""
    if response.encoding:
        return Answer(error=f"content-encoding {response.encoding[:20]}, which the request did not accept", failed=True)
    if response.status not in (None, 200):
        return Answer(error=_refusal(response), failed=True)
    if not streamed:
        return _whole(response, endpoint)
    answer = _streamed(response, endpoint)
    if not (answer.tokens or answer.error or answer.done or answer.usage.completion is not None) and response.pieces:
        # Not one event: a server that does not stream, or something that is not a model server.
        return _whole(response, endpoint)
    return answer


def contents_of(response: Response, *, streamed: bool) -> list[dict[str, Any]]:
    """The objects that an answer consists of: its events, or the whole, which a server may send where a stream was asked for."""
    named = [event for event in events(response.pieces) if event.name != BARE] if streamed else []
    found = [content for event in named if (content := json_object(event.data))]
    return found or [json_object(response.body) or {}]


def ends_in_error(exchange: Exchange) -> bool:
    """Whether an answer that has fallen silent has failed by what it says: nothing more is to come of it.

    Its last read is looked at first, whose chunk sizes read as fields without a meaning: nearly always that is a sound event.
    """
    if _COMMENT.fullmatch(exchange.reads[-1]):
        return False
    endpoint = ENDPOINTS[exchange.endpoint]
    latest = [json_object(event.data) for event in events([(0.0, exchange.reads[-1])]) if event.name not in (b"error", BARE)]
    if latest and all(content and endpoint.error(content) is None for content in latest):
        return False
    response = Response(exchange)
    # A page of a refusal may go on; of an object it is known that it does not.
    said = bool(response.pieces) and (response.status == 200 or json_object(response.body) is not None)
    return said and answer_of(response, endpoint, streamed=exchange.streamed).failed


def _streamed(response: Response, endpoint: Endpoint) -> Answer:
    answer = Answer()
    chunks: list[_Chunk] = []
    for event in events(response.pieces):
        if event.data == DONE:
            answer.done = True
            continue
        content = _content(event, endpoint, answer)
        if content is None or event.name == BARE:
            continue
        try:
            carries, usage = endpoint.generated(content), endpoint.usage(content)
            counted = Usage.of(usage) if usage else None
        except (AttributeError, LookupError, TypeError, ValueError):
            answer.error, answer.failed = f"no chunk of an answer: {quoted(event.data)}", True
            continue
        answer.finish = carries.finish or answer.finish
        if counted is not None:
            answer.usage = answer.usage.merged(counted)
            answer.closed = answer.closed or (counted.completion is not None and not content.get("choices"))
        answer.drafts = Drafts.of(content) or answer.drafts
        if carries.text or carries.silent:
            chunks.append(_Chunk(event.stamp, carries, counted.completion if counted else None))
    _count(answer, chunks)
    return answer


def _content(event: Event, endpoint: Endpoint, answer: Answer) -> dict[str, Any] | None:
    """None where the event is an error, which `answer` keeps."""
    content = json_object(event.data)
    if content is not None and event.name != b"error" and endpoint.error(content) is None:
        return content
    answer.failed = True
    if content is None and event.name != b"error":
        answer.error = f"not JSON: {quoted(event.data)}"
    else:
        answer.error = _text((content and endpoint.error(content)) or content or event.data.decode(errors="replace"))
    return None


def _count(answer: Answer, chunks: list[_Chunk]) -> None:
    """Which chunks carry tokens, and how many."""
    chunks = _without_repeat(chunks, answer.usage.completion)
    answer.usage = usage = _with_reasoning(answer.usage, sum(chunk.carries.text > 0 for chunk in chunks))
    kept = _with_tokens(chunks, _unless_hidden(usage, chunks))
    answer.tokens = [chunk.stamp for chunk in kept]
    # A token that spells nothing is part of the answer as far as anyone can tell.
    answer.first_output = next((x.stamp for x in kept if x.carries.output or not x.carries.reasoning), None)
    if not kept:
        return
    answer.arrivals = 1 + sum(b - a > _TOGETHER_S for a, b in itertools.pairwise(answer.tokens))
    if usage.completion is None:
        return
    answer.least, answer.streamed = _streamed_count(usage, kept)
    answer.reasoned = usage.reasoning
    if usage.reasoning is None and abs(len(kept) - usage.completion) <= 1:  # an answer's last token may spell nothing
        answer.reasoned = sum(bool(x.carries.reasoning) and not x.carries.output for x in kept)
    if len(kept) != usage.completion and _words(kept) > SURE * usage.completion:
        return  # the server counts fewer tokens than it streamed
    at_first = 1
    while at_first < len(kept) and kept[at_first].stamp - kept[at_first - 1].stamp <= _TOGETHER_S:
        at_first += 1
    answer.first = _tokens_of(kept, at_first, answer.streamed)


def _words(chunks: list[_Chunk]) -> int:
    """The fewest tokens that could spell these chunks."""
    return sum(chunk.carries.words for chunk in chunks)


def _without_repeat(chunks: list[_Chunk], counted: int | None) -> list[_Chunk]:
    """The chunks without a last text that is the whole answer, without or with its reasoning, or all of that, once more.

    Some gateways end a stream so. A token may spell what all before it do, too: only where the stream holds more than the server
    counts, or it counts nothing and several chunks came before, is it a repeat.
    """
    texts = [chunk for chunk in chunks if chunk.carries.text]
    if len(texts) < 2 or (len(texts) == 2 if counted is None else max(len(texts), _words(texts)) <= counted):
        return chunks
    *before, last = texts
    kinds = ((False,), (True,), (False, True))  # whether it is reasoning
    earlier = ("".join(each.carries.said for each in before if bool(each.carries.reasoning) in kind).strip() for kind in kinds)
    text = last.carries.said.strip()
    return [chunk for chunk in chunks if chunk is not last] if text and text in earlier else chunks


def _with_reasoning(usage: Usage, texts: int) -> Usage:
    """The counts, with reasoning in the completion where the server counts it beside that, as the number of chunks with text shows."""
    if usage.completion is None or texts <= usage.completion:
        return usage
    beside = (usage.completion + (usage.reasoning or 0), usage.generated or 0)
    sound = (count for count in beside if texts <= count <= SURE * texts)
    return usage._replace(completion=min(sound, default=usage.completion))


def _unless_hidden(usage: Usage, chunks: list[_Chunk]) -> int | None:
    """How many tokens the stream has if reasoning that has a name in no chunk was not streamed; None without a count."""
    if usage.completion is None or not usage.reasoning or any(chunk.carries.reasoning for chunk in chunks):
        return usage.completion
    rest = max(0, usage.completion - usage.reasoning)
    return usage.completion if sum(chunk.carries.text > 0 for chunk in chunks) > rest else rest


def _streamed_count(usage: Usage, kept: list[_Chunk]) -> tuple[int, int]:
    """The fewest and the most of the generated tokens that the chunks may carry; the same where that is known.

    A server may keep reasoning to itself, whether it counts it apart or not, or stream a summary of it in its place. How long a text is
    says little: a token spells one byte of digits, and eight of a vocabulary's long words. So a chunk that does not count its tokens
    carries one or more: at least as many as words begin in it, at most as many as it has bytes.
    """
    completion = usage.completion or 0
    if len(kept) >= completion:
        return completion, completion
    said = [chunk.carries.tokens for chunk in kept]
    own = sum(n or 0 for n in said)
    if None not in said and len(kept) <= own <= completion:
        return own, own
    rest = _unless_hidden(usage, kept) or 0
    if so_far := _counts_so_far(kept, completion):
        streamed = so_far[-1] - (completion - rest if so_far[0] > completion - rest else 0)
        return streamed, streamed
    if rest < completion and len(kept) * SURE >= rest:
        return rest, rest
    most = min(completion, sum(max(chunk.carries.text, 1) for chunk in kept))
    return min(sum(max(chunk.carries.words, 1) for chunk in kept), most), most


def _counts_so_far(chunks: list[_Chunk], completion: int) -> list[int] | None:
    """The answer's tokens at each chunk by its own usage; None where some chunk has none, or they do not add up.

    Hidden ones are among them: all that came before the first chunk count as its own unless the server counts them apart.
    """
    so_far = [chunk.so_far for chunk in chunks if chunk.so_far is not None]
    return so_far if len(so_far) == len(chunks) and so_far == sorted(so_far) and so_far[-1] <= completion else None


def _with_tokens(chunks: list[_Chunk], counted: int | None) -> list[_Chunk]:
    """The chunks that carry tokens: those with text, and where the server counts more tokens than those, silent ones.

    vLLM sends a chunk without text for a token that spells no whole character, at the beginning, in the middle and at the end. Others
    send one ahead of the first token that carries nothing. So those ahead of the first text count only where this makes the number
    right, or some stand between texts, as vLLM's do. Of too many, those that close the answer are left out first (llama.cpp's carries
    nothing), then those ahead.

    Args:
        counted: tokens that the stream should have carried; None where the server does not say.
    """
    places = [i for i, chunk in enumerate(chunks) if chunk.carries.text]
    silent = [i for i, chunk in enumerate(chunks) if not chunk.carries.text]
    if counted is None:
        return [chunks[i] for i in places or silent]
    missing = counted - len(places)
    if missing <= 0 and places:
        return [chunks[i] for i in places]
    first, last = (places[0], places[-1]) if places else (0, 0)
    ranked = sorted(silent, key=lambda i: (chunks[i].carries.finish is not None, i < first, i))
    if len(silent) < missing and not any(first < i < last for i in silent):
        ranked = [i for i in ranked if i >= first]
    return [chunks[i] for i in sorted([*places, *ranked[: max(missing, 1)]])]


def _tokens_of(chunks: list[_Chunk], first: int, counted: int) -> float:
    """How many of the `counted` tokens the first `first` chunks carry; estimated by the share of the text where nothing counts them."""
    if len(chunks) >= counted:
        return float(min(first, counted))
    said = [chunk.carries.tokens for chunk in chunks]
    if None not in said and sum(n or 0 for n in said) == counted:
        return float(sum(n or 0 for n in said[:first]))
    if so_far := _counts_so_far(chunks, chunks[-1].so_far or 0):
        return float(so_far[first - 1] - (so_far[-1] - counted))
    text = [chunk.carries.text for chunk in chunks]
    share = counted * sum(text[:first]) / (sum(text) or 1)
    return min(max(share, float(first)), float(counted - (len(chunks) - first)))


def _whole(response: Response, endpoint: Endpoint) -> Answer:
    """An answer that comes in one: its tokens are there when its last byte is."""
    content = json_object(response.body)
    if content is None or not (endpoint.whole(content) or endpoint.error(content)):
        kind = response.field(b"content-type").partition(";")[0] or "no content type"
        what = "is neither an event stream nor an answer" if response.complete else "was cut off"
        if not response.body:
            return Answer()
        return Answer(error=f"the body ({kind}) {what}: {quoted(response.body)}", failed=response.complete)
    if (error := endpoint.error(content)) is not None:
        return Answer(error=_text(error), failed=True)
    try:
        carries, usage = endpoint.generated(content), Usage.of(endpoint.usage(content) or {})
    except (AttributeError, LookupError, TypeError, ValueError):
        return Answer(error=f"no answer of a model: {quoted(response.body)}", failed=True)
    stamp = response.pieces[-1][0]
    drafts = Drafts.of(content) or Drafts()
    answer = Answer([stamp], streamed=usage.completion, arrivals=1, reasoned=usage.reasoning, usage=usage, drafts=drafts)
    answer.finish, answer.whole = carries.finish, True
    return answer


def _refusal(response: Response) -> str:
    said = _text(json_object(response.body) or " ".join(response.body.decode(errors="replace").split()))
    location = response.field(b"location")
    return f"{said or 'moved'}, to {location[:200]}" if location else said


def _text(error: Any) -> str:
    while isinstance(error, dict):
        error = error.get("error") or error.get("message") or error.get("detail") or json.dumps(error)
    return without_secrets(str(error).encode(errors="replace")).decode()[:500]


def quoted(text: bytes) -> str:
    """The beginning of what a server sent, for a message."""
    return repr(without_secrets(text)[:200].decode(errors="replace"))


@dataclass(slots=True)
class Continued:
    """What is known beforehand of a request of such a conversation, as bytes.

    Attributes:
        head: with a place for the body's length. opening: of the body, up to its messages. messages: JSON without brackets: what the
            turn adds, and once the answer before has come, all that was said ahead of it too. recorded: whether the answer before is
            among them, as the tools that the turn holds the results of were called by it: the server's own is left out.
    """

    head: bytes
    opening: bytes
    messages: bytes
    recorded: bool = False

    def payload(self) -> bytes:
        """The request's bytes, head and body."""
        body = self.opening + self.messages + b"]}"
        return self.head % len(body) + body


def follow(before: Exchange, following: Exchange) -> None:
    """Write a turn whose history holds the answer to the turn before, as far as that came; any other turn is written already."""
    turn, earlier = following.continued, before.continued
    if turn is None or earlier is None:
        return
    turn.messages = b",".join((earlier.messages, *([] if turn.recorded else [_answered(before)]), turn.messages))
    following.payload = turn.payload()


def _answered(before: Exchange) -> bytes:
    """The answer as a message of a chat, as far as it came."""
    contents = contents_of(Response(before), streamed=before.streamed)
    try:
        message = ENDPOINTS[before.endpoint].message(contents)
    except (AttributeError, LookupError, TypeError):  # it is no answer, which its record says
        message = {"role": "assistant", "content": ""}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
