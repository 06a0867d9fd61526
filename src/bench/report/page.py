"""One self-contained HTML page, and the manifest of all figures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
import vl_convert
from markupsafe import Markup, escape

from bench import __version__
from bench.analysis import Comparison, Prices, graded, left_out
from bench.analysis.validity import PARTS
from bench.axes import AXES
from bench.commit import labelled
from bench.errors import count_text, shown_share
from bench.figures.curves import with_curve
from bench.figures.registry import KINDS
from bench.figures.results import Results
from bench.models.geometry import Geometry
from bench.parse.percentiles import tail_text
from bench.predict.calibration import ModelRecord, PredictedLoad
from bench.report import provenance
from bench.report.answers import answers
from bench.report.classes import class_rows
from bench.report.findings import curves
from bench.report.headline import headline
from bench.report.levels import level_rows, shown_latencies
from bench.report.workers import fleets
from bench.runs.classes import class_names
from bench.runs.columns import METRICS
from bench.runs.deployment import read_facts
from bench.runs.searches import SearchRecord
from bench.study.config import Thresholds
from bench.study.slo import applying
from bench.words import accuracy, comparison, predicted, regions, setting_gain, trust
from bench.words.answer import AGAIN
from bench.words.capacity import BURSTS
from bench.words.curves import limits, limits_text
from bench.words.identical import same_answers
from bench.words.loads import latency_text, load_cell, load_text
from bench.words.searches import looked_for, search_ended, search_limit
from bench.words.streams import stream_notes
from bench.words.verdicts import failures, reason_texts, stopped

# In the page's order: each is a file in templates/sections, which sets its `title` and may come out empty where it does not apply.
_SECTIONS = (
    "headline",
    "answers",
    "levels",
    "classes",
    "accuracy",
    "verdicts",
    "settings",
    "workers",
    "searches",
    "operating",
    "figures",
    "saturation",
    "comparison",
    "models",
    "economics",
    "runs",
    "failures",
    "streams",
    "invalid",
    "provenance",
    "methods",
)


def write_report(
    page: Path,
    *,
    title: str,
    results: Results,
    specs: Sequence[Path],
    facts: Sequence[Path],
    commit: str | None = None,
    summary: Path | None = None,
    of_study: int | None = None,
    geometries: Mapping[str, Geometry] | None = None,
    thresholds: Thresholds | None = None,
) -> None:
    """Write the page: what was found, the figures (interactive, without a network), every run, and where it ran.

    Args:
        summary: where its findings go in short, as Markdown for a pull request. geometries: of each deployment, for the speeds of its
            calibrated model.
        specs: the figures' Vega-Lite files, named after their figures. facts: `deployment.json` of each deployment.
        commit: of the sources that draw it, as `commit_of` reports it. of_study: how many runs the whole study has.
        thresholds: by which validity was judged; None for the defaults.
    """
    runs = results.runs.sort("deployment", "workload", "level", "repeat", maintain_order=True)
    rows = [{**run, "reasons": reason_texts(run["reasons"]), "failures": failures(run)} for run in runs.to_dicts()]
    known = [read_facts(path) for path in facts]
    found, told = results.analysis.findings, curves(results)
    answered = answers(results, told)
    remedied = any(AGAIN in answer.do for answer in answered)
    cards = headline(told)
    figures = [_figure(spec) for spec in specs]
    # The limits of each kind of load; of a class that none has, the table of levels would have dashes alone.
    judged = [
        applying(results.decision.slos, class_names(classes)) for classes in results.runs["classes"].unique(maintain_order=True)
    ]
    shown = [slo for slo in results.decision.slos if any(slo in each for each in judged)]
    context: dict[str, Any] = {
        "title": title,
        "headline": cards,
        "headline_heads": list(dict.fromkeys(number.what for card in cards for number in card.numbers)),
        "answers": answered,
        "trust": trust.first_line(runs),
        "remedy": "" if remedied else trust.remedy(runs),
        "any_valid": bool(runs["valid"].any()),
        "thresholds": trust.changed_thresholds(thresholds or Thresholds()),
        "version": __version__,
        "commit": commit,
        "overview": provenance.overview(runs, known),
        "lead": figures[0] if figures else None,
        "figures": figures[1:],
        "levels": level_rows(results.runs, shown),
        "levels_within": limits_text(judged),
        "classes": class_rows(results.runs, results.decision.slos),
        "settings": setting_gain.rows(found.settings),
        "fleets": fleets(results.runs, thresholds or Thresholds(), found.efficiencies),
        "latency_text": latency_text,
        "shown": shown_latencies(shown),
        "accuracy": _accuracy(results),
        "accuracy_heads": (*accuracy.HEADS, *accuracy.BESIDE),
        "accuracy_meaning": _accuracy_meaning(results.grades),
        "ungraded": accuracy.ungraded_text(results.ungraded) if results.ungraded else None,
        "searches": _searched(results.answered),
        "filtered": _json(_filtered(results)),
        "families": dict(runs.select("workload", "family").unique().iter_rows()),
        "saturation": [_saturates(row) for row in _laddered(results).iter_rows(named=True)],
        "comparisons": {name: _compared(each) for name, each in results.comparisons.items()},
        "baseline": next(iter(results.runs.filter("baseline")["deployment"]), None),
        "replicas": results.runs.filter("replica")["deployment"].unique(maintain_order=True).to_list(),
        "metrics": METRICS,
        "size_text": comparison.size_text,
        "estimated": comparison.ESTIMATED,
        "interval_text": comparison.interval_text,
        "tail_text": tail_text,
        "runs": rows,
        "stopped": stopped,
        "of_study": of_study if of_study and of_study > runs.height else None,
        "invalid": [run for run in rows if False in (run["valid"], run["counts_valid"])],
        "accept": trust.accept_others(run["reasons"] for run in runs.filter(~pl.col("valid")).iter_rows(named=True)),
        "invalid_why": trust.alike(reason for run in rows for reason in run["reasons"]),
        "streamed": trust.alike(note for run in rows for note in stream_notes(run)),
        "parts": PARTS,
        "failing": [run for run in rows if run["failures"]],
        "facts": provenance.deployments(known, runs),
        "workloads": provenance.workloads(runs),
        "curves": told,
        "of_bursts": BURSTS if any(curve.burst for curve in told) else "",
        "economics": found.economics,
        "ceilings": [predicted.ceiling_text(each, results.device.title) for each in found.ceilings if results.device],
        "models": _models(results, geometries or {}),
        "spent": _spent(results),
        "slos": results.decision.slos,
        "within": limits(told),
        "counted": results.tokens_per_s.removesuffix("/s"),
        "peak_rps": results.decision.peak_rps,
        "safety": results.decision.safety,
        "prices": Prices.of(results.decision, results.device),
        "device": results.device,
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_render(context, _bundle(page.parent)), encoding="utf-8")
    if summary is not None:
        summary.write_text(_markdown(context), encoding="utf-8")


def _searched(found: Sequence[tuple[str, SearchRecord]]) -> list[dict[str, Any]]:
    return [
        {
            "deployment": deployment,
            "workload": each.workload,
            "slos": each.slos,
            "sought": looked_for(each.slos),
            "limit": search_limit(each),
            "ended": search_ended(each),
        }
        for deployment, each in found
    ]


def _accuracy(results: Results) -> list[dict[str, Any]]:
    """What of a graded set each deployment solves at each load, with the share of answers that are the baseline's, and its limit."""
    if results.grades is None:
        return []
    same = {
        (name, *(row[key] for key in ("workload", "axis", "level"))): row
        for name, found in results.comparisons.items()
        for row in found.answers
    }
    families = dict(results.runs.select("workload", "family").iter_rows())
    kv_tokens = dict(results.runs.select("deployment", "kv_tokens").iter_rows())
    limits_of = {(row["deployment"], row["workload"]): row for row in results.points.iter_rows(named=True)}
    found = []
    for each in graded(results.runs, results.grades):
        alike = same.get((each.deployment, each.workload, each.axis, each.level), {})
        of = limits_of.get((each.deployment, each.workload), {})
        cells = [*accuracy.accuracy_cells(each), *accuracy.beside_cells(alike, kv_tokens.get(each.deployment), of.get("c_max"))]
        found.append({**vars(each), "family": families[each.workload], "cells": cells})
    return found


def _accuracy_meaning(grades: pl.DataFrame | None) -> str:
    lost = "" if grades is None else accuracy.left_out_text(left_out(grades), grades["task"].n_unique())
    return f"{accuracy.MEANING} {lost}".rstrip()


def _laddered(results: Results) -> pl.DataFrame:
    """The rows of `saturation`, without workloads of swept lengths at a single load: they saturate nowhere."""
    swept = results.runs.filter(
        (pl.col("workload") != pl.col("family")) & (pl.col("level").n_unique().over("deployment", "workload") == 1)
    )
    return results.saturation.join(swept, on=["deployment", "workload"], how="anti", maintain_order="left")


def _saturates(row: Mapping[str, Any]) -> dict[str, Any]:
    points = {str(name): regions.turning_point(row, name) for name in regions.POINTS}
    return {**row, **points}


def _compared(found: Comparison) -> dict[str, Any]:
    return {
        **{name: getattr(found, name) for name in ("overall", "regions", "uncompared", "absent", "estimates", "matched")},
        "failed": [comparison.failed_requests(found, row) for row in found.failures],
        "same": [same_answers(found, row) for row in found.answers],
        "differences": [comparison.difference_text(each) for each in found.differences],
    }


def _models(results: Results, geometries: Mapping[str, Geometry]) -> list[dict[str, Any]]:
    models = results.calibration.models if results.calibration else ()
    return [
        {
            "deployment": model.deployment,
            "why_not": predicted.no_model(model),
            "parameters": {name: predicted.parameter_text(interval) for name, interval in model.parameters.items()},
            "reached": predicted.prompt_flops_text(model, geometries.get(model.deployment)),
            "residual": shown_share(model.residual),
            "noise": shown_share(model.run_noise),
            "judged": predicted.judgement_lines(model.judged),
        }
        for model in models
    ]


def _spent(results: Results) -> dict[tuple[str, str], str]:
    """Of each curve that has a model, by deployment and workload, where a request's time goes about its limit."""
    rows = results.runs.select("workload", "axis", pl.col("turns") > 1).unique(maintain_order=True).iter_rows()
    units = {name: AXES[axis].counted(conversations=turns) for name, axis, turns in rows}
    return {
        (model.deployment, load.workload): predicted.shares_text(load_text(load.level, units[load.workload]), load.shares)
        for model in (results.calibration.models if results.calibration else ())
        for load in _explained(results, model)
    }


def _explained(results: Results, model: ModelRecord) -> list[PredictedLoad]:
    """Of each curve the predicted load that is nearest to C_max, or else to the load that misses, or to the highest measured one."""
    known = {
        row["workload"]: row["c_max"] or row["missed_at"]
        for row in results.points.filter(deployment=model.deployment).to_dicts()
    }
    highest = dict(results.runs.filter(deployment=model.deployment).group_by("workload").agg(pl.col("level").max()).iter_rows())
    found = []
    for workload in dict.fromkeys(load.workload for load in model.predicted):
        top = highest.get(workload, 0.0)
        curve = [load for load in model.predicted if load.workload == workload and not load.doubts and load.level <= top]
        if curve:
            at = known.get(workload) or top
            found.append(min(curve, key=lambda load: abs(load.level - at)))
    return found


def _markdown(context: Mapping[str, Any]) -> str:
    """The findings in short. What is Markdown's stays so: texts are ours but for names, in which HTML must not be live."""
    environment = _environment(autoescape=False, finalize=_without_html)  # quotes are to stay quotes
    environment.filters["cell"] = lambda value, shape: "–" if value is None else shape % value
    return environment.get_template("summary.md.j2").render(**context)


def _environment(**options: Any) -> jinja2.Environment:
    loader = jinja2.PackageLoader("bench.report")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **options)  # noqa: S701 - as asked
    environment.filters |= {"labelled": labelled, "load_cell": load_cell, "count": count_text}
    return environment


def _without_html(value: Any) -> Any:
    """A text on one line in which no tag can begin."""
    return " ".join(value.splitlines()).replace("<", "&lt;") if isinstance(value, str) else value


def _bundle(folder: Path) -> str:
    """The Vega libraries that the page draws with, kept in `folder` for this vl-convert: to bundle them takes a second."""
    kept = folder / f".vega-{vl_convert.__version__}.js"  # type: ignore[attr-defined]
    if not kept.exists():
        unfinished = kept.with_suffix(".unfinished")
        unfinished.write_text(vl_convert.javascript_bundle(), encoding="utf-8")  # type: ignore[call-arg]
        unfinished.rename(kept)
    return kept.read_text(encoding="utf-8")


def _render(context: Mapping[str, Any], bundle: str) -> str:
    environment = _environment(autoescape=True)
    environment.filters["prose"] = _prose
    sections = []
    for name in _SECTIONS:
        section: Any = environment.get_template(f"sections/{name}.html.j2").make_module(dict(context))
        if body := section.__html__().strip():
            sections.append({"name": name, "title": section.title, "body": body})
    templates = files("bench.report") / "templates"
    return environment.get_template("page.html.j2").render(
        **context,
        sections=sections,
        style=(templates / "style.css").read_text(encoding="utf-8"),
        scripts=[(templates / name).read_text(encoding="utf-8") for name in ("charts.js", "page.js")],
        bundle=bundle,
    )


def _prose(text: str) -> Markup:
    """A sentence with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped just before


def _figure(spec: Path) -> dict[str, Any]:
    """A figure's `name`, its texts (`title`, `question`, `reading`, `note`), and its `spec` for a script element."""
    content = json.loads(spec.read_text(encoding="utf-8"))
    return {"name": spec.stem, **content.pop("usermeta"), "spec": _json(content)}


def _filtered(results: Results) -> dict[str, Any]:
    """What the page's filter knows: the families of workloads, and of each curve in charts its deployment, its model and its family."""
    keys = ("deployment", "workload", "family", "model")
    rows = with_curve(results, results.runs.select(keys).unique(maintain_order=True)).to_dicts()
    return {
        "deployments": {row["deployment"]: row["model"] for row in rows},
        "families": list(dict.fromkeys(row["family"] for row in rows)),
        "workloads": {row["workload"]: row["family"] for row in rows},
        "curves": {row["curve"]: [row["deployment"], row["family"]] for row in rows},
    }


def _json(content: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end that early, or begin another."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def write_manifest(manifest: Path, *, figures: Sequence[Path], page: Path, results: Results, closing: Sequence[str]) -> None:
    """Write the list of all figures: each file with its checksum, each figure's texts, and the runs that they were drawn from.

    With it stand the `closing` lines of the workflow, for one that finds nothing to do.

    Figures beside them that the list does not have are another study's, and go.
    """
    content: dict[str, Any] = {
        "figures": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in figures},
        "texts": {
            path.stem: json.loads(path.read_text(encoding="utf-8"))["usermeta"] for path in figures if path.suffix == ".json"
        },
        "page": {page.name: hashlib.sha256(page.read_bytes()).hexdigest()},
        "runs": dict(results.runs.select(pl.format("{}/{}", "deployment", "run"), "digest").iter_rows()),
        "closing": list(closing),
    }
    manifest.parent.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        for file in manifest.parent.glob(f"*.{kind}"):
            if file.name not in content["figures"]:
                file.unlink()
    manifest.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
