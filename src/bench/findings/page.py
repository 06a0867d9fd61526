"""One self-contained HTML page, and the manifest of all figures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
import vl_convert
from markupsafe import Markup, escape

from bench import __version__
from bench.commit import labelled
from bench.errors import count_text
from bench.findings import accuracy, provenance, trust
from bench.findings.capacity.curves import limits, limits_text
from bench.findings.capacity.words import BURSTS
from bench.findings.economics import Prices
from bench.findings.predicted import ceiling_text
from bench.findings.tables import Tables
from bench.findings.view import View, cell
from bench.models.geometry import Geometry
from bench.parse.validity import PARTS
from bench.report.answer import AGAIN
from bench.report.figure import KINDS
from bench.report.theme import with_curve
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import read
from bench.study.config import Thresholds

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
    "operating",
    "figures",
    "saturation",
    "comparison",
    "models",
    "economics",
    "runs",
    "invalid",
    "provenance",
    "methods",
)
_SHORT = ("headline", "answers", "verdicts", "workers", "levels", "accuracy", "runs", "invalid")  # in Markdown


def write_report(
    page: Path,
    *,
    title: str,
    results: Tables,
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
    view = View(results, [read(DeploymentFacts, path) for path in facts], thresholds or Thresholds(), geometries or {})
    answered = any(AGAIN in answer.do for answer in view.answers)
    accept = trust.accept_others(view.runs.filter(~pl.col("valid"))["reasons"])
    context: dict[str, Any] = {
        "view": view,
        "results": results,
        "decision": results.decision,
        "findings": results.analysis.findings,
        "prices": Prices.of(results.decision, results.device),
        "counted": results.tokens_per_s.removesuffix("/s"),
        "figures": [_figure(spec) for spec in specs],
        "overview": provenance.overview(view.runs, view.facts),
        "accept": accept,
        "title": title,
        "trust": trust.first_line(view.runs),
        "notes": [
            "" if answered else trust.remedy(view.runs),
            f"The whole study has {count_text(of_study, 'run')}." if of_study and of_study > view.runs.height else "",
            f"**{changed}**" if (changed := trust.changed_thresholds(view.thresholds)) else "",
        ],
        "version": __version__,
        "commit": commit,
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_page(context, _bundle(page.parent)), encoding="utf-8")
    if summary is not None:
        summary.write_text(_markdown(context), encoding="utf-8")


@cache
def _environment(**options: Any) -> jinja2.Environment:
    loader = jinja2.PackageLoader("bench.findings")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **options)  # noqa: S701 - as asked
    environment.filters |= {"labelled": labelled, "count": count_text, "cell": cell, "prose": _prose, "plain": _plain}
    environment.globals |= {
        "limits": limits,
        "limits_text": limits_text,
        "ceiling_text": ceiling_text,
        "provenance": provenance,
    }
    environment.globals |= {"accuracy": accuracy, "BURSTS": BURSTS, "PARTS": PARTS}
    return environment


def _sections(environment: jinja2.Environment, names: Sequence[str], context: Mapping[str, Any]) -> list[dict[str, str]]:
    """What is not empty of the sections: `name`, `title` and `body`."""
    found = []
    for name in names:
        section: Any = environment.get_template(f"sections/{name}.j2").make_module(dict(context))
        if body := str(section).strip():
            found.append({"name": name, "title": section.title, "body": body})
    return found


def _page(context: Mapping[str, Any], bundle: str) -> str:
    environment = _environment(autoescape=True)
    templates = files("bench.findings") / "templates"
    return environment.get_template("page.html.j2").render(
        **context,
        sections=_sections(environment, _SECTIONS, {**context, "blocks": "html.j2", "short": False}),
        style=(templates / "style.css").read_text(encoding="utf-8"),
        scripts=[(templates / name).read_text(encoding="utf-8") for name in ("charts.js", "page.js")],
        bundle=bundle,
        filtered=_json(_filtered(context["results"])),
    )


def _markdown(context: Mapping[str, Any]) -> str:
    """The findings in short. What is Markdown's stays so: texts are ours but for names, in which HTML must not be live."""
    said = " ".join(filter(None, [f"**{context['trust']}**", *context["notes"]]))
    parts = [f"## {_plain(context['title'])}", _plain(said)]
    # Quotes are to stay quotes.
    for each in _sections(_environment(autoescape=False), _SHORT, {**context, "blocks": "md.j2", "short": True}):
        headed = each["name"] not in ("headline", "answers")
        parts.append(f"### {_plain(each['title'])}\n\n{each['body']}" if headed else each["body"])
    overview = context["overview"]
    commit = f", {labelled(context['commit'])}" if context["commit"] else ""
    where = [", ".join(overview["engines"]), "; ".join(overview["hardware"])]
    where += [f"measured {overview['started']} UTC" if overview["started"] else ""]
    parts.append(_plain(f"{'; '.join(filter(None, where))}. Saturate {context['version']}{commit}."))
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(parts)) + "\n"


def _plain(text: Any) -> str:
    """A text on one line in which no tag can begin."""
    return " ".join(str(text).splitlines()).replace("<", "&lt;")


def _prose(text: str) -> Markup:
    """A sentence with what stands between backticks as code, and between pairs of stars bold."""
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", code))  # noqa: S704 - escaped just before


def _bundle(folder: Path) -> str:
    """The Vega libraries that the page draws with, kept in `folder` for this vl-convert: to bundle them takes a second."""
    kept = folder / f".vega-{vl_convert.__version__}.js"  # type: ignore[attr-defined]
    if not kept.exists():
        unfinished = kept.with_suffix(".unfinished")
        unfinished.write_text(vl_convert.javascript_bundle(), encoding="utf-8")  # type: ignore[call-arg]
        unfinished.rename(kept)
    return kept.read_text(encoding="utf-8")


def _figure(spec: Path) -> dict[str, Any]:
    """A figure's `name`, its texts (`title`, `question`, `reading`, `note`), and its `spec` for a script element."""
    content = json.loads(spec.read_text(encoding="utf-8"))
    return {"name": spec.stem, **content.pop("usermeta"), "spec": _json(content)}


def _filtered(results: Tables) -> dict[str, Any]:
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


def write_manifest(manifest: Path, *, figures: Sequence[Path], page: Path, results: Tables, closing: Sequence[str]) -> None:
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
