"""Which of a metric's series add up: ranks that share their requests, and parts of a total, count the same requests once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.servers.engines import Kind

_Labels = Mapping[str, str]


def apart(series: Sequence[_Labels], kind: Kind) -> list[int]:
    """The places in `series`, the label sets of one metric, of those that count each request once.

    Of ranks that share their requests the first one counts (`Kind.repeats`), and of a total and its parts the total (`Kind.totals`);
    parts without a total count each.
    """
    totals = {_without(labels, kind.totals) for labels in series if kind.totals and _is_total(labels, kind)}
    counted = [
        place for place, labels in enumerate(series) if _is_total(labels, kind) or _without(labels, kind.totals) not in totals
    ]
    first: dict[frozenset[tuple[str, str]], int] = {}
    for place in sorted(counted, key=lambda place: _ranks(series[place], kind)):
        first.setdefault(_without(series[place], kind.repeats), place)
    return sorted(first.values())


def _is_total(labels: _Labels, kind: Kind) -> bool:
    return all(labels.get(label) == value for label, value in kind.totals.items())


def _without(labels: _Labels, names: Sequence[str] | _Labels) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name not in names)


def _ranks(labels: _Labels, kind: Kind) -> list[tuple[int, str]]:
    """Ranks in an order that sorts them as numbers."""
    return [(len(labels.get(name, "")), labels.get(name, "")) for name in kind.repeats]
