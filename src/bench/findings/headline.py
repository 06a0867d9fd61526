"""The first screen: what each curve sustains, why not more, and how many a peak takes, as a sentence, a table and lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.errors import first_names, listed
from bench.findings.capacity.curves import Curve
from bench.findings.capacity.words import BURSTS, margin_title
from bench.findings.causes import RESOURCES
from bench.findings.saturation import lesson, prediction_title
from bench.report.blocks import MOST_LINES, Block, Charts, Column, Fold, Items, Section, Table, shortened

if TYPE_CHECKING:
    from bench.findings.tables import Tables
    from bench.findings.view import View

_NAMED = 3  # most curves that a title names
_COLUMNS = (
    Column("curve", "name"),
    Column("sustains", "sustains"),
    Column("limit", "ends"),
    Column("first load not sustained", "misses"),
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


def finding(results: Tables, curves: Sequence[Curve]) -> str:
    """The study in a sentence: what its curves sustain, and what ends them; empty where no curve sustains a load that is known."""
    known = [curve for curve in curves if curve.found]
    lasting = [curve for curve in known if not curve.burst] or known
    if not lasting or len(lasting) > _NAMED:
        return ""
    said = [f"{curve.name} sustains {_REST.sub('', curve.sustains)}" for curve in lasting]
    return "; ".join(filter(None, [listed(said), _ended(results, lasting)]))


def _ended(results: Tables, curves: Sequence[Curve]) -> str:
    """What ends the curves: their causes where they are known of most, else the SLO that all miss."""
    missing = [curve.causes for curve in curves if curve.causes]
    known = Counter(causes for causes in missing if RESOURCES.keys() >= set(causes))
    if 2 * known.total() > len(missing):
        of = "it" if len(curves) == 1 else f"{known.most_common(1)[0][1]} of {len(curves)} curves"
        first, *others = (
            f"{listed([RESOURCES[cause].short for cause in causes], 'or')} ends {of if i == 0 else count}"
            for i, (causes, count) in enumerate(known.most_common())
        )
        return listed([first, *others])
    named = {(curve.deployment, curve.workload) for curve in curves}
    points = [row for row in results.points.to_dicts() if (row["deployment"], row["workload"]) in named]
    return margin_title(points, results.decision.slos) or ""


def lines(curves: Sequence[Curve]) -> list[str]:
    """The answer as a terminal has it: a line a curve, and what a peak takes."""
    told = [
        f"{curve.name}: sustains {curve.sustains}"
        + (f" (limit: {curve.ends})" if curve.ends else "")
        + (f"; {'' if curve.close else 'misses '}{curve.misses}" if curve.misses.startswith("at ") else "")
        + (f", because {curve.why}" if curve.causes and curve.why and not curve.why.startswith("not known") else "")
        for curve in curves
    ]
    return [
        *shortened(told, where="in the report"),
        *shortened([curve.plan for curve in curves if curve.plan], _NAMED, "in the report"),
    ]


def section(view: View) -> Section:
    rows = [
        {key: value or None for key, value in vars(curve).items()}
        | {"family": view.families[curve.workload], "sustains": _NUMBER.sub(r"**\1**", curve.sustains)}
        for curve in view.judged
    ]
    within = f" within {view.within}" if view.within else ""
    table: list[Block] = [
        Table(f"What one instance sustains{within} (in brackets: 95 % intervals)", _COLUMNS, rows[:MOST_LINES])
    ]
    if others := rows[MOST_LINES:]:
        table.append(Fold(f"{len(others)} more", [Table("What the other curves sustain", _COLUMNS, others)]))
    short = [*table, Items(_notes(view))] if rows else []
    return Section("headline", "At a glance", [*short, Charts(view.figures[:1])], short=short, heading=False)


def _notes(view: View) -> list[str]:
    """What a peak takes, and what a reader of the table has to know."""
    fills = prediction_title(row["levels_apart"] for row in view.results.saturation.iter_rows(named=True))
    taught = lesson(view.results) or (f"{fills}." if fills else "")
    sized = [f"{curve.plan} {curve.narrowed}".rstrip() for curve in view.judged if curve.plan]
    return [
        *shortened(sized),
        *filter(None, [taught]),
        *_judged_by(view.judged, failed=100 * view.results.decision.failed_share),
        *([BURSTS] if any(curve.burst for curve in view.judged) else []),
        *([_ADMIT] if any(curve.found and not curve.burst for curve in view.judged) else []),
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
    return [f"{first_names(names, _NAMED)}: judged by {listed(slos or ['no SLO'])}." for slos, names in limited.items()]
