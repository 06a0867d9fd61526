"""What the calibrated model predicts of loads nobody measured: said, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import polars as pl

from bench.axes import AXES
from bench.errors import shown_share
from bench.findings.ceilings import Ceiling
from bench.findings.tables import Tables
from bench.predict.calibration import Doubt, Interval, Judgement, MeasuredLoad, ModelRecord, PredictedLoad
from bench.report.blocks import Column, Section, Table, Text
from bench.report.figure import alt, figure
from bench.report.theme import (
    Span,
    curve_colour,
    curve_column,
    curve_dash,
    curve_shape,
    level_axis,
    level_span,
    limit_line,
    line_ends,
    nothing_to_show,
    panel,
    tips,
    with_curve,
)
from bench.runs.sentences import filled, load_text
from bench.study.slo import Slo

if TYPE_CHECKING:
    from bench.findings.view import View

#: Of `bench.predict.predict.PHASES`.
PHASE_TITLES = {"queue": "in the queue", "prefill": "prefill", "decode": "decode"}
DOUBTS = {
    "residual": "the engine's steps stray from the fit by {share} in the median, more than {most:share}; measure on a quiet machine",
    "drift": "the runs differ in speed by {share} (standard deviation), more than {most:share}; measure on a quiet machine",
    "unseen": "the throughput of its own loads, each predicted from the others, is off by {share} (standard deviation), more than "
    "{most:share}; measure a burst of one request and one of many",
    "requests": "{value:,.0f} requests would run at once, and no run had more than {most:,.0f}; measure a higher level",
    "longest": "requests of {value:,.0f} tokens, and none that was measured had more than {most:,.0f}; measure longer ones",
    "step": "steps of {value:,.0f} tokens, and none that was measured had more than {most:,.0f}, of which a fourth more is "
    "extrapolated; measure a larger burst, or longer prompts",
    "refused": "{value:,.0f} requests are longer than the whole KV cache",
}
#: Numbers in a report; `bench fleet` prints all.
REPORTED = ("throughput_tokens_per_s", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "itl_p99_s")
_SHOWN = 0.05  # share of a request's time below which a part is left out
_FOLDS = {"level": "another level", "workload": "another workload"}


def doubt_text(doubt: Doubt) -> str:
    """Why a prediction must not be relied on, and what would help."""
    share = shown_share(doubt.value) if doubt.value <= 1 else "more than 100 %"
    return filled(DOUBTS[doubt.name], {**vars(doubt), "share": share})


def ceiling_text(found: Ceiling, device: str) -> str:
    """How near a request that is alone comes to what the device allows."""
    parts = [
        f"{what} at {shown_share(share)}"
        for what, share in (("decodes", found.decode), ("computes its prompt", found.prefill))
        if share
    ]
    return f"{found.deployment}, {found.workload}: a request alone {' and '.join(parts)} of what {device}'s bandwidth and FLOP/s allow."


def no_model(model: ModelRecord) -> str | None:
    """Why a deployment has no model; None where it has one."""
    said = "; ".join(map(doubt_text, model.doubts)).split("; ")
    once = reversed(dict.fromkeys(reversed(said)))  # what helps against several doubts, behind the last
    return model.why_not or "; ".join(once) or None


def judgement_lines(judgements: Sequence[Judgement]) -> list[list[str]]:
    """How good predictions are, a row for what was left out.

    It has the error of each number of `REPORTED`, the range of the intervals' coverage, and the runs.
    """
    rows = []
    for fold in dict.fromkeys(each.fold for each in judgements):
        found = {each.metric: each for each in judgements if each.fold == fold}
        held = sorted(found[name].coverage for name in REPORTED if name in found)
        cells = [shown_share(found[name].error) if name in found else "–" for name in REPORTED]
        holds = f"{shown_share(held[0])} to {shown_share(held[-1])}" if held else "–"
        most = max(found.values(), key=lambda each: each.runs)
        rows.append([_FOLDS[fold], *cells, holds, f"{most.runs} of {most.of}"])
    return rows


def shares_text(load: str, shares: Mapping[str, float]) -> str:
    """Where a median request's time goes, the longest part first, without parts of less than a twentieth; empty where it is not known.

    Args:
        load: in words. shares: by phase (0–1).
    """
    phases = sorted(shares.items(), key=lambda each: -each[1])
    parts = [f"{PHASE_TITLES[phase]} {shown_share(share)}" for phase, share in phases if share >= _SHOWN]
    return f"A median request's time by the calibrated model at {load}: {', '.join(parts)}." if parts else ""


def predictions_title(models: Sequence[ModelRecord], first: Slo) -> str | None:
    """How far predictions of levels that a model had not seen are off; None where none could be judged.

    Args:
        first: the percentile of TTFT, whatever its limit.
    """
    judged = [each for model in models for each in model.judged if each.fold == "level"]
    errors = [[each.error for each in judged if each.metric == name] for name in ("throughput_tokens_per_s", first.column)]
    if not all(errors):
        return None
    tokens, waits = (shown_share(median(found)) for found in errors)
    return f"Predictions of levels that a model has not seen are off by {tokens} (tokens/s) and {waits} ({first.name})"


_WHOLE = "of whole runs"  # a second line below each axis' title: other figures have the same numbers of steady windows
_TEXTS, _NUMBERS = ("deployment", "workload", "metric", "run"), ("level", "value", "low", "high")
_SCHEMA = {**dict.fromkeys(_TEXTS, pl.String), **dict.fromkeys(_NUMBERS, pl.Float64)}


def _metrics(results: Tables) -> dict[str, Slo | None]:
    """What is drawn: tokens/s, and of TTFT the percentile that an SLO limits, where it is predicted, else P99."""
    numbers = {name for model in results.models for load in model.predicted for name in load.numbers}
    limited = (slo for slo in results.decision.slos if slo.metric == "ttft" and slo.column in numbers and not slo.request_class)
    first = next(limited, Slo("ttft", "p99", 0.0))
    return {"throughput_tokens_per_s": None, first.column: first}


@figure(
    "predicted-loads",
    title="Predicted beside measured",
    question="What would loads between and a little above those that were measured bring?",
    reading="Points: valid runs, whole. Lines: a model calibrated on all of them, with its 90 % interval.",
    invalid="Not shown",
    finding=lambda results: predictions_title(results.models, next(slo for slo in _metrics(results).values() if slo)),
)
def predicted_loads(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Throughput and TTFT against load, measured and predicted: a panel a metric, a line a curve."""
    predicted = _loads(results, [(model.deployment, load) for model in results.models for load in model.predicted])
    measured = _loads(results, [(model.deployment, load) for model in results.models for load in model.measured])
    if predicted.is_empty():
        why = [f"{model.deployment}: {text}" for model in results.models if (text := no_model(model))]
        return nothing_to_show("; ".join(["no load can be predicted", *why]))
    return alt.concat(*(_panel(results, predicted, measured, *each) for each in _metrics(results).items()), columns=2)


def _panel(results: Tables, predicted: pl.DataFrame, measured: pl.DataFrame, metric: str, slo: Slo | None) -> alt.LayerChart:
    unit = "" if slo is None else slo.unit if slo.limit_s else "s"
    times = 1000.0 if unit == "ms" else 1.0
    lines = (
        predicted.filter(metric=metric).with_columns(pl.col("value", "low", "high") * times).sort("level", maintain_order=True)
    )
    runs = measured.filter(metric=metric).with_columns(pl.col("value") * times)
    limit = [slo.limit_s * times] if slo and slo.limit_s else []
    span = Span.of([*lines["value"], *runs["value"]], within=limit, log=slo is not None)
    across = level_span(results)
    ends = lines.select("curve", x=pl.col("level").clip(upper_bound=across.high), y="value")  # where a line is cut off
    title = f"{slo.name} ({unit}, log)" if slo else results.tokens_per_s
    x, colour, shape = level_axis(results), curve_colour(results), curve_shape(results)
    y = alt.Y("value:Q", title=[title, _WHOLE], scale=span.scale, axis=span.ticks)
    base, low = alt.Chart(lines), alt.Y("low:Q", title=y["title"], scale=span.scale)
    dots = alt.Chart(runs).mark_point(filled=True, size=45, opacity=1)
    tooltip = ["curve:N", "run:N", "level:Q", *tips(".3g", "value")]
    layers = [
        *limit_line(limit[0] if limit else None, span, y, f"SLO: {limit[0]:g} {unit}" if limit else ""),
        base.mark_area(opacity=0.15, clip=True).encode(x=x, y=low, y2="high:Q", color=colour, detail="workload:N"),
        base.mark_line(strokeWidth=1.5, clip=True).encode(x=x, y=y, color=colour, strokeDash=curve_dash(results)),
        dots.encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
        *line_ends(results, ends, across, span, (x, y)),
    ]
    return panel(layers, slo.name if slo else "throughput")


def _loads(results: Tables, loads: Sequence[tuple[str, PredictedLoad | MeasuredLoad]]) -> pl.DataFrame:
    """The drawn numbers of loads on the axis, a row each. Args: loads: each with its deployment."""
    shown_metrics = _metrics(results)
    rows = [
        {"deployment": name, "workload": load.workload, "level": load.level, "metric": metric}
        | (vars(number) if isinstance(number, Interval) else {"value": number, "run": getattr(load, "run", None)})
        for name, load in loads
        if load.axis == results.axis
        for metric, number in load.numbers.items()
        if metric in shown_metrics
    ]
    shown = pl.DataFrame(rows, schema=_SCHEMA).join(results.runs, on=["deployment", "workload"], how="semi")
    return with_curve(results, shown).filter(pl.col("curve").is_in(curve_column(results)))


_JUDGED = ("predicted from", "output tokens/s", "TTFT P50", "TTFT P99", "TPOT P50", "ITL P99", "90 % intervals hold", "runs")
_MODELS = (
    "Fitted to the times between tokens that clients saw; `bench fleet` asks it for other loads. Errors are means of runs at levels, "
    "or of workloads, left out of the fit."
)


def section(view: View) -> Section:
    """How far the predictions of each server's model are off, and which servers have none."""
    models = view.results.models
    judged = [
        {"deployment": model.deployment, **{str(i): cell for i, cell in enumerate(cells)}}
        for model in models
        if not no_model(model)
        for cells in judgement_lines(model.judged)
    ]
    columns = [Column("deployment", "deployment"), *(Column(head, str(i)) for i, head in enumerate(_JUDGED))]
    table = Table("How far predictions of unseen runs are off", columns, judged)
    without = [Text(f"No model of {model.deployment}: {why}.") for model in models if (why := no_model(model))]
    return Section("models", "A model of each server", [table, *without, Text(_MODELS)] if models else [])


def time_spent(view: View) -> dict[tuple[str, str], str]:
    """Of each curve that has a model, by deployment and workload, where a request's time goes about its limit."""
    rows = view.runs.select("workload", "axis", pl.col("turns") > 1).unique(maintain_order=True).iter_rows()
    units = {name: AXES[axis].counted(conversations=turns) for name, axis, turns in rows}
    return {
        (model.deployment, each.workload): shares_text(load_text(each.level, units[each.workload]), each.shares)
        for model in view.results.models
        for each in _explained(view.results, model)
    }


def _explained(results: Tables, model: ModelRecord) -> list[PredictedLoad]:
    """Of each curve the predicted load that is nearest to C_max, or else to the load that misses, or to the highest measured one."""
    known = {
        row["workload"]: row["c_max"] or row["missed_at"]
        for row in results.points.filter(deployment=model.deployment).to_dicts()
    }
    highest = dict(results.runs.filter(deployment=model.deployment).group_by("workload").agg(pl.col("level").max()).iter_rows())
    found = []
    for workload in dict.fromkeys(each.workload for each in model.predicted):
        top = highest.get(workload, 0.0)
        curve = [each for each in model.predicted if each.workload == workload and not each.doubts and each.level <= top]
        if curve:
            at = known.get(workload) or top
            found.append(min(curve, key=lambda each: abs(each.level - at)))
    return found
