"""One self-contained HTML page, and the manifest of all figures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
import vl_convert

from bench.analysis import METRICS, repeats
from bench.figures import Results
from bench.figures.registry import load_figure
from bench.parse import tail_text

__all__ = ["write_manifest", "write_report"]

_KINDS = ("svg", "png", "json")


def write_report(page: Path, *, title: str, results: Results, specs: Sequence[Path], facts: Sequence[Path]) -> None:
    """Write the page: what was found, the figures (interactive, without a network), every run, and where it ran.

    Args:
        specs: the figures' Vega-Lite files, named after their figures. facts: `deployment.json` of each deployment.
    """
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (files("bench.report") / "page.html.j2").read_text()
    )
    runs = results.runs.sort("deployment", "workload", "level", "repeat", maintain_order=True)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(
        template.render(
            title=title,
            # A spec stands in a script element: no "</" may end it early.
            figures=[(load_figure(spec.stem), spec.read_text().replace("</", "<\\/")) for spec in specs],
            saturation=results.saturation.to_dicts(),
            comparisons=results.comparisons,
            baseline=next(iter(results.runs.filter("baseline")["deployment"]), None),
            replicas=results.runs.filter("replica")["deployment"].unique(maintain_order=True).to_list(),
            metrics=METRICS,
            repeats=repeats(runs, "throughput_tokens_per_s").filter(pl.col("n") > 1).to_dicts(),
            tail_text=tail_text,
            runs=runs.to_dicts(),
            invalid=runs.filter(~pl.col("valid")).to_dicts(),
            facts=[json.loads(path.read_text()) for path in facts],
            bundle=vl_convert.javascript_bundle(),  # type: ignore[call-arg]
        )
    )


def write_manifest(manifest: Path, *, figures: Sequence[Path], page: Path, results: Results) -> None:
    """Write the list of all figures: each file with its checksum, and the runs that they were drawn from.

    Figures beside them that the list does not have are another study's, and go.
    """
    content: dict[str, Any] = {
        "figures": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in figures},
        "page": {page.name: hashlib.sha256(page.read_bytes()).hexdigest()},
        "runs": dict(results.runs.select(pl.format("{}/{}", "deployment", "run"), "digest").iter_rows()),
    }
    manifest.parent.mkdir(parents=True, exist_ok=True)
    for kind in _KINDS:
        for file in manifest.parent.glob(f"*.{kind}"):
            if file.name not in content["figures"]:
                file.unlink()
    manifest.write_text(json.dumps(content, indent=2) + "\n")
