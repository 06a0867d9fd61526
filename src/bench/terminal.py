"""Standard output and standard error that take any text, whatever the terminal's encoding."""

from __future__ import annotations

import codecs
import io
import sys

# What stands for a character that an encoding lacks; `?` for any other.
_PLAIN = {
    **{"–": "-", "−": "-", "—": "-", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "×": "x", "÷": "/", "±": "+-", "·": "*"},
    **{"…": "...", "→": "->", "“": '"', "”": '"', "‘": "'", "’": "'", "µ": "u", "μ": "u", "²": "^2", "√": "sqrt", "█": "#"},
}


def print_anything() -> None:
    """Let this process print characters that its terminal's encoding lacks (of Latin-1, or of a C locale) as plain ones."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end
