"""Which figures and sections there are, in the order of a report, which figures a study has, and how a function becomes one.

The workflow asks which figures a study has at each start and in each of its jobs. Charts import altair and what computes their
rows, which would add half a second to each start of little more than one: so that stands in `FIGURES`, and a chart's module is
imported to draw it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.plugins import Registry, origin, plugged
from bench.report.figure import DRAWN, KINDS, Figure
from bench.study import questions
from bench.study.questions import Condition

if TYPE_CHECKING:
    import altair as alt

    from bench.findings.tables import Tables
    from bench.findings.view import View
    from bench.report.blocks import Section
    from bench.report.paper import Paper


_ROOM = "bench.findings"
_SLO = ("slo", "failed_share")
_PRICES = ("accelerator", "price_per_hour", "energy_price_per_kwh", "cost_per_million_requests")
# The figures in the order of a report: which studies have it, as `bench.study.questions` words it; the module below `findings/`
# that draws it; and the keys of the decision that it is drawn from: it gets no others, so that a change of those does not draw
# it anew. With `accelerator` it gets that GPU's entry too, with `calibration` the models of the servers.
_FIGURES: dict[str, tuple[Condition, str, tuple[str, ...]]] = {
    "comparison": (questions.beside_baseline, "comparison.section", ()),
    "kv-saturation": (questions.shows_kv_cache, "kv_saturation", _SLO),
    "ttft": (questions.levels(2), "ttft", ("slo",)),
    "throughput": (questions.levels(2), "regions", ()),
    "slo-margin": (questions.wanted("slo"), "capacity.section", _SLO),
    "latency-throughput": (questions.levels(2), "latency_throughput", _SLO),
    "memory-pressure": (questions.tokens_over_time, "memory_pressure", ()),
    "predicted-loads": (questions.predictable, "predicted", ("calibration", "slo")),
    "economics": (questions.wanted("variable_costs"), "economics", (*_SLO, *_PRICES, "price_per_million_tokens")),
    "speculation": (questions.speculative, "speculation", ()),
    "settings": (questions.several_settings, "settings", ()),
    "gpus": (questions.on_gpus, "gpus", ()),
    "latency-by-length": (questions.swept_length, "lengths", ()),
    "factors": (questions.crossed_factors, "factors", ()),
    "factor-panels": (questions.crossed_factors, "factors", ()),
}
FIGURES = Registry(
    "figure",
    {name: (applies, f"{_ROOM}.{module}", uses) for name, (applies, module, uses) in _FIGURES.items()},
    lambda draw: (lambda _: True, draw.__module__, ()),
)
# The page's sections in its order, each a function of a module beside this one. Those of other packages stand before the runs.
# fmt: off
SECTIONS = (
    "headline.section", "answers.section", "tuning.section", "report.figures",
    "levels.section", "classes.section", "turns.section", "accuracy.section",
    "capacity.section.section", "fleet.section", "saturation.section", "settings.section", "workers.section",
    "comparison.section.section", "predicted.section", "economics.section", "runs.section", "runs.invalid", "provenance.section",
    "report.methods",
)
# fmt: on


def figures_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the figures that apply to `rows`, in the order in which a report shows them.

    Args:
        rows: the runs, by what a study can vary: `Plan.rows`, or rows of the summary table.
    """
    known = list(rows)
    return [name for name, (applies, _, _) in FIGURES.every().items() if applies(known)]


def section_modules() -> list[str]:
    """The modules that make the sections of a page."""
    return [*(f"{_ROOM}.{each.rpartition('.')[0]}" for each in SECTIONS), *(each.__module__ for each in _added())]


def sections() -> list[Callable[[View], Section]]:
    """What makes each section of a page, in its order."""
    own = [
        getattr(importlib.import_module(module), each.rpartition(".")[2])
        for module, each in zip(section_modules(), SECTIONS, strict=False)
    ]
    at = SECTIONS.index("runs.section")
    return [*own[:at], *_added(), *own[at:]]


def _added() -> list[Callable[[View], Section]]:
    return list(plugged("section", [each.partition(".")[0] for each in SECTIONS]).values())


def used_by(name: str) -> tuple[str, ...]:
    """What a figure is drawn from beside the runs; nothing of one that there is not."""
    return FIGURES[name][2] if name in FIGURES.every() else ()


def module_of(name: str) -> str:
    """The module that draws a figure."""
    return FIGURES[name][1]


def load_figure(name: str) -> Figure:
    """The figure called `name`; a BenchError where there is none."""
    if name not in FIGURES.every():
        raise BenchError(f"{name!r} is no figure. There are: {', '.join(FIGURES)}.")
    importlib.import_module(module_of(name))
    if name not in DRAWN:
        raise BenchError(
            f"{origin('figure', name)}: its entry point figure.{name} draws no figure of that name. Give both one name."
        )
    return DRAWN[name]


def draw_figure(
    name: str,
    results: Tables,
    stem: Path,
    *,
    leave_out: Callable[[str], None] | None = None,
    paper: Paper | None = None,
    kinds: Sequence[str] = KINDS,
) -> list[Path]:
    """Draw the figure called `name` and save it as `stem` with each suffix of `kinds`; the paths written.

    Args:
        leave_out: gets the reason why a figure that shows nothing is not saved. paper: how it is wanted, if not as in a report.
    """
    from bench.report.save import save_figure  # noqa: PLC0415 - altair, which who asks for names need not pay

    return save_figure(*_drawn(name, results), stem, leave_out=leave_out, paper=paper, kinds=kinds)


def chart(name: str, results: Tables) -> alt.TopLevelMixin:
    """The figure called `name` as an Altair chart, with its title and its look."""
    from bench.report.save import chart_of  # noqa: PLC0415 - as above

    return chart_of(*_drawn(name, results))  # type: ignore[no-any-return]


def _drawn(name: str, results: Tables) -> tuple[Figure, list[Tables]]:
    """The figure, and the parts of the results of which it is drawn."""
    drawn = load_figure(name)
    results = results.given(used_by(name))
    if results.runs.is_empty():  # a search may end before its first run
        return drawn, []
    return drawn, results.by_axis() if drawn.by_axis else [results]
