"""The comment at the head of each form."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from bench.export.exported import Exported

_WIDTH = 120  # characters of a line; convention


def head(exported: Exported, *further: str) -> str:
    """What was measured, what was held fixed, and what is left out. Args: further: what to know of the form."""
    first = f"The deployment {exported.deployment}, as it was measured. What it reached holds while these stay as they were:"
    lines = [comment([first]), comment(exported.held, "- ")]
    if notes := [*filter(None, further), *exported.notes]:
        lines += ["#\n", comment(["To know:"]), comment(notes, "- ")]
    return "".join(lines)


def comment(texts: Iterable[str], mark: str = "") -> str:
    """Texts as comments of a shell and of YAML, each wrapped on its own."""
    wrapped = (
        textwrap.wrap(f"{mark}{' '.join(text.split())}", _WIDTH - 2, subsequent_indent=" " * len(mark), break_long_words=False)
        for text in texts
    )
    return "".join(f"# {line}\n" for lines in wrapped for line in lines)
