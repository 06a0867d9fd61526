"""Which figures there are, which of them a study has, and how a function becomes one.

The workflow asks which figures a study has at each start and in each of its jobs. Charts import altair and what computes their
rows, which would add half a second to each start of little more than one: so that stands in `FIGURES`, and a chart's module is
imported to draw it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.study import questions
from bench.study.questions import Condition

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from bench.figures.tables import Tables

    Draw = Callable[[Tables], alt.TopLevelMixin]

KINDS = ("svg", "png", "json")  # each figure is a file of each
_SLO = ("slo", "failed_share")
_PRICES = ("accelerator", "price_per_hour", "energy_price_per_kwh", "cost_per_million_requests")
# The figures in the order of a report: which studies have it, as `bench.study.questions` words it; the module below `charts/`
# that draws it; and the keys of the decision that it is drawn from: it gets no others, so that a change of those does not draw
# it anew. With `accelerator` it gets that GPU's entry too, with `calibration` the models of the servers, with `searches` what
# those found, with `grades` which tasks were solved, and with `tuning` which server is best: only studies that tune have that figure.
FIGURES: dict[str, tuple[Condition, str, tuple[str, ...]]] = {
    "tuning": (lambda _: True, "tuning", ("tuning",)),
    "latency-throughput": (questions.levels(2), "latency_throughput", _SLO),
    "user-speed": (questions.deployments_alike, "user_speed", (*_SLO, *_PRICES)),
    "comparison": (questions.beside_baseline, "comparison", ()),
    "answers": (questions.kept_beside_baseline, "answers", ("grades",)),
    "fleet": (questions.wanted("peak"), "fleet", (*_SLO, "peak_rps", "safety")),
    "slo-margin": (questions.wanted("slo"), "slo_margin", _SLO),
    "kv-saturation": (questions.shows_kv_cache, "kv_saturation", ()),
    "performance-profile": (questions.levels(2), "performance_profile", ()),
    "latencies": (lambda rows: questions.levels(2)(rows) or questions.mixed(rows), "latencies", ("slo",)),
    "speculation": (questions.speculative, "speculation", ()),
    "economics": (questions.wanted("priced"), "economics", (*_SLO, *_PRICES, "price_per_million_tokens")),
    "predicted-loads": (questions.predictable, "predicted_loads", ("calibration",)),
    "throughput-over-time": (questions.tokens_over_time, "throughput_over_time", ()),
    "settings": (questions.several_settings, "settings", ()),
    "gpus": (questions.on_gpus, "gpus", ()),
    "worker-balance": (questions.on_fleet, "worker_balance", ()),
    "latency-by-length": (questions.swept_length, "latency_by_length", ()),
    "factor-correlations": (questions.crossed_factors, "factors", ()),
    "factor-importance": (questions.crossed_factors, "factors", ()),
    "factor-panels": (questions.crossed_factors, "factors", ()),
    "utilisation-by-batch": (questions.crossed_factors, "factors", ()),
}


def figures_of(rows: Iterable[Mapping[str, Any]], *, tuned: bool = False) -> list[str]:
    """Names of the figures that apply to `rows`, in the order in which a report shows them.

    Args:
        rows: the runs, by what a study can vary: `Plan.rows`, or rows of the summary table. tuned: whether servers compete too.
    """
    known = list(rows)
    return [name for name, (applies, _, uses) in FIGURES.items() if applies(known) and (tuned or "tuning" not in uses)]


def used_by(name: str) -> tuple[str, ...]:
    """What a figure is drawn from beside the runs; nothing of one that there is not."""
    return FIGURES[name][2] if name in FIGURES else ()


def module_of(name: str) -> str:
    """The module that draws a figure."""
    return f"bench.figures.charts.{FIGURES[name][1]}"


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its title, the question that it answers, how to read it, and the function that draws it.

    Attributes:
        title: neutral; a figure's title where `finding`, what its data show in one sentence, is None or returns None.
        reading: how to read it, which stands below it in the report and not in the picture.
        by_axis: whether its x axis is the load, so that kinds of load stand apart, and swept lengths are left to others.
        invalid: how it shows invalid runs, as its note about them begins. judged: the column that says which are valid: `valid`, or
            `counts_valid` where only the server's own counts are drawn, from which a late client takes nothing away.
        columns: what it draws, by column, in words: its note names the levels that lack one of them.
        shown: the runs of which it counts the invalid ones; None counts all that it is drawn from. note: what else its note has to say,
            such as how many pairs are left out; empty where nothing.
    """

    name: str
    title: str
    question: str
    reading: str
    draw: Draw
    invalid: str = "Crosses, kept out of the lines"
    judged: str = "valid"
    by_axis: bool = True
    finding: Callable[[Tables], str | None] | None = None
    shown: Callable[[Tables], pl.DataFrame] | None = None
    note: Callable[[Tables], str] | None = None
    columns: Callable[[Tables], Mapping[str, str]] | None = None


_DRAWN: dict[str, Figure] = {}


def figure(name: str, **texts: Any) -> Callable[[Draw], Draw]:
    """Register the decorated function as the figure `name`, which is also its file's name. Args: texts: as of `Figure`."""

    def register(draw: Draw) -> Draw:
        _DRAWN[name] = Figure(name, draw=draw, **texts)
        return draw

    return register


def load_figure(name: str) -> Figure:
    """The figure called `name`; a BenchError where there is none."""
    if name not in FIGURES:
        raise BenchError(f"{name!r} is no figure. There are: {', '.join(FIGURES)}.")
    importlib.import_module(module_of(name))
    return _DRAWN[name]
