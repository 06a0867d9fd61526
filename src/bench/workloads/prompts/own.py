"""What sources of a user's own prompts share: the order in which they are sent, and what hides them from prefix caches."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bench.errors import BenchError
from bench.workloads.endpoints import ENDPOINTS, Endpoint, Prompt
from bench.workloads.prompts.kind import Making, Origin, Source
from bench.workloads.prompts.random_ids import VOCABULARY_OF_LETTERS, letters, prompt_ids

if TYPE_CHECKING:
    from bench.workloads.schedule import PlannedRequest

_TOOLS = ("tool", "function")  # roles of what tools answered
_KINDS = {"text": "a text", "chat": "the messages of a chat", "calls": "a chat with calls of tools"}
_KINDS |= {"query": "a query and its documents"}
_MARK = 8  # letters ahead of a prompt: one of 2 × 10¹¹ texts, each of as many tokens


class OwnPrompt(NamedTuple):
    """A prompt, and the place at which a user finds it, as `line 3`; `extras` are further keys of its request's body."""

    place: str
    prompt: Prompt
    extras: Mapping[str, Any] = MappingProxyType({})


class Own(Source):
    """Prompts that are there. A run sends them in an order drawn by the schedule's seed, and begins again when all are sent.

    A prefix cache would know them from an earlier run, so each begins with eight letters of its own (`cache: unique`), or of its run
    (`cache: natural`), but with `cache: as_is`.
    """

    sized: ClassVar[bool] = False
    caches: ClassVar[tuple[str, ...]] = ("unique", "natural", "as_is")

    @abstractmethod
    def read(self) -> Sequence[OwnPrompt]:
        """Every prompt; one at least. Raises BenchError where they cannot be read."""

    def check(self, endpoint: Endpoint, turns: int = 1) -> None:
        where = "".join(f"{file}: " for file in self.files)
        for place, prompt, _ in self.read():
            if (kind := _kind(prompt)) not in endpoint.kinds:
                fitting = next(each.name for each in ENDPOINTS.values() if kind in each.kinds)
                raise BenchError(
                    f"{where}{place} has {_KINDS[kind]}, and endpoint {endpoint.name} takes {_KINDS[endpoint.kinds[0]]}. Use endpoint "
                    f"{fitting}."
                )
        if not self._sent(turns):
            raise BenchError(
                f"{where}no chat has {turns} turns that each end with a user's message or results of tools. Give longer chats under "
                "`messages`, or fewer turns."
            )

    def described(self, turns: int = 1) -> str:
        every, sent = self.read(), self._sent(turns)
        sizes = sorted(characters(_until(each.prompt, turns) if turns > 1 else each.prompt) for each in sent)
        one, more = ("prompt", "prompts") if turns == 1 else (f"chat of {turns} turns", f"chats of {turns} turns")
        lengths = f"{sizes[0]:,} characters"
        if sizes[0] != sizes[-1]:
            lengths = f"{sizes[0]:,} to {sizes[-1]:,} characters ({sizes[len(sizes) // 2]:,} in the median)"
        calling = sum(bool(each.extras) for each in sent)
        lengths += f", {calling:,} with tools" if calling else ""
        left = f"; {len(every) - len(sent):,} of the file with fewer are left out" if len(sent) < len(every) else ""
        return f"{len(sizes):,} {one if len(sizes) == 1 else more} {'of' if turns == 1 else 'with'} {lengths}{left}"

    def _sent(self, turns: int) -> Sequence[OwnPrompt]:
        every = self.read()
        return every if turns == 1 else [each for each in every if len(_ends(each.prompt)) >= turns]

    def maker(self, making: Making) -> Callable[[PlannedRequest], Prompt]:
        self.check(making.endpoint, making.turns)
        chosen = self._chosen(making)

        def make(wanted: PlannedRequest) -> Prompt:
            marked = chosen(wanted).prompt
            if making.cache != "as_is":
                of = "run" if making.cache == "natural" else wanted.conversation
                marked = _marked(marked, letters(prompt_ids(making.seed, of, _MARK, VOCABULARY_OF_LETTERS)) + "\n")
            if making.turns == 1:
                return marked
            return _added(marked, wanted.turn)

        return make

    def origins(self, making: Making) -> Callable[[PlannedRequest], Origin | None]:
        chosen = self._chosen(making)

        def origin(wanted: PlannedRequest) -> Origin:
            place, prompt, _ = chosen(wanted)
            return Origin(place, prompt_digest(prompt))

        return origin

    def extras(self, making: Making) -> Callable[[PlannedRequest], Mapping[str, Any]]:
        chosen = self._chosen(making)
        return lambda wanted: chosen(wanted).extras

    def _chosen(self, making: Making) -> Callable[[PlannedRequest], OwnPrompt]:
        prompts = self._sent(making.turns)

        def choose(wanted: PlannedRequest) -> OwnPrompt:
            time, place = divmod(wanted.conversation, len(prompts))
            return prompts[_order(len(prompts), f"{making.schedule_seed}/prompts/{time}")[place]]

        return choose


def drawn(prompts: Sequence[OwnPrompt], count: int, seed: str) -> list[OwnPrompt]:
    """So many of them, in their order; the same for the same seed on any machine."""
    return [prompts[place] for place in sorted(_order(len(prompts), seed)[:count])]


def prompt_digest(prompt: Prompt) -> str:
    """What tells a prompt from others, whatever else its file holds: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(json.dumps(prompt, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:16]


def _ends(prompt: Prompt) -> list[int]:
    """Places of the messages at which a model is asked, each the end of a turn: a user's, or the last of what tools answered, unless a
    user goes on.
    """
    roles = [each["role"] for each in _messages(prompt)]
    following = [*roles[1:], "assistant"]
    asks = [role == "user" or (role in _TOOLS and after == "assistant") for role, after in zip(roles, following, strict=True)]
    return [place for place, asked in enumerate(asks) if asked]


def _until(prompt: Prompt, turns: int) -> list[Mapping[str, Any]]:
    """The messages of a chat up to that turn's end, with the recorded answers before it."""
    return _messages(prompt)[: _ends(prompt)[turns - 1] + 1]


def _added(prompt: Prompt, turn: int) -> Prompt:
    """What a turn adds to a chat whose answers are the server's own: no recorded answer, but for the calls that tools answer in it."""
    added = _until(prompt, turn + 1)[len(_until(prompt, turn)) if turn else 0 :]
    if any(each["role"] in _TOOLS for each in added):
        return added
    return [each for each in added if each["role"] != "assistant"]


def _messages(prompt: Prompt) -> list[Mapping[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [each for each in prompt if isinstance(each, Mapping)]


@cache
def _order(count: int, seed: str) -> list[int]:
    """The numbers below `count`, shuffled; the same for the same seed on any machine."""
    return sorted(range(count), key=lambda number: hashlib.sha256(f"{seed}/{number}".encode()).digest())


def _marked(prompt: Prompt, mark: str) -> Prompt:
    """The prompt with the mark ahead of its text, which is the first message's of a chat, and the query where documents follow."""
    if isinstance(prompt, str):
        return mark + prompt
    first, *others = prompt
    if isinstance(first, str):
        return [mark + first, *others]
    assert not isinstance(first, int)
    content = first["content"]
    if isinstance(content, str):
        return [{**first, "content": mark + content}, *others]
    kind = next((str(part["type"]) for part in content if "text" in str(part.get("type"))), "text")
    return [{**first, "content": [{"type": kind, "text": mark}, *content]}, *others]


def _kind(prompt: Prompt) -> str:
    """Which of an endpoint's `kinds` it is."""
    if isinstance(prompt, str):
        return "text"
    called = any(each.get("tool_calls") or each["role"] in _TOOLS for each in _messages(prompt))
    return "query" if isinstance(prompt[0], str) else "calls" if called else "chat"


def characters(prompt: Any) -> int:
    """Characters of a text, of the messages of a chat, or of the parts of a message."""
    if isinstance(prompt, str):
        return len(prompt)
    if isinstance(prompt, Mapping):
        return characters(prompt.get("content") or prompt.get("text") or "")
    return sum(map(characters, prompt))
