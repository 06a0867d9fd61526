"""What prompts of recorded calls have in common, where their messages are recorded: as many tokens as the messages have characters.

A prompt's tokens are known in all, those of a message are not. A prompt that begins with all messages of an earlier one has that one's
tokens; one that begins with some of them has their share of its tokens, by characters. What a chat template adds is part of both.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

BLOCK = 16  # tokens of a block that prompts may share; convention: vLLM's, below which no prefix cache of its finds anything
_AHEAD = ("gen_ai.tool.definitions", "gen_ai.system_instructions")
_MESSAGES = "gen_ai.input.messages"
_NOT_READ = {"type", "id", "finish_reason"}
_NUMBERED = re.compile(r"(?:gen_ai\.prompt|llm\.input_messages)\.(\d+)\.(.+)")


def messages_of(attributes: Mapping[str, Any]) -> list[str]:
    """A prompt's messages in order, each as one text; none where they are not recorded, or all are empty, as of redacted ones.

    Source: the GenAI conventions' `gen_ai.input.messages`, ahead of which stand `gen_ai.system_instructions` and the tools; before
    them OpenLLMetry's `gen_ai.prompt.0.content` and the like, and OpenInference's `llm.input_messages.0.message.content`.
    """
    texts = _texts(attributes)
    return texts if any(texts) else []


def _texts(attributes: Mapping[str, Any]) -> list[str]:
    messages = _read_list(attributes.get(_MESSAGES))
    if messages:
        ahead = [_read_list(attributes[name]) or attributes[name] for name in _AHEAD if attributes.get(name)]
        return list(map(_text, [*ahead, *messages]))
    numbered: dict[int, list[str]] = defaultdict(list)
    for name in sorted(attributes):
        if found := _NUMBERED.fullmatch(name):
            numbered[int(found[1])].append(_text(attributes[name]))
    return ["\n".join(numbered[number]) for number in sorted(numbered)]


def _read_list(value: Any) -> list[Any]:
    """Empty where the value is no list; a text may hold one as JSON."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    return list_of(value)


def list_of(value: Any) -> list[Any]:
    """A list; empty where the value is none."""
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """What a model reads of a message: its texts, and not the names of its parts."""
    if isinstance(value, Mapping):
        return "\n".join(_text(each) for key, each in value.items() if key not in _NOT_READ)
    return "\n".join(map(_text, value)) if isinstance(value, list) else str(value)


class Histories:
    """Ids of the blocks of prompts: of those that come first, and of each later one those with which it begins alike."""

    def __init__(self) -> None:
        # By the place of the messages before one and its text: that message's place, and the ids of all blocks up to its end.
        self._places: dict[tuple[int, str], tuple[int, list[str]]] = {}

    def ids(self, name: str, messages: Iterable[str], tokens: int) -> list[str]:
        """The ids of a prompt's whole blocks.

        Args:
            name: of the prompt, like no other. tokens: of the prompt.
        """
        texts = list(messages)
        place, known, shared = 0, 0, list[str]()
        while known < len(texts) and (place, texts[known]) in self._places:
            place, shared = self._places[place, texts[known]]
            known += 1
        blocks = shared[: tokens // BLOCK]
        blocks += [f"{name}/{number}" for number in range(len(blocks), tokens // BLOCK)]
        characters, before = sum(map(len, texts)), sum(map(len, texts[:known]))
        for text in texts[known:]:
            before += len(text)
            new = len(self._places) + 1
            self._places[place, text] = new, blocks[: tokens * before // characters // BLOCK]
            place = new
        return blocks
