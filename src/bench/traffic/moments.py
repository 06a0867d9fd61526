"""When each request of a log came: dates, numbers, their units, and clocks that are put back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.errors import BenchError, shown
from bench.table_file import Row
from bench.traffic.columns import unit_in_name
from bench.workloads.trace import Format, unit_not_known
from bench.workloads.trace_times import SECONDS, TraceUnit, date_of, refuse_days, since_1970

Floats = npt.NDArray[np.float64]
_CLOCK_BACK = (
    1500.0,
    3660.0,
)  # least and longest step back of a clock when summer time ends (s): half an hour to one; convention
_YEAR_S = 365.0 * 86_400  # seconds of a year; derived
YEARS = (2001, 2095)  # first and last year of a request; derived: those of numbers that are taken for seconds since 1970
SINCE_1970 = tuple(datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (YEARS[0], YEARS[1] + 1))


def moments_of(
    path: str,
    rows: Sequence[Row],
    column: str,
    values: Sequence[Any],
    form: Format | None,
    unit: TraceUnit | None,
    zone: tzinfo | None,
    notes: list[str],
) -> tuple[Floats, bool]:
    """Seconds of each row, NaN where there is no moment; and whether they are dates, counted from 1970."""
    first = next((value for value in values if value not in (None, "")), None)
    numbers = numbers_of(values)
    if first is None or math.isnan(numbers_of([first])[0]):
        if unit is not None:
            raise BenchError(f"{path}: {column} holds dates, which have no unit. Leave --time-unit out.")
        return _dates(path, rows, column, values, zone, notes), True
    known = numbers[~np.isnan(numbers)]
    since = since_1970(float(known.min())) if known.min() > 0 else []
    published = form.unit if form else unit_in_name(column)
    whole = bool((known == np.round(known)).all())
    reason = "neither its name nor its numbers say it"
    if published and since and published not in since:
        reason = f"in {published} the first would be long before or after our time; in {since[0]} it is a date of our time"
        published = None
    elif form and form.whole and not whole:
        reason = f"{form.publisher}'s are whole numbers of milliseconds, and these have fractions"
        published = None
    else:
        published = published or (since[0] if since else None)
    found = unit or published
    if found is None:
        units: dict[str, TraceUnit] = {f"--time-unit {name}": name for name in dict.fromkeys([*since, "s", "ms"])}
        raise unit_not_known(path, column, reason, "Say it", units, [Decimal(repr(float(x))) for x in known])
    seconds = numbers * float(SECONDS[found])
    dates = (seconds >= SINCE_1970[0]) & (seconds < SINCE_1970[1])
    if not dates.sum() * 2 > len(known):
        return seconds, False
    if odd := len(known) - int(dates.sum()):
        notes.append(_odd_note(odd, column))
    return np.where(dates, seconds, math.nan), True


def _dates(path: str, rows: Sequence[Row], column: str, values: Sequence[Any], zone: tzinfo | None, notes: list[str]) -> Floats:
    """Seconds since 1970 of dates. Those without a zone are in `zone`, or UTC."""
    dates = [date_of(value) for value in values]
    if not any(dates):
        odd = next((value for value in values if value not in (None, "")), None)
        raise BenchError(
            f"{path}: {column}: {shown(str(odd), 40)} is no date and time that is read, and no number. Write it with the year "
            "first, which no order of day and month confuses: 2026-11-28T16:45:00Z. Or name another column: --columns arrival=NAME."
        )
    refuse_days(path, column, dates)
    bare = sum(each is not None and each.tzinfo is None for each in dates)
    if bare and zone is None:
        if bare < sum(each is not None for each in dates):
            raise BenchError(f"{path}: {column}: some dates have a time zone, and others none. Say theirs: --time-zone NAME.")
        notes.append(f"Dates in {column} have no time zone; they were taken for UTC (--time-zone says another).")
    found, again = on_clock(dates, zone)
    if odd := sum(each is not None for each in dates) - int((~np.isnan(found)).sum()):
        notes.append(_odd_note(odd, column))
    known = np.flatnonzero(~np.isnan(found))
    if (np.diff(found[known]) < 0).sum() * 2 > len(known) - 1:
        known = known[::-1]  # the latest first, as consoles list them
    if bare and zone is None:
        _refuse_summer_time(path, rows, column, found, known)
    twice = known[again[known] > found[known]]
    if not len(twice):
        return found
    for hour in np.split(twice, np.flatnonzero(np.diff(found[twice]) > _CLOCK_BACK[1]) + 1):
        back = np.flatnonzero(np.diff(found[hour]) <= -_CLOCK_BACK[0])
        if len(back) == 1:
            second = hour[back[0] + 1 :]
            found[second] = again[second]
        else:
            twice = hour[:1]
            break
    else:
        if (np.diff(found[known]) >= 0).all():
            return found
    raise BenchError(
        f"{path}: {rows[twice[0]].place}: {column} {dates[twice[0]]} comes twice in {zone}, where summer time ends, and the order of "
        "rows does not say which it is. Give dates with their offset: 2026-10-25T02:30:00+02:00."
    )


def on_clock(dates: Sequence[datetime | None], zone: tzinfo | None) -> tuple[Floats, Floats]:
    """Seconds since 1970, and those of the second time if a clock of the zone shows a date twice; NaN for dates that stand for none."""
    found, again = np.full(len(dates), math.nan), np.full(len(dates), math.nan)
    for i, each in enumerate(dates):
        if each is not None and YEARS[0] <= each.year <= YEARS[1]:
            local = each if each.tzinfo else each.replace(tzinfo=zone or UTC)
            found[i] = local.timestamp()
            again[i] = found[i] if each.tzinfo or zone is None else local.replace(fold=1).timestamp()
    return found, again


def _odd_note(count: int, column: str) -> str:
    what = "1 row with a date" if count == 1 else f"{count:,} rows with dates"
    return f"{what} before {YEARS[0]} or after {YEARS[1]} in {column}, which {'stands' if count == 1 else 'stand'} for none."


def _refuse_summer_time(path: str, rows: Sequence[Row], column: str, found: Floats, known: npt.NDArray[np.intp]) -> None:
    """Raises BenchError where arrivals are in order but for a step back by the hour of summer time, once a year.

    Args:
        known: rows with a moment, the earliest first.
    """
    steps = np.diff(found[known])
    back = np.flatnonzero(steps <= -_CLOCK_BACK[0])
    years = 1 + np.ptp(found[known]) / _YEAR_S
    if 1 <= len(back) <= years and (-steps[back] <= _CLOCK_BACK[1]).all():
        place = rows[known[back[0] + 1]].place
        raise BenchError(
            f"{path}: {place}: {column} steps back by {-steps[back[0]] / 60:.0f} min, as clocks do when summer time ends. Say which "
            "time it is: --time-zone Europe/Berlin, say, or --time-zone UTC to leave it so."
        )


def numbers_of(values: Sequence[Any]) -> Floats:
    """Finite numbers; NaN for anything else."""
    texts = [
        value
        if isinstance(value, str)
        else str(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else None
        for value in values
    ]
    found = pl.Series(texts, dtype=pl.String).cast(pl.Float64, strict=False).to_numpy()
    return np.where(np.isfinite(found), found, math.nan)
