"""The first screen: what each curve sustains, why not more, and how many a peak takes, as a sentence, a table and lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.errors import listed
from bench.findings.capacity.curves import Curve
from bench.findings.capacity.words import BURSTS, too_close
from bench.findings.causes import RESOURCES, alike
from bench.findings.saturation import lesson, prediction_title
from bench.report.blocks import Block, Charts, Column, Fold, Items, Section, Table, in_line, shortened
from bench.report.chart_words import margin_title

if TYPE_CHECKING:
    from bench.findings.tables import Tables
    from bench.findings.view import View

Row = Mapping[str, Any]
_MOST = 12  # most curves of a first screen; convention
_NAMED = 3  # most curves that a title names
_COLUMNS = (
    Column("curve", "name"),
    Column("sustains", "sustains"),
    Column("limit", "limit"),
    Column("first load that misses", "misses"),
    Column("because", "why"),
    Column("would raise it", "remedy"),
)
_NUMBER = re.compile(r"^((?:about )?[\d.,]+|a burst of [\d.]+)")
_REST = re.compile(r"; .*|, no SLO.*| \(95 % interval not established\)")  # of what a curve sustains, what no title has
_ADMIT = "Admit at most what an instance sustains, and add instances beyond."
_NO_SLO = (
    "`decision` sets no SLO, such as `slo: [ttft_p99=1s]`: a load counts as sustained while requests do not pile up and no more than "
    "{failed:g} % of them fail. With one, nothing is measured again."
)


def curve_rows(curves: Sequence[Curve], *, limited: bool) -> list[dict[str, Any]]:
    """What is known of each curve that was judged; titles, tables and lines are made of it. Args: limited: an SLO limits some curve."""
    return [
        {
            "deployment": curve.deployment,
            "workload": curve.workload,
            "burst": curve.burst,
            "name": curve.name,
            "sustains": curve.sustains + (", no SLO limits it" if limited and not curve.slos else ""),
            "limit": curve.ends or None,
            "misses": curve.misses or None,
            "why": curve.why or None,
            "remedy": curve.remedy or None,
            "causes": tuple(sorted(alike(curve.limit)))
            if curve.limit and curve.misses.startswith("at ") and not too_close(curve.point)
            else (),
            "close": too_close(curve.point),
            "found": curve.point["kind"] in ("found", "above"),
        }
        for curve in curves
        if curve.point
    ]


def finding(results: Tables, rows: Sequence[Row]) -> str:
    """The study in a sentence: what its curves sustain, and what ends them; empty where no curve sustains a load that is known."""
    lasting = [row for row in rows if row["found"] and not row["burst"]] or [row for row in rows if row["found"]]
    if not lasting or len(lasting) > _NAMED:
        return ""
    said = [f"{row['name']} sustains {_REST.sub('', row['sustains'])}" for row in lasting]
    return "; ".join(filter(None, [listed(said), _ended(results, lasting)]))


def _ended(results: Tables, rows: Sequence[Row]) -> str:
    """What ends the curves: their causes where they are known of most, else the SLO that all miss."""
    missing = [row["causes"] for row in rows if row["causes"]]
    known = Counter(causes for causes in missing if RESOURCES.keys() >= set(causes))
    if 2 * known.total() > len(missing):
        of = "it" if len(rows) == 1 else f"{known.most_common(1)[0][1]} of {len(rows)} curves"
        first, *others = (
            f"{' or '.join(RESOURCES[cause].short for cause in causes)} ends {of if i == 0 else count}"
            for i, (causes, count) in enumerate(known.most_common())
        )
        return listed([first, *others])
    named = pl.DataFrame(
        [(row["deployment"], row["workload"]) for row in rows], schema=["deployment", "workload"], orient="row"
    )
    points = results.points.join(named, on=["deployment", "workload"], how="semi", maintain_order="left")
    return margin_title(points, results.decision.slos) or ""


def lines(rows: Sequence[Row], curves: Sequence[Curve]) -> list[str]:
    """The answer as a terminal has it: a line a curve, and what a peak takes."""
    told = [
        f"{row['name']}: sustains {row['sustains']}"
        + (f" (limit: {row['limit']})" if row["limit"] else "")
        + (f"; {'' if row['close'] else 'misses '}{row['misses']}" if row["misses"] and row["misses"].startswith("at ") else "")
        + (f", because {row['why']}" if row["causes"] and row["why"] and not row["why"].startswith("not known") else "")
        for row in rows
    ]
    return [
        *shortened(told, _MOST, "in the report"),
        *shortened([curve.plan for curve in curves if curve.plan], _NAMED, "in the report"),
    ]


def section(view: View) -> Section:
    rows = [
        {**row, "family": view.families[row["workload"]], "sustains": _NUMBER.sub(r"**\1**", row["sustains"])}
        for row in view.curve_rows
    ]
    within = f" within {view.within}" if view.within else ""
    table: list[Block] = [Table(f"What one instance sustains{within} (in brackets: 95 % intervals)", _COLUMNS, rows[:_MOST])]
    if others := rows[_MOST:]:
        table.append(Fold(f"{len(others)} more", [Table("What the other curves sustain", _COLUMNS, others)]))
    short = [*table, Items(_notes(view))] if rows else []
    return Section("headline", "At a glance", [*short, Charts(view.figures[:1])], short=short, heading=False)


def _notes(view: View) -> list[str]:
    """What a peak takes, and what a reader of the table has to know."""
    judged, decision = [curve for curve in view.curves if curve.point], view.results.decision
    fills = prediction_title(row["levels_apart"] for row in view.results.saturation.iter_rows(named=True))
    taught = lesson(view.results) or (f"{fills}." if fills else "")
    sized = [f"{curve.plan} {curve.narrowed}".rstrip() for curve in judged if curve.plan]
    return [
        *shortened(sized, _MOST),
        *([taught] if taught else []),
        *_judged_by(judged, failed=100 * decision.failed_share),
        *([BURSTS] if any(curve.burst for curve in judged) else []),
        *([_ADMIT] if any(row["found"] and not row["burst"] for row in view.curve_rows) else []),
    ]


def _judged_by(curves: Sequence[Curve], *, failed: float) -> list[str]:
    """By which SLOs each curve is judged, where they differ; where none has any, by what else."""
    limited: dict[tuple[str, ...], list[str]] = {}
    for curve in curves:
        limited.setdefault(curve.slos, []).append(curve.name)
    if list(limited) == [()]:
        return [_NO_SLO.format(failed=failed)]
    if len(limited) == 1:
        return []
    return [f"{in_line(names)}: judged by {listed(slos or ['no SLO'])}." for slos, names in limited.items()]
