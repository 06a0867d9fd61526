"""What sources of a user's own prompts share: the order in which they are sent, and what hides them from prefix caches."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

from bench.endpoints import Endpoint, Prompt
from bench.errors import BenchError
from bench.prompts.kind import Making, Source, Wanted
from bench.prompts.random_ids import VOCABULARY_OF_LETTERS, letters, prompt_ids

__all__ = ["Own", "OwnPrompt"]

_MARK = 8  # letters ahead of a prompt: one of 2 × 10¹¹ texts, each of as many tokens


class OwnPrompt(NamedTuple):
    """A prompt, and the place at which a user finds it, as `line 3`."""

    place: str
    prompt: Prompt


class Own(Source):
    """Prompts that are there. A run sends them in an order drawn by the schedule's seed, and begins again when all are sent.

    A prefix cache would know them from an earlier run, so each begins with eight letters of its own (`cache: unique`), or of its run
    (`cache: natural`).
    """

    sized: ClassVar[bool] = False
    caches: ClassVar[tuple[str, ...]] = ("unique", "natural")

    @abstractmethod
    def read(self) -> Sequence[OwnPrompt]:
        """Every prompt; one at least.

        Raises:
            BenchError: they cannot be read.
        """

    def check(self, endpoint: Endpoint) -> None:
        chat = next((each.place for each in self.read() if not isinstance(each.prompt, str)), None)
        if chat is not None and not endpoint.chats:
            where = "".join(f"{file}: " for file in self.files)
            raise BenchError(
                f"{where}{chat} has the messages of a chat, and endpoint {endpoint.name} takes a text. Use endpoint chat."
            )

    def described(self) -> str:
        sizes = sorted(_letters_of(each.prompt) for each in self.read())
        count = f"{len(sizes):,} prompt{'' if len(sizes) == 1 else 's'}"
        if sizes[0] == sizes[-1]:
            return f"{count} of {sizes[0]:,} characters"
        return f"{count} of {sizes[0]:,} to {sizes[-1]:,} characters ({sizes[len(sizes) // 2]:,} in the median)"

    def maker(self, making: Making) -> Callable[[Wanted], Prompt]:
        self.check(making.endpoint)
        prompts = self.read()

        def make(wanted: Wanted) -> Prompt:
            time, place = divmod(wanted.conversation, len(prompts))
            prompt = prompts[_order(len(prompts), f"{making.schedule_seed}/prompts/{time}")[place]].prompt
            of = "run" if making.cache == "natural" else wanted.conversation
            return _marked(prompt, letters(prompt_ids(making.seed, of, _MARK, VOCABULARY_OF_LETTERS)) + "\n")

        return make


@cache
def _order(count: int, seed: str) -> list[int]:
    """The numbers below `count`, shuffled; the same for the same seed on any machine."""
    return sorted(range(count), key=lambda number: hashlib.sha256(f"{seed}/{number}".encode()).digest())


def _marked(prompt: Prompt, mark: str) -> Prompt:
    """The prompt with the mark ahead of its text, which is the first message's of a chat."""
    if isinstance(prompt, str):
        return mark + prompt
    assert not isinstance(prompt[0], int)
    first, *others = prompt
    content = first["content"]
    if isinstance(content, str):
        return [{**first, "content": mark + content}, *others]
    kind = next((str(part["type"]) for part in content if "text" in str(part.get("type"))), "text")
    return [{**first, "content": [{"type": kind, "text": mark}, *content]}, *others]


def _letters_of(prompt: Any) -> int:
    """Characters of a text, of the messages of a chat, or of the parts of a message."""
    if isinstance(prompt, str):
        return len(prompt)
    if isinstance(prompt, Mapping):
        return _letters_of(prompt.get("content") or prompt.get("text") or "")
    return sum(map(_letters_of, prompt))
