"""What each start of a tuning showed of its candidate."""

from __future__ import annotations

import math

import polars as pl

from bench.findings.tables import Tables
from bench.report.figure import alt, figure
from bench.report.theme import NEUTRAL, WIDTH, marked, nothing_to_show
from bench.runs.searches import TuningRecord
from bench.search.tuning_words import headline

_STEP = 34  # height of a candidate's row
_BLACK = "#000000"
_SHAPES = {"first look": "circle", "race": "square", "confirmation": "diamond"}
_BEYOND = 1.15  # end of the axis ÷ the highest rate


def _finding(results: Tables) -> str | None:
    return headline(results.tuning) if results.tuning else None


def _note(results: Tables) -> str:
    found = results.tuning
    missing = sum(name not in _shown(found) for name in found.candidates) if found else 0
    return f"Not started: {missing} of {len(found.candidates)} candidates." if found and missing else ""


@figure(
    "tuning",
    title="What each candidate sustains",
    question="Which settings sustain the highest load within the SLOs?",
    reading="Rows are candidates, marks are starts of their servers, in order from the top: its highest load within the SLOs, and the "
    "95 % interval of its search. Grey: the search ended early, as the candidate had lost, or its runs were invalid. An interval that "
    "ends at the frame goes on. Crosses: no load was found.",
    by_axis=False,
    finding=_finding,
    shown=lambda results: results.runs.clear(),
    note=_note,
)
def tuning(results: Tables) -> alt.LayerChart:
    """Rates with their intervals, by candidate and start."""
    found = results.tuning
    if found is None:
        return nothing_to_show("the study has no tuning, or it has not ended")
    rows = _starts(found)
    order = _order(found)
    end = _BEYOND * max(rows["rate"].drop_nulls(), default=1.0)
    rows = rows.with_columns(pl.col("high").fill_null(end).clip(0, end), low=pl.col("low").clip(0, end))
    unit = f"{found.unit} for each GPU" if found.objective == "cost" else found.unit
    x = alt.X("rate:Q", title=f"highest load within the SLOs ({unit})", scale=alt.Scale(domain=[0, end], nice=False))
    y = alt.Y("candidate:N", sort=order, title=None, scale=alt.Scale(domain=order, padding=0.3),
              axis=alt.Axis(labelLimit=420, ticks=False, grid=True))  # fmt: skip
    offset = alt.YOffset("place:Q", scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color("colour:N", scale=None)
    shape = marked(alt.Shape, "phase:N", _SHAPES, title="start")
    tooltip = ["candidate:N", "phase:N", alt.Tooltip("rate:Q", format=".3g"), alt.Tooltip("why:N", title="the search ended")]
    starts = alt.Chart(rows)
    known = starts.transform_filter("datum.rate !== null")
    return alt.LayerChart(
        layer=[
            known.mark_rule(strokeWidth=1.3).encode(x=alt.X("low:Q"), x2="high:Q", y=y, yOffset=offset, color=colour),
            known.mark_point(filled=True, opacity=1, size=45).encode(
                x=x, y=y, yOffset=offset, color=colour, shape=shape, tooltip=tooltip
            ),
            starts.transform_filter("datum.rate === null")
            .mark_point(shape="cross", angle=45, size=60, color=_BLACK)
            .encode(x=alt.datum(0), y=y, yOffset=offset, tooltip=tooltip),
        ],
        width=WIDTH,
        height=alt.Step(_STEP),
    )


def _shown(found: TuningRecord) -> set[str]:
    return {visit.deployment for visit in found.visits}


def _called(found: TuningRecord, name: str) -> str:
    roles = [role for role, of in (("default", found.default), ("winner", found.winner)) if of == name]
    return f"{name} ({' and '.join(roles)})" if roles else name


def _order(found: TuningRecord) -> list[str]:
    """The candidates that were started, the best first."""
    rates = _starts(found).drop_nulls("rate").group_by("name", maintain_order=True).agg(pl.col("rate").mean())
    best = dict(rates.iter_rows())
    names = [name for name in found.candidates if name in _shown(found)]
    return [_called(found, name) for name in sorted(names, key=lambda name: -best.get(name, 0.0))]


def _starts(found: TuningRecord) -> pl.DataFrame:
    rows = []
    for name in found.candidates:
        visits = [visit for visit in found.visits if visit.deployment == name]
        unit = found.units.get(name, 1.0)
        for number, visit in enumerate(visits):
            rows.append(
                {
                    "name": name,
                    "candidate": _called(found, name),
                    "phase": visit.phase,
                    "why": visit.why,
                    "colour": NEUTRAL if visit.why in ("lost", "invalid") else _BLACK,
                    "place": (number + 0.5) / len(visits),
                    "rate": None if visit.middle is None else math.exp(visit.middle) / unit,
                    "low": visit.low / unit,
                    "high": None if visit.high is None else visit.high / unit,
                }
            )
    return pl.DataFrame(rows, schema_overrides={"rate": pl.Float64, "high": pl.Float64}, infer_schema_length=None)
