"""Moments in files of records: numbers in some unit, and dates."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal

from bench.errors import BenchError

TraceUnit = Literal["s", "ms", "us", "ns"]
#: Seconds of each unit.
SECONDS: dict[TraceUnit, Decimal] = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")
_NGINX = "%d/%b/%Y:%H:%M:%S %z"
# moments of requests, in seconds since 1970, from 2001 to 2096: other numbers beside them stand for none; convention
EPOCH = (10**9, 4 * 10**9)


def since_1970(low: Decimal | float) -> list[TraceUnit]:
    """The units in which a number is a moment of our time, counted from 1970: one or none."""
    return [name for name, seconds in SECONDS.items() if EPOCH[0] <= Decimal(low) * seconds < EPOCH[1]]


def number_of(value: Any) -> Decimal | None:
    """A number, exactly as it is written; None for anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        return None
    return Decimal(repr(value) if isinstance(value, float) else value)


def date_s(value: Any) -> Decimal | None:
    """Seconds since 1970 of a `date_of`; without a zone it is UTC. None for anything else."""
    if (date := date_of(value)) is None:
        return None
    since = (date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return Decimal(since // timedelta(microseconds=1)).scaleb(-6)


def date_of(value: Any) -> datetime | None:
    """A date and time, or that of its text, as ISO 8601 or nginx have it, in its own zone. None for anything else: a date such as
    11/10/2026 may be of October or November.
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        iso = re.sub(r" (?=[+-]\d\d:?\d\d$)", "", re.sub(" UTC$", "Z", value))
        for read in (partial(datetime.fromisoformat, iso), partial(datetime.strptime, value.strip("[]"), _NGINX)):
            with suppress(ValueError):
                return read()
    return value if isinstance(value, datetime) else None


def refuse_days(path: str, column: str, dates: Sequence[datetime | None]) -> None:
    """Refuse several arrivals that are all midnights, each in its own zone."""
    known = [each for each in dates if each]
    if len(known) > 1 and all(each.time() == datetime.min.time() for each in known):
        raise BenchError(
            f"{path}: {column} holds dates without a time of day, which do not say when requests came. Export them with their "
            f"time, as {known[0].date()}T16:45:00Z."
        )
