"""The one error that a user is meant to read."""

from typing import Any

__all__ = ["BenchError", "shown"]


class BenchError(Exception):
    """Something the user can fix: the message names what was wrong, where, and what to do.

    The command line prints it without a traceback and exits 2; rules let it end the job.
    """


def shown(value: Any, most: int = 120) -> str:
    """A user's value as a message quotes it: `most` characters of it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes; a list within itself
        return "a value too long to print"
    return text if len(text) <= most else f"{text[:most]}…"
