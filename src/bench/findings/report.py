"""The report of a study: its page, and in short as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import __version__
from bench.errors import count_text
from bench.findings import headline, levels, provenance, trust
from bench.findings.registry import sections
from bench.findings.tables import Tables
from bench.findings.view import View
from bench.report.blocks import Charts, Items, Section
from bench.report.page import read_figure, write_markdown, write_page
from bench.report.theme import with_curve
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import read
from bench.shipped import labelled
from bench.study.config import Thresholds

_FIRST = ("headline", "answers")  # above the overview
_MADE = "The report: results/report.html (in short: results/report.md)  The figures: results/figures/"
_OWN_QUESTION = {"tuning", "comparison", "factors", "lengths", "settings"}  # answers of studies that ask about more than load


def figures(view: View) -> Section:
    return Section("figures", "Figures", [Charts(view.figures[1:], note=True)])


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
    thresholds: Thresholds | None = None,
) -> None:
    """Write the page: what was found, the figures (interactive, without a network), every run, and where it ran.

    Args:
        summary: where its findings go in short, as Markdown for a pull request.
        specs: the figures' Vega-Lite files, named after their figures. facts: `deployment.json` of each deployment.
        commit: of the sources that draw it, as `commit_of` reports it. of_study: how many runs the whole study has.
        thresholds: by which validity was judged; None for the defaults.
    """
    known, drawn = [read(DeploymentFacts, path) for path in facts], [read_figure(spec) for spec in specs]
    view = View(results, known, thresholds or Thresholds(), drawn, commit)
    made = [section(view) for section in sections()]  # those that do not apply are empty
    notes = [
        trust.remedy(view.runs),
        f"The whole study has {count_text(of_study, 'run')}." if of_study and of_study > view.runs.height else "",
        f"**{changed}**" if (changed := trust.changed_thresholds(view.thresholds)) else "",
    ]
    own = {each.name for each in view.answers} & _OWN_QUESTION
    found = "" if own else headline.finding(results, view.judged)
    overview, trusted = provenance.overview(view.runs, view.facts), trust.first_line(view.runs)
    write_page(
        page,
        made,
        title=title,
        first=_FIRST,
        top={
            "finding": found,
            "trust": trusted,
            "notes": notes,
            "invalid": view.invalid.height,
            "alarm": not view.runs["valid"].any(),
            "overview": overview,
            "commit": commit,
        },
        filtered=_filtered(results),
    )
    if summary is not None:
        where = [", ".join(overview["engines"]), "; ".join(overview["hardware"])]
        where += [f"measured {overview['started']} UTC" if overview["started"] else ""]
        by = f"Saturate {__version__}{f', {labelled(commit)}' if commit else ''}."
        write_markdown(
            summary,
            made,
            title=found or title,
            said=" ".join(filter(None, [title if found else "", f"**{trusted}**", *notes])),
            where=f"{'; '.join(filter(None, where))}. {by}",
        )


def closing_lines(results: Tables, *, figures: int) -> list[str]:
    """Lines to end with: what cannot be trusted, the answer, a line a curve, and last where the report is.

    Args:
        figures: how many files of figures there are.
    """
    view = View(results)
    told = [*headline.lines(view.judged), *levels.answer(results).lines]
    return [*trust.warnings(results.runs, figures=figures), *told, _MADE]


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


_TERMS = (
    "**TTFT**: from a request's sending to the first chunk with a token. **TPOT**: (E2E − TTFT) ÷ (output tokens − 1).",
    "**Sustained** is judged in the steady window of continuous loads (up to C_max, the highest such level), of bursts as a whole.",
    "**95 % intervals** are of one start of a server, unless the baseline was measured in several sessions.",
    f"Every definition with its formula and its edges: docs/reference/metrics.md of Saturate {__version__}.",
)


def methods(_: View) -> Section:
    return Section("methods", "Methods", [Items(_TERMS)])
