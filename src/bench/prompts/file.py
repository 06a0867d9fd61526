"""Prompts of one's own, from a file: texts, or the messages of chats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from bench.endpoints import Endpoint, Prompt
from bench.errors import BenchError, shown
from bench.prompts.kind import Making, Source, Wanted
from bench.prompts.random_ids import VOCABULARY_OF_LETTERS, letters, prompt_ids
from bench.table_file import Row, read_rows

__all__ = ["PromptFile"]

_TEXT, _CHAT = "prompt", "messages"
_MARK = 8  # letters ahead of a prompt: one of 2 × 10¹¹ texts, each of as many tokens


class PromptFile(Source):
    """Each row of a file is a prompt. A run sends them in an order drawn by the seed, and begins again when all are sent.

    A prefix cache would know them from an earlier run, so each begins with eight letters of its own, or of its run.
    """

    name: ClassVar[str] = "file"
    meaning: ClassVar[str] = (
        "a CSV, JSONL or Parquet file, its path from the project's root, with a column `prompt` (a text) or `messages` (of a chat: "
        "objects with `role` and `content`; an answer at its end is left out). Prompts have their own lengths, as the server counts "
        "them, and are sent in an order drawn by the seed. Each begins with a line of eight letters, so that no prefix cache knows it "
        "from an earlier run (`cache`). The path alone says the same: `prompts: my/prompts.jsonl`"
    )
    sized: ClassVar[bool] = False
    caches: ClassVar[tuple[str, ...]] = ("unique", "natural")

    source: Literal["file"]
    file: str = Field(description="`file`: the path.")

    @property
    def files(self) -> list[str]:
        return [self.file]

    def check(self, endpoint: Endpoint) -> None:
        prompts = _read(self.file)
        chat = next((place for place, prompt in prompts if not isinstance(prompt, str)), None)
        if chat is not None and not endpoint.chats:
            raise BenchError(
                f"{self.file}: {chat} has the messages of a chat, and endpoint {endpoint.name} takes a text. Use endpoint chat."
            )

    def described(self) -> str:
        sizes = sorted(len(prompt) if isinstance(prompt, str) else sum(map(_letters, prompt)) for _, prompt in _read(self.file))
        count = f"{len(sizes):,} prompt{'' if len(sizes) == 1 else 's'}"
        if sizes[0] == sizes[-1]:
            return f"{count} of {sizes[0]:,} characters"
        return f"{count} of {sizes[0]:,} to {sizes[-1]:,} characters ({sizes[len(sizes) // 2]:,} in the median)"

    def maker(self, making: Making) -> Callable[[Wanted], Prompt]:
        self.check(making.endpoint)
        prompts = _read(self.file)

        def make(wanted: Wanted) -> Prompt:
            time, place = divmod(wanted.conversation, len(prompts))
            _, prompt = prompts[_order(len(prompts), f"{making.schedule_seed}/prompts/{time}")[place]]
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


@cache
def _read(path: str) -> list[tuple[str, Prompt]]:
    """Each prompt of a file with the place at which it stands.

    Raises:
        BenchError: it is missing, or has none.
    """
    rows = read_rows(path, what="file of prompts")
    if not rows:
        raise BenchError(f"{path}: holds no prompts.")
    return [(row.place, _prompt(path, row)) for row in rows]


def _prompt(path: str, row: Row) -> Prompt:
    text, chat = row.values.get(_TEXT), row.values.get(_CHAT)
    chat = None if chat == "" else chat  # an empty cell of a CSV file
    _refuse_unsent(path, row, _TEXT if chat is None else _CHAT)
    if text is None and chat is None:
        raise BenchError(f"{path}: {row.place} has no {_TEXT} and no {_CHAT}. Found: {', '.join(map(str, row.values))}.")
    if chat is None:
        if not isinstance(text, str) or not text.strip():
            raise BenchError(f"{path}: {row.place}, {_TEXT}: {shown(str(text), 60)} is not a text.")
        return text
    try:
        messages: Any = json.loads(chat) if isinstance(chat, str) else chat  # a cell of a CSV file
    except ValueError:
        messages = None
    if isinstance(messages, list):  # of Parquet each message has every key
        messages = [{k: v for k, v in x.items() if v is not None} if isinstance(x, dict) else x for x in messages]
    whole = isinstance(messages, list) and all(isinstance(x, dict) and x.get("role") and _said(x) for x in messages)
    while whole and messages and messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    if not whole or not messages:
        raise BenchError(
            f"{path}: {row.place}, {_CHAT}: {shown(str(chat), 60)} is not a list of messages, each with `role` and `content`, at least "
            "one of which is not an answer."
        )
    found: list[Mapping[str, Any]] = messages
    return found


def _said(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if message["role"] == "assistant" and message.get("tool_calls") and not content:
        return True
    parts = isinstance(content, list) and all(isinstance(x, dict) for x in content)
    return bool(content) and (isinstance(content, str) or parts)


def _letters(message: Any) -> int:
    content = message.get("content") or ""
    return len(content) if isinstance(content, str) else sum(len(str(part.get("text") or "")) for part in content)


def _refuse_unsent(path: str, row: Row, column: str) -> None:
    """Raises BenchError where a value cannot be sent: half of a character, or what JSON does not have."""
    try:
        json.dumps(row.values.get(column), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BenchError(f"{path}: {row.place}, {column}: cannot be sent as JSON: {error}.") from None
