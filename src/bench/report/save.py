"""Draw a figure and save it as SVG, PNG and Vega-Lite JSON, or as a paper takes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

from bench.report.figure import KINDS, Figure, alt
from bench.report.paper import Paper, on_paper, written
from bench.report.theme import disturbed, finish, inks, nothing_to_show, why_empty

_PIXELS_A_UNIT = 2.0


def chart_of(drawn: Figure, parts: Sequence[Any], *, leave_out: Callable[[str], None] | None = None) -> Any:
    """A figure of each part as one Altair chart, with its texts under `usermeta`; None of one that is left out.

    Inside the figure stand its title, its question and a note. How to read it would fill the picture, so that stands beside it.

    Args:
        parts: results of a study (`Curves`), each with loads of one kind.
        leave_out: gets the reason why a figure that shows nothing is not drawn.
    """
    charts = [drawn.draw(part) for part in parts] or [nothing_to_show("no run was measured")]
    empty = [why for chart in charts if (why := why_empty(chart))]
    if leave_out and len(empty) == len(charts):
        leave_out("; ".join(dict.fromkeys(empty)))
        return None
    charts = [chart for chart in charts if not why_empty(chart)] or charts  # a kind of load with nothing leaves no gap
    # Loads of different kinds stand below one another.
    apart = alt.Resolve(
        scale=alt.ScaleResolveMap(color="independent", shape="independent")
    )  # given at once: a step more would copy every chart, deeply
    chart: Any = charts[0] if len(charts) == 1 else alt.vconcat(*charts, resolve=apart)  # type: ignore[arg-type]
    texts = _texts(drawn, parts)
    chart = finish(chart, texts["title"], [texts["question"], texts["note"]])
    chart.usermeta, chart.description = texts, " ".join(filter(None, (f"{texts['title']}.", texts["question"], texts["note"])))
    return chart


def save_figure(
    drawn: Figure,
    parts: Sequence[Any],
    stem: Path,
    *,
    leave_out: Callable[[str], None] | None = None,
    paper: Paper | None = None,
    kinds: Sequence[str] = KINDS,
) -> list[Path]:
    """Draw a figure of each part and save it as `stem` with a suffix for each of `kinds`; the paths written.

    The JSON has the figure's texts under `usermeta`, where the report and the manifest find them.

    Args:
        parts, leave_out: as of `chart_of`. paper: how it is wanted, if not as in a report.
    """
    chart = chart_of(drawn, parts, leave_out=leave_out)
    if chart is None:
        return []
    # Whether Vega-Lite takes it is a test's question: to ask would take as long as to draw.
    whole: dict[str, Any] = chart.to_dict(validate=False)
    if paper is None and tuple(kinds) == KINDS:
        return save_chart(whole, stem)
    paper = paper or Paper()
    whole = on_paper(whole, paper, inks(parts[0]) if parts else {})
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
    for kind, path in zip(kinds, paths, strict=True):
        path.write_bytes(written(whole, kind, paper.width_mm))
    return paths


def save_chart(whole: Mapping[str, Any], stem: Path) -> list[Path]:
    """Save a Vega-Lite chart as `stem` with .svg, .png and .json; the paths written."""
    svg = vl_convert.vegalite_to_svg(dict(whole))
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in KINDS]
    title = f"<title>{escape(str(whole.get('description', '')))}</title>"
    paths[0].write_text(svg.replace(">", f' role="img">{title}', 1) if svg else svg, encoding="utf-8")
    # Out of the SVG it has the same pixels, and the figure is laid out once.
    paths[1].write_bytes(vl_convert.svg_to_png(svg, scale=_PIXELS_A_UNIT))
    paths[2].write_text(json.dumps(dict(whole), separators=(",", ":")))
    return paths


def _texts(drawn: Figure, parts: Sequence[Any]) -> dict[str, str]:
    """The figure's `title`, `question` and `reading`, and a `note` on what is invalid or left out."""
    found = drawn.finding(parts[0]) if drawn.finding and len(parts) == 1 else None
    shown = [drawn.shown(part) if drawn.shown else part.runs for part in parts]
    invalid = sum(runs.filter(~runs[drawn.judged]).height for runs in shown)
    what = "runs whose server counts are invalid" if drawn.judged == "counts_valid" else "invalid runs"
    notes = [f"{drawn.invalid}: {what} ({invalid} of {sum(runs.height for runs in shown)})."] if invalid else []
    if drawn.invalid == "Crosses" and any(disturbed(runs.with_columns(valid=pl.col(drawn.judged))).height for runs in shown):
        notes.append("Beside a cross: the share of the cores' time that other processes took.")
    if drawn.note:
        notes += map(drawn.note, parts)
    return {
        "title": found or drawn.title,
        "question": "" if found else drawn.question,  # which the title answers
        "reading": drawn.reading,
        "note": " ".join(dict.fromkeys(filter(None, notes))),
    }
