"""What a report begins with: a question, its answer, how sure that is, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AGAIN", "MOST_LINES", "Answer", "listed", "shortened"]

MOST_LINES = 8  # of an answer; what there is beyond stands in the tables
AGAIN = "Measure the invalid runs again: `bench discard --invalid`, then the same make."


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


def shortened(lines: Sequence[str], most: int = MOST_LINES) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    left = len(lines) - most
    return tuple(lines) if left <= 1 else (*lines[:most], f"And {left} more, in the tables below.")


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, such as `TTFT, makespan and throughput`."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
