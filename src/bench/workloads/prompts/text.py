"""Prompts of exact lengths, cut from a text: what a model reads is language, where random tokens are none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field

from bench.errors import BenchError
from bench.table_file import read_text
from bench.workloads.endpoints import Endpoint, Prompt
from bench.workloads.prompts.kind import Making, Source, Wanted

_FEWEST = 4096  # characters of a text; convention
_MARK = 4  # tokens at a prompt's beginning that are drawn one by one, so that no prefix cache knows it


class CutText(Source):
    """Pieces of a text, of the lengths that the workload asks for, each from a place of its own."""

    name: ClassVar[str] = "text"
    meaning: ClassVar[str] = (
        "pieces of a text file, of exactly the lengths asked for, in the tokens that the server's `/tokenize` makes of it. Each begins "
        "with four of the text's tokens at random, so that no prefix cache knows it. A text shorter than a prompt is repeated"
    )
    sized: ClassVar[bool] = True
    caches: ClassVar[tuple[str, ...]] = ("unique",)

    source: Literal["text"] = Field(description="Pieces of a text.")
    file: str = Field(description="The path of the file, whose first MiB is used.")

    @property
    def files(self) -> list[str]:
        return [self.file]

    def check(self, endpoint: Endpoint, turns: int = 1) -> None:
        if "token_ids" in endpoint.lacks or turns > 1:
            where = f"endpoint {endpoint.name}" if turns == 1 else "turns"
            raise BenchError(
                f"{self.file}: pieces of exact lengths are sent as token ids, which {where} cannot be. Use completions."
            )
        if len(self._text()) < _FEWEST:
            raise BenchError(
                f"{self.file}: is a text of {len(self._text()):,} characters: its pieces would be alike. Give {_FEWEST:,} or more."
            )

    def described(self, turns: int = 1) -> str:  # noqa: ARG002
        return f"pieces of {self.file}, a text of {len(self._text()):,} characters"

    def maker(self, making: Making) -> Callable[[Wanted], Prompt]:
        self.check(making.endpoint, making.turns)
        if making.endpoint.sends_text(making.form):
            raise BenchError(f"{self.file}: pieces of exact lengths are sent as token ids, which the server does not take.")
        tokens = making.tokenized(self._text())
        if not tokens:
            raise BenchError(f"{self.file}: the server makes no tokens of it.")

        def make(wanted: Wanted) -> Prompt:
            drawn = hashlib.shake_256(f"{making.seed}/{wanted.conversation}".encode()).digest(8 * (_MARK + 1))
            start, *marks = (int.from_bytes(drawn[i : i + 8], "little") % len(tokens) for i in range(0, len(drawn), 8))
            piece = [tokens[place] for place in marks]
            while len(piece) < wanted.prompt_tokens:
                piece += tokens[start : start + wanted.prompt_tokens - len(piece)]
                start = 0
            return piece[: wanted.prompt_tokens]

        return make

    def _text(self) -> str:
        return read_text(self.file, what="text")[: 2**20]
