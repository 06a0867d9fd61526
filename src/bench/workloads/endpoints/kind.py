"""What an endpoint's file defines: how a request is written, how an answer is read, and which kind of work it is."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bench.errors import shown
from bench.runs.environment import without_secrets
from bench.runs.request import Omissible, RequestForm

if TYPE_CHECKING:
    import openai


@dataclass(frozen=True)
class Work:
    """A kind of work. An endpoint has one (`bench.workloads.endpoints`).

    Attributes:
        name: in the summary. answer: what it is, such as `tokens`.
        unit: what throughput counts. counts: the column of a request that holds it.
        generates: whether an answer is tokens that come one after another: it has a length, which is asked for, and may be streamed, so
            that there are TTFT, ITL and TPOT. Else only E2E is known.
        divided: whether servers make several of a request, one a document, so that they count more requests than the client.
    """

    name: str
    answer: str
    unit: str
    counts: str
    generates: bool
    divided: bool = False


GENERATION = Work("generation", "tokens", unit="output tokens", counts="completion_tokens", generates=True)
EMBEDDING = Work("embedding", "vectors", unit="prompt tokens", counts="prompt_tokens", generates=False)
RERANKING = Work("reranking", "scores", unit="prompt tokens", counts="prompt_tokens", generates=False, divided=True)
WORKS = {work.name: work for work in (GENERATION, EMBEDDING, RERANKING)}


def unit_of(works: Iterable[str | None]) -> str:
    """What throughput counts, by the names of runs' work (None: generation); `tokens`, where they count different ones."""
    units = {WORKS[name].unit if name else GENERATION.unit for name in works}
    return units.pop() if len(units) == 1 else "tokens"


# A text, token ids, the messages of a chat, or a query and its documents.
Prompt = str | list[int] | list[Mapping[str, Any]] | list[str]
_MOST = 10**15  # tokens beyond which a number is not a count; convention: as `bench.fields.Count`, whose import is dear
_FAILED = ("error", "abort")  # values of finish_reason that end an answer which is not whole
_ODD = 40  # characters of what stands in place of a count that a message quotes; convention
# Keys of an object that hold generated text; ids, types and signatures are not, and what is encrypted has no length in tokens.
_TEXT = ("text", "content", "thinking", "reasoning", "summary", "function", "name", "arguments", "transcript", "refusal")


class Generated(NamedTuple):
    """What a chunk carries.

    Attributes:
        text: bytes of generated text (UTF-8). output: whether any of it is an answer. reasoning: bytes of it that are reasoning.
        silent: whether it may carry a token that spells nothing: its text is there, and empty.
        finish: why the answer ended, if it did. tokens: how many it says it carries; None where it does not; by them the
            server's total (`usage`) is divided among chunks. said: the text itself,
            reasoning ahead of the answer, as far as it is plain.
    """

    text: int = 0
    output: bool = False
    reasoning: int = 0
    silent: bool = False
    finish: str | None = None
    tokens: int | None = None
    said: str = ""

    @property
    def words(self) -> int:
        """How many words begin in it, each after a space; no token spans two."""
        return len(self.said.split()) - (not self.said[0].isspace()) if self.said else 0


def is_count(value: Any) -> bool:
    """Whether a value of JSON is a number of tokens."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and 0 <= value <= _MOST


def _quoted(value: Any) -> str:
    """Secrets go before the cut: of one that is cut, nobody would know the rest."""
    text = without_secrets(shown(value, sys.maxsize).encode(errors="replace")).decode()
    return text if len(text) <= _ODD else f"{text[:_ODD]}…"


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


class Usage(NamedTuple):
    """The server's counts of tokens; None where it does not count them, or what stands there is no count.

    Attributes:
        prompt, completion: tokens in them. cached: prompt tokens from the prefix cache. reasoning: completion tokens that are that.
        generated: the total less the prompt. read: by each key that was there, what stands in place of its count, as
            `completion_tokens is '4'`, without secrets; nothing where that is a count.
    """

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    generated: int | None = None
    read: Mapping[str, str] = MappingProxyType({})

    @property
    def odd(self) -> str:
        """What stands in place of counts, in words; empty where all are counts."""
        return "; ".join(filter(None, self.read.values()))

    @classmethod
    def of(cls, usage: Any) -> Usage:
        """The counts of a `usage`."""
        read: dict[str, str] = {}

        def first(within: Any, *keys: str, sound: Callable[[Any], bool] = is_count) -> Any:
            for key in keys:
                if (value := within.get(key)) is not None:
                    read[key] = "" if sound(value) else f"{key} is {_quoted(value)}"
                    if not read[key]:
                        return int(value) if isinstance(value, float) else value  # such as 4.0
            return None

        usage = first({"usage": usage}, "usage", sound=_is_object) or {}
        prompt = first(usage, "prompt_tokens", "input_tokens")
        completion = first(usage, "completion_tokens", "output_tokens")
        details = first(usage, "prompt_tokens_details", "input_tokens_details", sound=_is_object) or {}
        cached = first(details, "cached_tokens")
        if cached is None:  # as DeepSeek and as Anthropic name it
            cached = first(usage, "prompt_cache_hit_tokens", "cache_read_input_tokens")
        of_output = first(usage, "completion_tokens_details", "output_tokens_details", sound=_is_object) or {}
        reasoning = first(of_output, "reasoning_tokens")
        if reasoning is None:  # as SGLang has it
            reasoning = first(usage, "reasoning_tokens")
        total = first(usage, "total_tokens")
        generated = None if total is None or prompt is None else max(0, total - prompt)
        # xAI counts reasoning beside the completion, not in it.
        if reasoning and completion is not None and generated == completion + reasoning:
            completion = generated
        return cls(prompt, completion, cached, reasoning, generated, read)

    def merged(self, newer: Usage) -> Usage:
        """These counts, updated by a later usage. What that lacks, or has as 0, is kept: some servers end with costs or zeros alone."""
        kept = {name: old for name, old in self._asdict().items() if old is not None and not getattr(newer, name)}
        return newer._replace(**{**kept, "read": {**self.read, **newer.read}})


class Drafts(NamedTuple):
    """Tokens that a server drafted for an answer, and how many of them the model accepted; None where the answer does not say."""

    drafted: int | None = None
    accepted: int | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Drafts | None:
        """Those in an event or a whole answer; None where there are none, or they make no sense.

        llama.cpp has them in `timings` of an answer for which it drafted anything, vLLM in `metrics`, from 0.32 on, with
        `--per-request-spec-decode-metrics` (vllm/entrypoints/generate/base/protocol.py).
        """
        timings, metrics = content.get("timings"), content.get("metrics")
        if isinstance(timings, dict):
            found = cls(timings.get("draft_n"), timings.get("draft_n_accepted"))
        elif isinstance(metrics, dict) and isinstance(own := metrics.get("speculative_decoding"), dict):
            found = cls(own.get("num_draft_tokens"), own.get("num_accepted_draft_tokens"))
        else:
            return None
        sound = all(isinstance(count, int) and not isinstance(count, bool) for count in found)
        return found if sound and 0 <= found.accepted <= found.drafted else None  # type: ignore[operator]


def dialogue(texts: Iterable[str]) -> list[Mapping[str, Any]]:
    """Texts as the messages of a chat: a user's first, and an answer after each."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


class Endpoint(ABC):
    """An endpoint of OpenAI's API, or one like it.

    Attributes:
        name: in configurations. meaning: for the reference of the configuration: what it sends, and where.
        path: below /v1, or with a slash ahead below the server's address. work: what a server does with a request.
        call: the SDK's resource whose `create` sends a request there; empty where it has none.
        always: what every request's body says.
        keys: of a body that `put` writes.
        limits: the key of a body that limits an answer's length (tokens), and the one to send where that is refused; none where answers
            have no length.
        lacks: names in `bench.runs.request.OPTIONAL` that its requests do not have; without `token_ids` prompts are text.
        reasons: whether a server may keep the reasoning ahead of an answer to itself.
        kinds: of prompts that it takes: a `text`, the messages of a `chat`, a `query` and its documents.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    work: ClassVar[Work] = GENERATION
    path: ClassVar[str]
    call: ClassVar[str] = ""
    keys: ClassVar[tuple[str, ...]]
    always: ClassVar[Mapping[str, Any]] = {}
    limits: ClassVar[tuple[str, ...]] = ("max_tokens", "max_completion_tokens")
    lacks: ClassVar[tuple[Omissible, ...]] = ()
    reasons: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = ("text", "chat")

    @property
    def chats(self) -> bool:
        """Whether a prompt may be the messages of a chat; else conversations hold their history as one prompt."""
        return "chat" in self.kinds

    @property
    def ranks(self) -> bool:
        """Whether a prompt is a query and its documents."""
        return "query" in self.kinds

    @property
    def address(self) -> str:
        """Where requests go, below the server's address."""
        return self.path if self.path.startswith("/") else f"/v1/{self.path}"

    def sends(self, form: RequestForm, name: Omissible) -> bool:
        """Whether its requests in this form have what `bench.runs.request.OPTIONAL` names."""
        return name not in self.lacks and form.sends(name)

    def sends_text(self, form: RequestForm) -> bool:
        """Whether prompts are text: the endpoint, or the server, takes no token ids."""
        return not self.sends(form, "token_ids")

    def options(
        self,
        form: RequestForm,
        prompt: Prompt,
        output: int,
        *,
        stream: bool,
        natural: bool = False,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The SDK's arguments for a request of `output` tokens in this form, but for the model.

        Args:
            natural: whether the answer may end by itself before. body: further keys of the body, in place of those that are there.
        """
        options = dict(self.always)
        further: dict[str, Any] = {}
        if self.limits:
            options["stream"] = stream
            # The second of the keys is one that the SDK knows for chats alone.
            (options if form.sends("max_tokens") else further)[self.limit(form)] = output
        if stream and self.sends(form, "stream_options"):
            options["stream_options"] = {"include_usage": True}
        if self.sends(form, "temperature"):
            options["temperature"] = 0
        if self.sends(form, "ignore_eos") and not natural:
            further["ignore_eos"] = True
        if further := {**further, **(body or {})}:
            options["extra_body"] = further
        self.put(options, prompt)
        return options

    def created(self, sdk: openai.OpenAI, model: str, options: Mapping[str, Any]) -> Any:
        """The SDK's answer: an object, or an iterator of chunks where it is streamed.

        Without a `call` it is sent as the SDK sends to endpoints that it does not know, and the objects are plain ones.
        """
        if self.call:
            return attrgetter(self.call)(sdk).create(model=model, **options)
        import openai  # noqa: PLC0415 - it takes a second to import, which nothing but a run should pay

        further: Any = {"extra_json": options.get("extra_body")}
        body = {"model": model, **{key: value for key, value in options.items() if key != "extra_body"}}
        streamed = bool(options.get("stream"))
        url = str(sdk.base_url).rstrip("/").removesuffix("/v1") + self.address
        return sdk.post(url, cast_to=object, body=body, options=further, stream=streamed, stream_cls=openai.Stream[object])

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        """Put a prompt into a request's body, in place of the one that is there.

        First requests have `""` or `"a"` as a prompt, and two texts from whose tokens the tokens of a letter follow: it must send each
        once.
        """
        body[self.keys[0]] = prompt

    def limit(self, form: RequestForm) -> str:
        """The key of a body that limits an answer's length (tokens)."""
        return self.limits[0] if form.sends("max_tokens") else self.limits[-1]

    @abstractmethod
    def generated(self, content: Mapping[str, Any]) -> Generated:
        """What an event of a stream, or a whole answer, carries.

        Raises:
            AttributeError, LookupError, TypeError: it is neither.
        """

    @abstractmethod
    def whole(self, content: Mapping[str, Any]) -> bool:
        """Whether an object is a whole answer."""

    def usage(self, content: Mapping[str, Any]) -> Any:
        """The server's counts so far in an event, or in a whole answer, for `Usage.of`; false where there are none.

        Raises:
            AttributeError, TypeError: it is neither.
        """
        return content.get("usage")

    def error(self, content: Mapping[str, Any]) -> Any:
        """What an object says went wrong; None where nothing did."""
        if content.get("error"):
            return content["error"]
        if content.get("choices"):
            return _failure(content["choices"])
        # Older vLLM, FastAPI and DashScope report an error as the object itself.
        if "choices" in content or "usage" in content:
            return None
        coded = "code" in content and isinstance(content.get("message"), str)
        return content if coded or content.get("object") == "error" or content.get("detail") else None

    def text(self, content: Mapping[str, Any]) -> str:  # noqa: ARG002 - numbers spell nothing
        """The text of an event or a whole answer, without reasoning: what the SDK's reading is compared with."""
        return ""

    def message(self, contents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """An answer, without reasoning, as a message of a chat's history. Args: contents: its events, or the whole."""
        return {"role": "assistant", "content": "".join(map(self.text, contents))}


def _failure(choices: Any) -> Any:
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        finish = choice.get("finish_reason")
        if choice.get("error"):
            return choice["error"]
        if finish in _FAILED:
            return f"the server ended the answer with finish_reason {finish}"
        if isinstance(finish, dict) and finish.get("type") in _FAILED:
            return finish
    return None


def size_of(value: Any) -> int:
    """Bytes of the generated text in a value, whether it is text, an object that holds text, or a list of either.

    Raises:
        TypeError: it is anything else.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, list):
        return sum(size_of(each) for each in value)
    if isinstance(value, dict):
        return sum(size_of(value.get(key)) for key in _TEXT)
    raise TypeError(f"generated text is a {type(value).__name__}")
