"""A report as one self-contained HTML page, its short form in Markdown, and the manifest of all figures."""

from __future__ import annotations

import base64
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
from bench.report.blocks import Block, Fold, Section
from bench.report.figure import KINDS
from bench.shipped import labelled


def write_page(
    page: Path,
    sections: Sequence[Section],
    *,
    title: str,
    first: Sequence[str],
    top: Mapping[str, Any],
    filtered: Mapping[str, Any],
) -> None:
    """Write a page that needs no network.

    Args:
        first: names of the sections above the overview. top: what `page.html.j2` says above and beside the sections. filtered: what the
            page's filter knows of curves.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    environment = _environment(autoescape=True)
    blocks, templates = environment.get_template("html.j2").module, files("bench.report") / "templates"
    text = environment.get_template("page.html.j2").render(
        **top,
        title=title,
        first=first,
        version=__version__,
        sections=[
            {"name": each.name, "title": each.title, "body": Markup(body)}  # noqa: S704 - made of escaped parts
            for each in sections
            if (body := _rendered(blocks, each.blocks))
        ],
        style=(templates / "style.css").read_text(encoding="utf-8"),
        scripts=[(templates / name).read_text(encoding="utf-8") for name in ("charts.js", "page.js")],
        bundle=_bundle(page.parent),
        filtered=_json(filtered),
    )
    page.write_text(text, encoding="utf-8")


def write_markdown(file: Path, sections: Sequence[Section], *, title: str, said: str, where: str) -> None:
    """Write a report in short, as Markdown for a pull request.

    What is Markdown's stays so: texts are ours but for names, in which HTML must not be live.

    Args:
        said: the line below the title. where: the last line.
    """
    blocks = _environment(autoescape=False).get_template("md.j2").module
    parts = [f"## {_plain(title)}", _plain(said)]
    for each in sections:
        if body := _rendered(blocks, each.short):
            parts.append(f"### {_plain(each.title)}\n\n{body}" if each.heading else body)
    text = "\n\n".join([*parts, _plain(where)])
    file.write_text(re.sub(r"\n{3,}", "\n\n", text) + "\n", encoding="utf-8")


def _rendered(macros: Any, blocks: Sequence[Block]) -> str:
    """What the macros named after the blocks make of them."""
    made = []
    for each in blocks:
        macro = getattr(macros, type(each).__name__.lower())
        made.append(str(macro(each, Markup(_rendered(macros, each.blocks))) if isinstance(each, Fold) else macro(each)))  # noqa: S704 - as above
    return "".join(made).strip()


@cache
def _environment(*, autoescape: bool) -> jinja2.Environment:
    loader = jinja2.PackageLoader("bench.report")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, autoescape=autoescape)  # noqa: S701 - as asked
    environment.filters |= {
        "labelled": labelled,
        "prose": _prose,
        "plain": _plain,
        "bar": lambda text: _plain(text).replace("|", "&#124;"),
    }
    return environment


def _plain(text: Any) -> str:
    """A text on one line in which no tag, link, picture or mention can begin: none of ours is one, and servers are quoted."""
    line = " ".join(str(text).splitlines()).replace("<", "&lt;").replace("](", "]\\(")
    return re.sub(r"@(?=\w)", "@\u2060", line)


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


def read_figure(spec: Path) -> dict[str, Any]:
    """A figure's `name`, its texts (`title`, `question`, `reading`, `note`), its `spec` for a script element, and its `picture`, an SVG
    for readers without scripts, where it is there.
    """
    content, svg = json.loads(spec.read_text(encoding="utf-8")), spec.with_suffix(".svg")
    picture = base64.b64encode(svg.read_bytes()).decode() if svg.exists() else ""
    return {"name": spec.stem, **content.pop("usermeta"), "spec": _json(content), "picture": picture}


def _json(content: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end that early, or begin another."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def write_manifest(manifest: Path, *, figures: Sequence[Path], page: Path, runs: pl.DataFrame, closing: Sequence[str]) -> None:
    """Write the list of all figures: each file with its checksum, each figure's texts, and the runs that they were drawn from.

    With it stand the `closing` lines of the workflow, for one that finds nothing to do. Figures beside them that the list does not have
    are another study's, and go.

    Args:
        runs: rows of the summary.
    """
    content: dict[str, Any] = {
        "figures": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in figures},
        "texts": {
            path.stem: json.loads(path.read_text(encoding="utf-8"))["usermeta"] for path in figures if path.suffix == ".json"
        },
        "page": {page.name: hashlib.sha256(page.read_bytes()).hexdigest()},
        "runs": dict(runs.select(pl.format("{}/{}", "deployment", "run"), "digest").iter_rows()),
        "closing": list(closing),
    }
    manifest.parent.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        for file in manifest.parent.glob(f"*.{kind}"):
            if file.name not in content["figures"]:
                file.unlink()
    manifest.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
