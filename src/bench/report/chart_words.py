"""Titles that state what a chart shows, and notes on charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.errors import listed
from bench.runs.sentences import numbers_text
from bench.study.slo import Slo

_NAMED = 5  # most loads that a title names


def invalid_note(marks: str, invalid: int, runs: int, judged: str) -> str:
    """How many runs are invalid, and how they are drawn; empty where none is.

    Args:
        marks: such as `Crosses, kept out of the lines`. judged: the column that says which are valid, `valid` or `counts_valid`.
    """
    if not invalid:
        return ""
    part = " whose server counts are invalid" if judged == "counts_valid" else ""
    return f"{marks}: {'' if part else 'invalid '}runs{part} ({invalid} of {runs})."


def load_label(level: float, axis: str) -> str:
    """A level as a label of a point: `16` requests in flight, `16/s`, `16×` as fast as recorded."""
    return f"{level:g}{AXES[axis].beside}"


def sustained_title(points: pl.DataFrame) -> str | None:
    """What deployments give within the SLOs, the most first; None where it is not known of every curve, or of too many.

    Bursts, which show nothing that lasts, are left out where another load is there.

    Args:
        points: rows of `bench.findings.capacity.points.operating_points`.
    """
    lasting = points.filter(pl.col("usable_rps").is_not_null())
    known = lasting.drop_nulls("tokens_per_s").sort("tokens_per_s", descending=True)
    if known.is_empty() or known.height > _NAMED or lasting["workload"].n_unique() > 1:
        return None
    first, *others = (f"{name} {rate:,.0f}" for name, rate in known.select("deployment", "tokens_per_s").iter_rows())
    return ", ".join([f"Sustained within the SLOs: {first} tokens/s", *others])


def margin_title(rows: Sequence[Mapping[str, Any]], slos: Sequence[Slo]) -> str | None:
    """Which SLO is missed first, and on how many curves; None where that is known of no curve.

    Args:
        rows: of `bench.findings.capacity.points.operating_points`.
    """
    ends = [[miss["by"] for miss in row["missed"] if not miss["close"]] for row in rows if row["kind"] in ("found", "below")]
    named = [listed([str(slo) for slo in slos if slo.column in end]) for end in ends if end]
    counts = Counter(named).most_common()
    if len(counts) == 1:
        which = f"{len(named)} of {len(rows)}" if len(named) < len(rows) else "both" if len(rows) == 2 else f"all {len(rows)}"
        on = f" on {which} curves" if len(rows) > 1 else ""
        return f"{counts[0][0]} {'are' if ' and ' in counts[0][0] else 'is'} missed first{on}"
    if not counts:
        return None
    return f"Missed first: {listed([f'{slo} on {n} of {len(rows)} curves' for slo, n in counts])}"


def throughput_title(saturation: pl.DataFrame, unit: str) -> str | None:
    """At which loads throughput saturates; None where it is not known of every curve, or of too many.

    Args:
        saturation: rows of `bench.findings.saturation`. unit: of the load, such as `requests in flight`.
    """
    levels = saturation["saturation_at"].to_list()
    if not levels or None in levels or len(levels) > _NAMED:
        return None
    return f"Throughput stops growing at {numbers_text(levels)} {unit}"
