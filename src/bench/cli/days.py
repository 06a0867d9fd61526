"""What `bench fleet` says of traffic that changes over a day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.cli.output import print_table
from bench.errors import shown_share

if TYPE_CHECKING:
    from bench.predict.calibration import Doubt, Interval
    from bench.predict.day import Day, Hour

HOUR_S = 3600.0
MOST = 16  # instances that are replayed together
MOST_REQUESTS = 3_000_000  # of a replay of all the traffic


def print_days(
    days: Sequence[tuple[Day, Sequence[Doubt]]],
    needs: Sequence[Hour],
    notes: Sequence[str],
    starts: str = "",
    price: float | None = None,
) -> None:
    """Print what each hour takes, and what each fleet got.

    Args:
        days: with why not to rely on each. starts: how long an instance takes to start, to follow "All the traffic". price: of an
            instance-hour (USD).
    """
    from bench.words.predicted import doubt_text

    if needs:
        print("\nInstances that each hour's highest rate takes:\n")
        print_table(
            [["hour", "requests/s", "instances"], *([f"{h.number:,}", f"{h.peak:,.3g}", _whole(h.instances)] for h in needs)]
        )
    if days:
        print(f"\nAll the traffic{starts}; ranges are those of three replays, with a slow, a typical and a fast instance:\n")
        head = ["fleet", "instances", "instance-hours", "within all limits", "in the worst hour", "SLOs met in each hour"]
        print_table([head + (["USD"] if price else []), *(_row(day, bool(why), price) for day, why in days)])
    for day, why in days:
        for doubt in why:
            print(f"\nNot predicted, {day.name}: {doubt_text(doubt)}.")
    for note in notes:
        print(f"\n{note}")


def day_numbers(day: Day, why_not: Sequence[Doubt]) -> dict[str, Any]:
    """A day for a program: its numbers, each range as `value`, `low` and `high`, and why not to rely on it."""
    from bench.words.predicted import doubt_text

    numbers = {name: vars(value) if hasattr(value, "low") else value for name, value in vars(day).items() if name != "replays"}
    return numbers | {"doubts": [doubt_text(doubt) for doubt in why_not]}


def yes_text(value: bool | None) -> str:
    """Yes, no, or that it is not known."""
    return {True: "yes", False: "no", None: "not known"}[value]


def interval_text(interval: Interval) -> str:
    """An interval with its value, three digits each."""
    return f"{interval.value:.3g} ({interval.low:.3g} to {interval.high:.3g})"


def _row(day: Day, doubted: bool, price: float | None) -> list[str]:
    instances = f"{day.least:,}" if day.least == day.most else f"{day.least:,} to {day.most:,}"
    shares = ["–"] * 3
    if not doubted:
        shares = [*(_share(each) for each in (day.within, day.worst)), yes_text(day.meets)]
    cost = [f"{day.hours.value * price:,.2f}"] if price else []
    return [day.name, instances, _whole(day.hours), *shares, *cost]


def _whole(interval: Interval) -> str:
    return f"{interval.value:,.0f} ({interval.low:,.0f} to {interval.high:,.0f})"


def _share(interval: Interval) -> str:
    return f"{shown_share(interval.value, 2)} ({shown_share(interval.low, 2)} to {shown_share(interval.high, 2)})"
