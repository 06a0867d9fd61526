"""What sources of a user's own prompts share: the order in which they are sent, and what hides them from prefix caches."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from bench.errors import BenchError
from bench.workloads.endpoints import ENDPOINTS, Endpoint, Prompt
from bench.workloads.prompts.kind import Making, Origin, Source, Wanted
from bench.workloads.prompts.random_ids import VOCABULARY_OF_LETTERS, letters, prompt_ids

_ANSWERED = ("assistant", "tool", "function")  # roles of what is recorded of a chat's answers
_DECILES = 20  # prompts from which deciles are given
_KINDS = {"text": "a text", "chat": "the messages of a chat", "query": "a query and its documents"}
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
                f"{where}no chat has {turns} user messages, one for each turn. Give chats that have, under `messages`, or fewer turns."
            )

    def described(self, turns: int = 1) -> str:
        every, sent = self.read(), self._sent(turns)
        sizes = sorted(characters(_until(each.prompt, turns) if turns > 1 else each.prompt) for each in sent)
        one, more = ("prompt", "prompts") if turns == 1 else (f"chat of {turns} turns", f"chats of {turns} turns")
        lengths = f"{sizes[0]:,} characters"
        if sizes[0] != sizes[-1]:
            lengths = f"{sizes[0]:,} to {sizes[-1]:,} characters"
        if len(sizes) >= _DECILES:
            deciles = [sizes[round(tenth * (len(sizes) - 1) / 10)] for tenth in range(1, 10)]
            lengths += f" (deciles: {', '.join(f'{each:,}' for each in deciles)})"
        elif sizes[0] != sizes[-1]:
            lengths += f" ({sizes[len(sizes) // 2]:,} in the median)"
        calling = sum(bool(each.extras) for each in sent)
        lengths += f", {calling:,} with tools" if calling else ""
        left = f"; {len(every) - len(sent):,} of the file with fewer are left out" if len(sent) < len(every) else ""
        return f"{len(sizes):,} {one if len(sizes) == 1 else more} {'of' if turns == 1 else 'with'} {lengths}{left}"

    def _sent(self, turns: int) -> Sequence[OwnPrompt]:
        every = self.read()
        return every if turns == 1 else [each for each in every if _turns_of(each.prompt) >= turns]

    def maker(self, making: Making) -> Callable[[Wanted], Prompt]:
        self.check(making.endpoint, making.turns)
        chosen = self._chosen(making)

        def make(wanted: Wanted) -> Prompt:
            marked = chosen(wanted).prompt
            if making.cache != "as_is":
                of = "run" if making.cache == "natural" else wanted.conversation
                marked = _marked(marked, letters(prompt_ids(making.seed, of, _MARK, VOCABULARY_OF_LETTERS)) + "\n")
            if making.turns == 1:
                return marked
            return _added(marked, wanted.turn) if making.own else _until(marked, wanted.turn + 1)

        return make

    def origins(self, making: Making) -> Callable[[Wanted], Origin | None]:
        chosen = self._chosen(making)

        def origin(wanted: Wanted) -> Origin:
            place, prompt, _ = chosen(wanted)
            return Origin(place, prompt_digest(prompt))

        return origin

    def extras(self, making: Making) -> Callable[[Wanted], Mapping[str, Any]]:
        chosen = self._chosen(making)
        return lambda wanted: chosen(wanted).extras

    def _chosen(self, making: Making) -> Callable[[Wanted], OwnPrompt]:
        prompts = self._sent(making.turns)

        def choose(wanted: Wanted) -> OwnPrompt:
            time, place = divmod(wanted.conversation, len(prompts))
            return prompts[_order(len(prompts), f"{making.schedule_seed}/prompts/{time}")[place]]

        return choose


def drawn(prompts: Sequence[OwnPrompt], count: int, seed: str) -> list[OwnPrompt]:
    """So many of them, in their order; the same for the same seed on any machine."""
    return [prompts[place] for place in sorted(_order(len(prompts), seed)[:count])]


def prompt_digest(prompt: Prompt) -> str:
    """What tells a prompt from others, whatever else its file holds: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(json.dumps(prompt, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:16]


def _turns_of(prompt: Prompt) -> int:
    return 1 if isinstance(prompt, str) else sum(each["role"] == "user" for each in _messages(prompt))


def _until(prompt: Prompt, turns: int) -> Prompt:
    """The messages of a chat up to that turn's: what a user says, with the recorded answers before it."""
    messages = _messages(prompt)
    users = [place for place, each in enumerate(messages) if each["role"] == "user"]
    return messages[: users[turns - 1] + 1]


def _added(prompt: Prompt, turn: int) -> Prompt:
    """What a turn adds to a chat whose answers are the server's own: neither recorded answers, nor what tools said to them."""
    before = len(_messages(_until(prompt, turn))) if turn else 0
    return [each for each in _messages(_until(prompt, turn + 1))[before:] if each["role"] not in _ANSWERED]


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
    return "text" if isinstance(prompt, str) else "query" if isinstance(prompt[0], str) else "chat"


def characters(prompt: Any) -> int:
    """Characters of a text, of the messages of a chat, or of the parts of a message."""
    if isinstance(prompt, str):
        return len(prompt)
    if isinstance(prompt, Mapping):
        return characters(prompt.get("content") or prompt.get("text") or "")
    return sum(map(characters, prompt))
