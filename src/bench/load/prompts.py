"""Prompts as token ids: exact lengths, alike as far as the workload demands and no further."""

from __future__ import annotations

import hashlib

__all__ = ["FIRST_ID", "prompt_ids", "request_ids"]

FIRST_ID = 3  # below it lie the special tokens of nearly every vocabulary (begin, end, padding)


def prompt_ids(seed: str, index: int | str, length: int, vocabulary: int) -> list[int]:
    """Token ids of one prompt, the same on any machine for the same arguments; a shorter one is a prefix of a longer one.

    The ids are an extendable-output hash of the seed and the index, so prompts of different runs or conversations share no prefix
    that a cache could serve, without any record of what was drawn before.

    Args:
        seed: text that no other run uses (a run's digest, say).
        index: number of the conversation in its run.
        length: ids to return.
        vocabulary: ids lie in [3, vocabulary).
    """
    stream = hashlib.shake_256(f"{seed}/{index}".encode()).digest(4 * length)
    span = vocabulary - FIRST_ID
    return [FIRST_ID + int.from_bytes(stream[i : i + 4], "little") % span for i in range(0, 4 * length, 4)]


def request_ids(seed: str, conversation: int, shared: int, length: int, vocabulary: int) -> list[int]:
    """The first `length` ids of a request's prompt: `shared` that its run shares, then what its conversation does.

    A later turn's prompt begins with all of the turns before it: it is a longer piece of the same stream.
    """
    shared = min(shared, length)
    head = prompt_ids(seed, "shared", shared, vocabulary) if shared else []
    return head + prompt_ids(seed, conversation, length - shared, vocabulary)
