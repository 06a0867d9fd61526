"""How long each request of a log took: durations, or the moments at which answers ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.traffic.columns import unit_in_name
from bench.traffic.moments import numbers_of, on_clock
from bench.workloads.trace_times import SECONDS, TraceUnit, date_of, since_1970

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clock:
    """How arrivals were read.

    Attributes:
        column, moments: the arrivals' (s). dated: whether they count from 1970. unit: that the user gave. bare: whether dates have no
            zone of their own. zone: that those are in.
    """

    column: str
    moments: Floats
    dated: bool
    unit: TraceUnit | None
    bare: bool | None
    zone: tzinfo | None


def without_zone(values: Sequence[Any]) -> bool:
    return any(date is not None and date.tzinfo is None for date in map(date_of, values))


def durations_of(
    columns: Mapping[str, str],
    values: Mapping[str, Sequence[Any]],
    clock: Clock,
    order: npt.NDArray[np.intp],
    notes: list[str],
) -> Floats | None:
    """From arrival to answer (s), NaN where not known; None, with a note, where no column says it on a known clock."""
    why = ""
    if "end" in columns:
        found = _ends(columns["end"], values["end"], clock)
        if not isinstance(found, str):
            durations: Floats = (found - clock.moments)[order]
            if (durations >= 0).any():
                return durations
            found = f"{columns['end']} is before {clock.column} in all rows"
        why = found
    if "duration" in columns:
        unit = unit_in_name(columns["duration"])
        if unit is not None:
            return numbers_of(values["duration"])[order] * float(SECONDS[unit])
        why = f"the name of {columns['duration']} does not say its unit (duration_s would)"
    if why:
        notes.append(f"Concurrency is not known: {why}.")
    return None


def _ends(column: str, values: Sequence[Any], clock: Clock) -> Floats | str:
    """Moments at which answers ended, from the zero of arrivals on (s), NaN where not known; or why none is."""
    dates = [date_of(value) for value in values]
    if any(dates):
        if not clock.dated:
            return f"{column} holds dates, and {clock.column} none"
        if clock.zone is None and {each.tzinfo is None for each in dates if each} != {clock.bare}:
            return f"one of {clock.column} and {column} has a time zone, the other none (--time-zone says it)"
        found, again = on_clock(dates, clock.zone)
        return np.where(again > found, math.nan, found)  # an end is not in order, which would tell both times apart
    numbers = numbers_of(values)
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return f"{column} holds no moments"
    middle = float(np.median(known))
    since, said = since_1970(middle), unit_in_name(column)
    if clock.dated:
        if not since or said not in (None, *since):
            return f"{column} holds no dates, and {clock.column} does"
        return numbers * float(SECONDS[since[0]])
    unit = clock.unit if clock.unit and said == unit_in_name(clock.column) else said or clock.unit or unit_in_name(clock.column)
    if unit is None:
        return f"the unit of {column} is not known (its name may say it, as end_s does)"
    if unit in since:
        return f"{column} holds dates, and {clock.column} none"
    return numbers * float(SECONDS[unit])
