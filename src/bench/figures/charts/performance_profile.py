"""Each curve's regions: spare capacity, shared capacity, overload."""

import textwrap

import altair as alt
import polars as pl

from bench.figures.regions import point_layers, region_bands, region_colour, turning_points
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    curve_colour,
    curve_column,
    curve_dash,
    is_log,
    level_axis,
    level_lines,
    panels_a_row,
    points,
    predicted_rules,
    saturation_finding,
    whole_note,
    with_curve,
    with_whole,
)
from bench.study.questions import levels
from bench.words.charts import profile_note
from bench.words.regions import signals, turning_point

_COLUMN = "throughput_tokens_per_s"
_PANELS_A_ROW = 3
_HEIGHT = 230
_BLACK = alt.ColorValue("black")


def _note(results: Results) -> str:
    found = results.saturation
    marks = profile_note(
        points=found["equilibrium_at"].is_not_null().any() or found["saturation_at"].is_not_null().any(),
        predicted=results.runs["predicted_saturation"].is_not_null().any(),
        full=found["measured"].is_not_null().any(),
        waits=found["queue"].is_not_null().any(),
    )
    return " ".join(filter(None, (marks, whole_note(results))))


@figure(
    "performance-profile",
    applies=levels(4),
    order=50,
    title="Performance profile: spare, shared, overloaded",
    question="How much load does each deployment take before it stops scaling, and before it saturates?",
    reading="Output tokens/s (of the steady window, or of a whole burst), a panel a curve, each with ranges of its own. A, "
    "spare capacity: each request keeps 80 % or more of the throughput that one has at the lowest level. B, shared: more load "
    "still buys more tokens. C, overload: it costs some (or flat: it buys none). Diamonds: the equilibrium point A|B and the "
    "saturation point B|C, with their 95 % interval; blank ground is where nothing is significant, and the words say why. Dashed: "
    "predicted KV saturation. Triangle: the lowest level that filled the KV cache; circle: the lowest at which requests still "
    "wait once the load stands.",
    finding=saturation_finding,
    note=_note,
)
def performance_profile(results: Results) -> alt.ConcatChart:
    """Throughput over load for each curve, over its regions, with both points, the predicted saturation, and KV cache and queue.

    Args:
        results: `runs` with `level`, `throughput_tokens_per_s`, `predicted_saturation` and `valid`; `saturation`.
    """
    found = with_curve(results, results.saturation)
    runs = with_whole(results, with_curve(results, results.runs))
    parts = [(runs.filter(here), found.filter(here)) for here in (pl.col("curve") == c for c in curve_column(results))]
    words = [_words(row) for _, row in parts]
    most = max(map(len, words))  # panels begin at one height
    panels = [_panel(results, *part, lines + [""] * (most - len(lines))) for part, lines in zip(parts, words, strict=True)]
    return alt.concat(*panels, columns=panels_a_row(len(panels), most=_PANELS_A_ROW))


def _words(found: pl.DataFrame) -> list[str]:
    row = next(found.iter_rows(named=True), None)
    texts = {
        "A|B": turning_point(row, "equilibrium") if row else "no valid run",
        "B|C": turning_point(row, "saturation") if row else "no valid run",
        "signals": signals(row) if row else "no valid run",
    }
    return [line for head, text in texts.items() for line in textwrap.wrap(f"{head}: {text}", 58, subsequent_indent="      ")]


def _panel(results: Results, runs: pl.DataFrame, found: pl.DataFrame, words: list[str]) -> alt.LayerChart:
    """Args: runs: of one curve, of `with_curve`. found: its row of `saturation`; none where no run is valid."""
    one = Results(runs.drop("curve", "curve_size", "curve_width", "whole"), results.timeseries, results.study)
    log = is_log(results)  # of all panels or of none, since they are compared
    x, colour = level_axis(one, log=log), curve_colour(results).legend(None)
    highest = max(runs[_COLUMN].drop_nulls(), default=1.0)
    y = alt.Y(f"{_COLUMN}:Q", title=one.tokens_per_s, scale=alt.Scale(domain=[0, 1.15 * highest]))
    bands = alt.Chart(region_bands(one, found, log=log))
    letters = bands.mark_text(baseline="top", dy=5, fontSize=14, fontWeight="bold", color="#555555")
    marks = [
        alt.Chart(found.select(column).drop_nulls())
        .mark_point(shape=shape, filled=True, color="black", size=80, opacity=1)
        .encode(x=level_axis(one, column, log=log), y=alt.value(_HEIGHT - up), tooltip=[alt.Tooltip(column, title=title)])
        for column, shape, up, title in (
            ("measured", "triangle-up", 7, "KV cache full from"),
            ("queue", "circle", 20, "requests wait from"),
        )
    ]
    layers: alt.LayerChart = alt.layer(
        bands.mark_rect().encode(x=level_axis(one, "begin", log=log), x2=alt.X2("end:Q"), color=region_colour()),
        letters.encode(x=level_axis(one, "middle", log=log), y=alt.value(0), text=alt.Text("region:N")),
        predicted_rules(runs, x, colour),
        level_lines(runs, _COLUMN, x, y, colour, curve_dash(results)),
        points(
            alt.Chart(runs.select("curve", "level", _COLUMN, "valid", "whole", "run")),
            y,
            x,
            colour,
            tooltip=["run:N", "level:Q", alt.Tooltip(f"{_COLUMN}:Q", format=".0f")],
        ),
        *point_layers(one, turning_points(one, found, _COLUMN, log=log), y, _BLACK, log=log),
        *marks,
    ).resolve_scale(color="independent")
    title = alt.TitleParams(runs["curve"][0], subtitle=words, fontSize=15, subtitleFontSize=13, anchor="start", offset=6)
    return layers.properties(width=300, height=_HEIGHT, title=title)
