"""Moments in files of records: numbers in some unit, and dates."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

TraceUnit = Literal["s", "ms", "us", "ns"]
#: Seconds of each unit.
SECONDS: dict[TraceUnit, Decimal] = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")
_EPOCH = (10**9, 4 * 10**9)  # moments that are taken for seconds since 1970, from 2001 to 2096; convention


def since_1970(low: Decimal | float) -> list[TraceUnit]:
    """The units in which a number is a moment of our time, counted from 1970: one or none."""
    return [name for name, seconds in SECONDS.items() if _EPOCH[0] <= Decimal(low) * seconds < _EPOCH[1]]


def number_of(value: Any) -> Decimal | None:
    """A number, exactly as it is written; None for anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        return None
    return Decimal(repr(value) if isinstance(value, float) else value)


def date_s(value: Any) -> Decimal | None:
    """Seconds since 1970 of a date and time, or of its ISO text; without a time zone it is UTC. None for anything else."""
    moment = date_of(value)
    if moment is None:
        return None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return Decimal(since // timedelta(microseconds=1)).scaleb(-6)


def date_of(value: Any) -> datetime | None:
    """A date and time, or what its ISO text says, with a zone where it has one; None for anything else."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        try:
            return datetime.fromisoformat(value.removesuffix(" UTC") + ("+00:00" if value.endswith(" UTC") else ""))
        except ValueError:
            return None
    return value if isinstance(value, datetime) else None
