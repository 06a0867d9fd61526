"""The house style of docstrings for readers that expect one name a line: `Args: path: of the file. older: what they lack.`"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import griffe

__all__ = ["OneNameALine", "split", "spread"]

_SECTION = re.compile(r"^( *)(Args|Attributes):[ \n]+((?:\1 +\S.*\n?|\n(?=\1 ))+|.*\n?)", re.MULTILINE)


def split(text: str, names: Collection[str]) -> Iterator[tuple[list[str], str]]:
    """The entries of a section: the names that one is about, and what it says of them.

    Args:
        text: of the section, without its title. names: those that may have an entry; one may stand for all that begin with it.
    """
    text = " ".join(text.split())
    known = [
        match
        for match in re.finditer(r"(?:^|(?<=[.;] ))((?:\w+, )*\w+): ", text)
        if all(any(name == each or name.startswith(f"{each}_") for name in names) for each in match[1].split(", "))
    ]
    ends = [match.start() for match in known[1:]] + [len(text)] * bool(known)
    for match, end in zip(known, ends, strict=True):
        yield match[1].split(", "), text[match.end() : end].strip().rstrip(";")


def spread(docstring: str, names: Collection[str]) -> str:
    """`docstring` with one name a line in its sections of arguments and attributes."""

    def section(match: re.Match[str]) -> str:
        lines = [f"{match[1]}    {name}: {text}" for group, text in split(match[3], names) for name in group]
        return f"{match[1]}{match[2]}:\n" + "\n".join(lines) + "\n" if lines else match[0]

    return _SECTION.sub(section, docstring)


class OneNameALine(griffe.Extension):
    """Spreads the docstrings that Griffe reads."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        self._spread(func, [parameter.name for parameter in func.parameters])

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        self._spread(cls, [*cls.members, *(parameter.name for parameter in cls.parameters)])

    @staticmethod
    def _spread(thing: griffe.Object, names: Collection[str]) -> None:
        if thing.docstring:
            thing.docstring.value = spread(thing.docstring.value, names)
