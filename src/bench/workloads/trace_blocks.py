"""What prompts of a trace share: blocks, named by `hash_ids`, up to the first in which two of them differ."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

from bench.errors import BenchError, shown


class Chains:
    """Numbers of blocks. Two prompts have the same number at a place if all of their ids up to there are the same, and only then.

    An id by itself says too little: Bailian hashes each block alone, so one that comes again behind another beginning keeps its id, and
    no prefix cache could serve it there.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        self._count = 0

    def of(self, ids: Sequence[int | str], tokens: int, size: int) -> tuple[int, ...]:
        """Numbers of a prompt's blocks; the last may be cut short. What no id names is shared with no other prompt.

        Args:
            ids: of its blocks, all or all but the last. tokens: of the prompt. size: tokens of a block.

        Raises:
            ValueError: so many ids are not the blocks of such a prompt.
        """
        whole, rest = divmod(tokens, size)
        if ids and len(ids) not in (whole, whole + bool(rest)):
            raise ValueError(
                f"{len(ids)} ids do not fit a prompt of {tokens} tokens, which has {whole + bool(rest)} blocks of {size}"
            )
        numbers: list[int] = []
        before: Hashable = ("of", size)
        for name in ids:
            key = (before, name)
            if key not in self._numbers:
                self._numbers[key] = self._new()
            before = self._numbers[key]
            numbers.append(self._numbers[key])
        numbers += [self._new() for _ in range(len(ids), whole + bool(rest))]
        return tuple(numbers)

    def _new(self) -> int:
        self._count += 1
        return self._count - 1


def hash_ids(value: Any, where: str) -> list[int | str]:
    """The ids in a cell: a list of numbers or texts, or such a list as JSON; none where it is empty."""
    if value in (None, ""):
        return []
    names = value
    if isinstance(value, str):
        with suppress(ValueError):
            names = json.loads(value)
    if not isinstance(names, list) or any(isinstance(name, bool) or not isinstance(name, int | str) for name in names):
        raise BenchError(f"{where}: {shown(str(value), 60)} is not a list of ids, such as [46, 47].")
    return names
