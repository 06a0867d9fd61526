"""What a report begins with: a question, its answer, how sure that is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.errors import listed
from bench.shipped import BENCH

_NAMED = 4  # most curves that a line names
MOST_LINES = 8  # most lines of an answer; the tables have the rest
_COMMAND = "make" if BENCH != "bench" else "snakemake"
AGAIN = f"Measure the invalid runs again: `{BENCH} runs --discard invalid`, then the same `{_COMMAND}` command as before."


@dataclass(frozen=True)
class Answer:
    """One question that the runs ask, answered in sentences.

    Attributes:
        name: of the question, as its anchor has it. lines: the answer; where something is not known, that and why. sure: what it
            rests on. do: what follows from it.
    """

    name: str
    question: str
    lines: tuple[str, ...]
    sure: tuple[str, ...] = ()
    do: tuple[str, ...] = ()


def shortened(lines: Sequence[str], most: int = MOST_LINES, where: str = "in the tables below") -> tuple[str, ...]:
    """The first lines, and how many more there are, and where."""
    left = len(lines) - most
    return tuple(lines) if left <= 1 else (*lines[:most], f"And {left} more, {where}.")


def by_advice(found: Iterable[tuple[str, str]]) -> list[str]:
    """Advice for curves, the same for several in one line. Args: found: a curve's name and its advice; empty where there is none."""
    curves: dict[str, list[str]] = {}
    for name, text in found:
        if text:
            curves.setdefault(text, []).append(name)
    return [f"{in_line(names)}: {text}" for text, names in curves.items()]


def in_line(names: Sequence[str]) -> str:
    """Names in a sentence, the first of many with how many more there are."""
    left = len(names) - _NAMED
    return listed(names) if left <= 1 else f"{', '.join(names[:_NAMED])} and {left} more"
