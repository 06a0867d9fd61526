"""Titles that state what a chart shows, and notes on charts."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from bench.analysis.saturation import fills_first
from bench.analysis.speculation import SpeculationGain
from bench.axes import AXES, CONCURRENCY
from bench.study import Slo
from bench.words.loads import count_text

__all__ = [
    "NO_GPUS",
    "carried_title",
    "decline_note",
    "decline_title",
    "efficiency_title",
    "fleet_title",
    "full_note",
    "invalid_note",
    "load_label",
    "margin_title",
    "numbers_note",
    "pairs_note",
    "ratio_title",
    "rings_note",
    "saturation_title",
    "speculation_title",
    "throughput_title",
    "whole_runs_note",
    "widest_spread",
]

_NAMED = 5  # most loads that a title names
_PAIRED = 3  # most pairs of deployments that a title names
NO_GPUS = "Throughput is per instance: some have no GPU, or their number is not known."
# By which sign of `bench.analysis.saturation` a KV cache counts as full.
_FULL_BY = {
    "usage": "{usage}",
    "preempted": "a request was preempted ({usage})",
    "refused": "the next request does not fit ({usage})",
}


def invalid_note(marks: str, invalid: int, runs: int) -> str:
    """How many runs are invalid, and how they are drawn; empty where none is. Args: marks: such as `Crosses, kept out of the lines`."""
    if not invalid:
        return ""
    return f"{marks}: {invalid} of {runs} runs, which are invalid for it; the report and summary.csv say why."


def pairs_note(left_out: int) -> str:
    """How many pairs are not compared because a run of theirs is invalid; empty where all are."""
    return f"Pairs that are not compared for that: {left_out}." if left_out else ""


def speculation_title(gains: Sequence[SpeculationGain]) -> str | None:
    """What speculation accepts and does to TPOT; None where a few words cannot say it."""
    if not gains or len(gains) > _PAIRED:
        return None
    several = len({gain.deployment for gain in gains}) > 1
    same = all(gain.drafted for gain in gains) and len({gain.plain for gain in gains}) == 1
    return "; ".join(_speculation(gain, several, short=same and bool(number)) for number, gain in enumerate(gains))


def _speculation(gain: SpeculationGain, several: bool, *, short: bool) -> str:
    """Args: short: whether the one before it says of what the numbers are."""
    if gain.drafted is None or gain.accepted is None:
        drafts = "acceptance not known"
    elif gain.drafted:
        drafts = f"{100 * gain.accepted / gain.drafted:.3g} %" + ("" if short else " of drafts accepted")
    else:
        drafts = "nothing drafted"
    low, high = f"{gain.low:.2g}", f"{gain.high:.2g}"
    times = f"{low if low == high else f'{low} to {high}'} times"
    name = f"{gain.deployment}, {gain.workload}" if several else gain.workload
    return f"{name}: {drafts}, {times}" if short else f"{name}: {drafts}, TPOT {times} that of {gain.plain}"


def whole_runs_note(runs: int, *, marks: str) -> str:
    """How whole runs on curves of steady windows are drawn; empty where there are none. Args: marks: such as `Hollow`."""
    return f"{marks}: {count_text(runs, 'whole run')}, ramp and drain included, among steady windows." if runs else ""


def saturation_title(saturation: pl.DataFrame) -> str | None:
    """At which loads the KV cache is full, and whether geometry predicted them; None where a few words cannot say it.

    Of several workloads of a deployment the one counts that fills it at the lowest level, as on the report's first screen.

    Args:
        saturation: rows of `bench.analysis.saturation`.
    """
    counted = saturation.filter(pl.col("axis") == CONCURRENCY)
    if counted.is_empty() or not counted["cache_known"].all():
        return None
    of_each = counted.partition_by("deployment", maintain_order=True)
    full = [row for part in of_each if (row := fills_first(part.to_dicts()))]
    if not full:
        return "No valid run fills the KV cache"
    if len(full) < len(of_each) or len(full) > _NAMED:
        return None
    levels = [row["measured"] for row in full]
    start = f"The KV cache is full at {_listed(levels)} request{'' if set(levels) == {1} else 's'} in flight"
    if any(row["levels_apart"] is None for row in full):
        return start
    if all(row["levels_apart"] == 0 for row in full):
        return f"{start}, as predicted"
    return f"{start}; predicted: {_listed([row['predicted'] for row in full])}"


def full_note(filled: pl.DataFrame) -> str:
    """How it shows that KV caches are full, of each curve; empty where none is.

    Args:
        filled: rows of `bench.analysis.saturation.filled` with `curve`.
    """
    said: dict[str, list[str]] = {}
    for curve, level, usage, sign in filled.select("curve", "measured", "usage", "sign").iter_rows():
        share = "usage not known" if usage is None else f"{100 * usage:.0f} % in use"
        said.setdefault(f"full at {level:g}, {_FULL_BY[sign].format(usage=share)}", []).append(curve)
    return f"{'; '.join(f'{_and(names)}: {how}' for how, names in said.items())}." if said else ""


def load_label(level: float, axis: str) -> str:
    """A level as a label of a point: `16` requests in flight, `16/s`, `16×` as fast as recorded."""
    return f"{level:g}{AXES[axis].beside}"


def numbers_note(axis: str) -> str:
    """What the numbers beside points count."""
    return f"Numbers: {AXES[axis].unit}."


def rings_note(c_max: bool, knee: bool) -> str:
    """What the rings around levels mean; empty where there are none."""
    parts = ["black ring: C_max, the highest level within the SLOs"] * c_max + [
        "grey ring: the knee, where the tail leaves the median"
    ] * knee
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def carried_title(points: pl.DataFrame) -> str | None:
    """What deployments give within the SLOs, the most first; None where it is not known of every curve, or of too many.

    Bursts, which show nothing that lasts, are left out where another load is there.

    Args:
        points: rows of `bench.analysis.operating_points`.
    """
    lasting = points.filter(pl.col("usable_rps").is_not_null())
    known = lasting.drop_nulls("tokens_per_s").sort("tokens_per_s", descending=True)
    if known.is_empty() or known.height > _NAMED or lasting["workload"].n_unique() > 1:
        return None
    first, *others = (f"{name} {rate:,.0f}" for name, rate in known.select("deployment", "tokens_per_s").iter_rows())
    return ", ".join([f"Within the SLOs: {first} tokens/s", *others])


def decline_title(declines: pl.DataFrame) -> str | None:
    """What throughput loses or gains beyond a full KV cache; None where no curve fills it, or too many do.

    Args:
        declines: rows of `bench.analysis.decline`.
    """
    if declines.is_empty() or declines.height > _NAMED:
        return None
    changes = [_signed(change) for change in declines["change"]]
    return f"Beyond a full KV cache throughput changes by {_and(changes)} %"


def decline_note(declines: pl.DataFrame) -> str:
    """From which throughput at which load to which, of each curve; empty where none fills the cache. Args: as above, with `curve`."""
    columns = ("curve", "before", "below", "after", "highest", "change")
    parts = [
        f"{curve}: {before:,.0f} at {below:g}, {after:,.0f} at {highest:g} ({_signed(change)} %)"
        for curve, before, below, after, highest, change in declines.select(columns).iter_rows()
    ]
    return f"Output tokens/s at the last level with room in the cache, and at the highest: {'; '.join(parts)}." if parts else ""


def _signed(share: float) -> str:
    return "0" if round(100 * share) == 0 else f"{100 * share:+.0f}".replace("-", "−")


def efficiency_title(devices: str, shares: Sequence[float]) -> str:
    """What several devices bring at the measured loads. Args: devices: such as `TP=2`. shares: of as many single ones (0–1)."""
    low, high = (f"{100 * end:.0f}" for end in (min(shares), max(shares)))
    return f"{devices} brings {low if low == high else f'{low} to {high}'} % of what as many single devices would"


def ratio_title(value: str, first: str, shares: Sequence[float]) -> str:
    """What another value of a setting brings at the measured loads. Args: shares: of the throughput with the first value (0–1)."""
    low, high = (f"{100 * end:.0f}" for end in (min(shares), max(shares)))
    return f"{value} brings {low if low == high else f'{low} to {high}'} % of the throughput of {first}"


def fleet_title(peak: float, instances: Sequence[int], safety: float = 1.0) -> str | None:
    """How many instances of each curve a peak takes; None of too many curves.

    Args:
        peak: requests/s. instances: without the spare ones. safety: by which the figure multiplies them.
    """
    if len(instances) > _NAMED:
        return None
    one = "" if set(instances) == {1} else "s"
    return f"A peak of {peak:,g} requests/s takes {_listed(instances)} instance{one}" + (
        f", × {safety:g} for safety" if safety != 1 else ""
    )


def margin_title(points: pl.DataFrame, slos: Sequence[Slo]) -> str | None:
    """Which SLO ends the load; None where a curve's end is not known, or curves differ, or several are missed at once.

    Args:
        points: rows of `bench.analysis.operating_points`.
    """
    ends = [
        None if row["kind"] not in ("found", "below") else [miss["by"] for miss in row["missed"]] for row in points.to_dicts()
    ]
    first = ends[0] if ends else None
    slo = next((slo for slo in slos if first == [slo.column]), None)
    if slo is None or any(end != first for end in ends):
        return None
    return f"{slo} ends the load" + (f" of all {len(ends)} curves" if len(ends) > 1 else "")


def throughput_title(saturation: pl.DataFrame, unit: str) -> str | None:
    """At which loads throughput saturates; None where it is not known of every curve, or of too many.

    Args:
        saturation: as `saturation_title` takes it. unit: of the load, such as `requests in flight`.
    """
    levels = saturation["saturation_at"].to_list()
    if not levels or None in levels or len(levels) > _NAMED:
        return None
    return f"Throughput stops growing at {_listed(levels)} {unit}"


def widest_spread(low: float, high: float, level: float) -> str:
    """How far the GPUs of one instance are apart. Args: low, high: their utilisation (0–1)."""
    return f"widest spread {100 * (high - low):.0f} points, at {level:g}"


def _listed(numbers: Sequence[float]) -> str:
    """Several numbers, such as `16, 64 and 64`; one, where all are the same."""
    *first, last = (f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers)
    return last if set(first) == {last} else _and([*first, last])


def _and(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
