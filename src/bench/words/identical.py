"""In words: how many answers of a deployment are those of its baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.analysis import Comparison
from bench.errors import count_text
from bench.words.comparison import place_text

_UNKNOWN = {
    "baseline": "the baseline's were not kept (keep_answers)",
    "candidate": "the candidate's were not kept (keep_answers)",
    "temperature": "requests do not all ask for temperature 0, so answers differ by chance",
    "requests": "no request is the same on both sides; of prompts of a file, cache: as_is makes it the same",
}


def same_answers(found: Comparison, row: Mapping[str, Any]) -> str:
    """How many answers are the same at a level. Args: row: of `found.answers`."""
    place = place_text(found, row)
    if row["unknown"]:
        return f"{place}: whether answers are identical is not known: {_UNKNOWN[row['unknown']]}"
    prompts = f" to {count_text(row['prompts'], 'distinct request')}" if row["prompts"] < row["answers"] else ""
    share = share_text(row["share"], row["low"], row["high"])
    return f"{place}: identical answers: {row['identical']} of {row['answers']}{prompts} ({share})"


def share_text(share: float, low: float, high: float) -> str:
    """A share with its interval, such as `80 %, between 64 and 91 % at 95 % confidence`."""
    return f"{100 * share:.0f} %, between {100 * low:.0f} and {100 * high:.0f} % at 95 % confidence"
