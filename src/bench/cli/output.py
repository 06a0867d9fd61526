"""Results on standard output: tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["print_json", "print_table"]


def print_table(rows: Sequence[Sequence[str]], align: str = "") -> None:
    """Print rows, the head among them, in columns.

    Args:
        align: `<` or `>` for each column; without it, the first is left and the others right.
    """
    align = align or "<" + ">" * (len(rows[0]) - 1)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)).rstrip())


def print_json(content: Any) -> None:
    """Print a result for another program."""
    print(json.dumps(content, indent=2))
