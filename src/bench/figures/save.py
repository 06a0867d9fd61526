"""Draw a figure and save it as SVG, PNG and Vega-Lite JSON."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from bench.figures.registry import load_figure
from bench.figures.results import Results
from bench.figures.theme import finish, heading
from bench.words.charts import invalid_note

__all__ = ["KINDS", "save_figure"]

KINDS = ("svg", "png", "json")

_PIXELS_A_UNIT = 2.0


def save_figure(name: str, results: Results, stem: Path) -> list[Path]:
    """Draw `name` and save it as `stem` with .svg, .png and .json; the paths written.

    Raises:
        BenchError: there is no such figure.
    """
    drawn = load_figure(name)
    results = results.given(drawn.uses)
    charts = [drawn.draw(part) for part in (results.by_axis() if drawn.by_axis else [results])]
    invalid = results.runs.filter(~results.runs[drawn.judged]).height
    note = invalid_note(drawn.invalid, invalid, results.runs.height)
    # Loads of different kinds stand below one another.
    apart = alt.Resolve(
        scale=alt.ScaleResolveMap(color="independent")
    )  # given at once: a step more would copy every chart, deeply
    chart = charts[0] if len(charts) == 1 else alt.vconcat(*charts, resolve=apart)  # type: ignore[arg-type]
    whole: dict[str, Any] = finish(chart, drawn.title, [drawn.question, note]).to_dict()
    # A picture stands alone, so it says how to read it; the page says it in its own words beside the interactive one.
    still = {**whole, "title": heading(drawn.title, [drawn.question, *_wrapped(drawn.reading), note]).to_dict()}
    svg = vl_convert.vegalite_to_svg(still)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in KINDS]
    paths[0].write_text(svg, encoding="utf-8")
    # Out of the SVG it has the same pixels, and the figure is laid out once.
    paths[1].write_bytes(vl_convert.svg_to_png(svg, scale=_PIXELS_A_UNIT))
    paths[2].write_text(json.dumps(whole, separators=(",", ":")))
    return paths


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"), 92)
