"""What prompts of a log have in common with those before them."""

from __future__ import annotations

from collections.abc import Iterable

BLOCK = 64  # characters of a block; derived: vLLM's 16 tokens, at four characters of English each


def shared_share(texts: Iterable[str]) -> float | None:
    """Share of the characters that a prefix cache without bounds would find, whole blocks from the beginning on (0–1).

    Args:
        texts: in order of arrival.

    Returns:
        None where they have no characters.
    """
    seen: set[int] = set()
    found = characters = 0
    for text in texts:
        characters += len(text)
        ahead = 0  # of the blocks so far, so that one is found only behind the same others
        for at in range(0, len(text) - BLOCK + 1, BLOCK):
            ahead = hash((ahead, text[at : at + BLOCK]))
            found += BLOCK * (ahead in seen)
            seen.add(ahead)
    return found / characters if characters else None
