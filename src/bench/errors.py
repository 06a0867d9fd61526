"""The one error that a user is meant to read."""

import difflib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from os import PathLike
from typing import Any

_FIXES = {
    "Make room": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "Give this user access": (errno.EROFS, errno.EACCES, errno.EPERM),
    "Move what stands there away": (errno.EISDIR, errno.ENOTDIR, errno.EEXIST),
}


class BenchError(Exception):
    """Something the user can fix: the message names what was wrong, where, and what to do.

    The command line prints it without a traceback and exits 2; rules let it end the job.
    """


def disk_error(error: Exception) -> str | None:
    """What to do about a file that could not be written; None where `error` is another one."""
    if not isinstance(error, OSError):
        # Polars names neither the file nor the reason where a Parquet file finds no room: its own writer failed, of all that may.
        full = "transport error" in str(error) or "No space left on device" in str(error)
        return disk_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) if full else None
    number = error.errno
    if number is None and "No space left on device" in str(error):  # libraries in Rust raise an OSError without a number
        number = errno.ENOSPC
    fix = next((fix for fix, numbers in _FIXES.items() if number in numbers), None)
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}. {fix} and run again." if fix else None


@contextmanager
def writing_to(path: PathLike[str]) -> Iterator[None]:
    """Name the path in the error of a file that could be opened and not be filled, which the system does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def shown(value: Any, most: int = 120) -> str:
    """A user's value as a message quotes it: `most` characters of it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes; a list within itself
        return "a value too long to print"
    return text if len(text) <= most else f"{text[:most]}…"


def shown_size(size: float) -> str:
    """A number of bytes as a message gives it, such as `1.5 GiB`, `48 MiB` or `16 KiB`."""
    units = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
    unit = next((unit for unit, bytes_each in units.items() if size >= bytes_each), None)
    return f"{size / units[unit]:,.2f}".rstrip("0").rstrip(".") + f" {unit}" if unit else f"{size:.0f} bytes"


def shown_gib(size: float) -> str:
    """A number of bytes in GiB, whose unit stands beside it, such as `1.50`."""
    return f"{size / 2**30:.2f}"


def two_digits(value: float) -> str:
    """A value with two significant digits and no exponent, such as `110` or `0.37`."""
    return _without_exponent(f"{value:.2g}")


def three_digits(value: float) -> str:
    """A value with three significant digits, thousands whole and with commas, and no exponent."""
    rounded = f"{value:.3g}"
    return f"{value:,.0f}" if abs(float(rounded)) >= 1000 else _without_exponent(rounded)


def _without_exponent(number: str) -> str:
    return f"{Decimal(number):f}" if "e" in number else number


def signed_percent(share: float, digits: int = 1) -> str:
    """A share as a difference in percent, such as `−4.1` or `+12.0`; without a sign where it rounds to 0."""
    text = f"{100 * share:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def shown_share(share: float, digits: int = 0) -> str:
    """A share (0–1, or more) as a text gives it, such as `16 %` or `1.5 %`."""
    return f"{100 * share:.{digits}f} %"


def count_text(number: int | str, what: str, *, of: int | None = None) -> str:
    """A count with its noun, such as `1 run`, `2 runs` or `1 of 3 runs`. Args: number: or its text. of: all that there are."""
    last = number if of is None else of
    return f"{number if of is None else f'{number} of {of}'} {what}{'' if str(last) == '1' else 's'}"


def throughput_text(per_s: float | None, unit: str = "tokens") -> str:
    """Tokens a second, such as `1,250 output tokens/s`; None: the server did not count them."""
    return f"{unit}/s not known" if per_s is None else f"{per_s:,.0f} {unit}/s"


def listed(names: Sequence[str], last: str = "and") -> str:
    """Names in a sentence, such as `TTFT, makespan and throughput`. Args: last: the word before the last one."""
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else "".join(names)


_NAMED = 8  # most names that a message lists; convention


def first_names(names: Sequence[str], most: int = _NAMED) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def is_are(number: int) -> str:
    """`is` or `are`, as follows so many."""
    return "is" if number == 1 else "are"


def was_were(number: int) -> str:
    """`was` or `were`, as follows so many."""
    return "was" if number == 1 else "were"


def meant(key: str, known: Iterable[str]) -> str | None:
    """The one of the `known` keys or words that was meant; None where none comes near."""
    known, written = list(known), key.lower().replace("-", "_")
    return written if written in known else next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.75)), None)
