"""Prompts of one's own, from a file: texts, or the messages of chats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from bench.endpoints import Prompt
from bench.errors import BenchError, shown
from bench.prompts.own import Own, OwnPrompt
from bench.table_file import Row, read_rows

__all__ = ["PromptFile"]

_TEXT, _CHAT = "prompt", "messages"


class PromptFile(Own):
    """Each row of a file is a prompt."""

    name: ClassVar[str] = "file"
    meaning: ClassVar[str] = (
        "a CSV, JSONL or Parquet file, its path from the project's root, with a column `prompt` (a text) or `messages` (of a chat: "
        "objects with `role` and `content`; an answer at its end is left out). Prompts have their own lengths, as the server counts "
        "them, and are sent in an order drawn by the seed. Each begins with a line of eight letters, so that no prefix cache knows it "
        "from an earlier run (`cache`). The path alone says the same: `prompts: my/prompts.jsonl`"
    )

    source: Literal["file"]
    file: str = Field(description="`file`: the path.")

    @property
    def files(self) -> list[str]:
        return [self.file]

    def read(self) -> Sequence[OwnPrompt]:
        return _read(self.file)


@cache
def _read(path: str) -> list[OwnPrompt]:
    rows = read_rows(path, what="file of prompts")
    if not rows:
        raise BenchError(f"{path}: holds no prompts.")
    return [OwnPrompt(row.place, _prompt(path, row)) for row in rows]


def _prompt(path: str, row: Row) -> Prompt:
    text, chat = row.values.get(_TEXT), row.values.get(_CHAT)
    chat = None if chat == "" else chat  # an empty cell of a CSV file
    _refuse_unsent(path, row, _TEXT if chat is None else _CHAT)
    if not row.values.keys() & {_TEXT, _CHAT}:
        names = ", ".join(map(str, row.values))
        raise BenchError(f"{path}: {row.place} has no column {_TEXT} or {_CHAT}; it has {names}. Rename one.")
    if text is None and chat is None:
        raise BenchError(f"{path}: {row.place} is empty: it has no {_TEXT} and no {_CHAT}.")
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


def _refuse_unsent(path: str, row: Row, column: str) -> None:
    """Raises BenchError where a value cannot be sent: half of a character, or what JSON does not have."""
    try:
        json.dumps(row.values.get(column), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BenchError(f"{path}: {row.place}, {column}: cannot be sent as JSON: {error}.") from None
