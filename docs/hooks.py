"""Pages of the site that are made when it is built, from what the code declares: nothing of them is copied by hand."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import typer.main
from docstrings import split
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from rich.text import Text

from bench.beside.archive.pack import PackIndex
from bench.cli.entry import app, loaded
from bench.models.checkpoint_record import Checkpoint
from bench.runs.columns import ANALYSIS, SECTIONS, with_tables
from bench.runs.deployment import DeploymentFacts
from bench.runs.launch import EngineRecord, Launch
from bench.runs.paths import Paths
from bench.runs.request import OPTIONAL, RequestForm, RequestRecord
from bench.runs.run import RunRecord
from bench.runs.summary import RunSummary
from bench.study.reference import reference
from bench.workloads.endpoints import ENDPOINTS, Endpoint

ROOT = Path(__file__).parents[1]
_ROOMS = [f"src/bench/{file.parent.name}" for file in sorted(ROOT.glob("src/bench/*/__init__.py"))]
_FOLDERS = ["workflow/rules", "workflow/scripts", "src/bench", *_ROOMS, "benchmarks", "tests"]
_SOURCES = {".py", ".smk", ".j2", ".css", ".js"}
_TABLES = {"reference/metrics.md": SECTIONS, "reference/analysis.md": ANALYSIS}  # pages with tables of columns
_RUN = str(Path(Paths.RECORD).parent)
# Each record: its file, and the class that reads and writes it.
_RECORDS: dict[str, type[Any]] = {
    Paths.ENGINE: EngineRecord,
    Paths.CHECKPOINT: Checkpoint,
    Paths.LAUNCH: Launch,
    Paths.FACTS: DeploymentFacts,
    f"{_RUN}/run.json": RunRecord,
    f"{_RUN}/requests.jsonl": RequestRecord,
    Paths.RUN_SUMMARY: RunSummary,
    "pack.json": PackIndex,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages. Those of the reference take the place of files that say so to readers of the repository."""
    pages = {
        "reference/configuration.md": configuration(),
        "reference/cli.md": commands(),
        "reference/records.md": records(),
        "reference/endpoints.md": endpoints(),
        "explanation/benchmarks.md": included("benchmarks/README.md", "explanation"),
        "changelog.md": included("CHANGELOG.md", "."),
    }
    for path, text in pages.items():
        if (placeholder := files.get_file_from_path(path)) is not None:
            files.remove(placeholder)
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in what a page leaves to this file."""
    if (sections := _TABLES.get(page.file.src_uri)) is not None:
        return with_tables(markdown, sections)
    return markdown.replace("<!-- lines of code -->", lines_of_code())


def configuration() -> str:
    """Every key of a study's file. `make config` writes the same to config/README.md."""
    return _linked(reference())


# --- The command line


def commands() -> str:
    """Every command with its arguments and options."""
    root = typer.main.get_command(app)
    context = root.make_context("bench", [], resilient_parsing=True)
    parts = [
        "# Command line\n",
        "`make` runs a whole study; `bench` looks at one, or runs a single stage. In a clone it is `.venv/bin/bench`. Errors go to "
        "stderr.\n",
        *_command("bench", root, context),
    ]
    for name in root.list_commands(context):
        command = loaded(name)
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        parts += [f"## bench {name} {{ #{name} }}\n", *_command(f"bench {name}", command, inner)]
    return "\n".join(parts)


def _command(name: str, command: Any, context: Any) -> Iterator[str]:
    yield f"{_prose(command.help or '')}\n"
    yield f"    {' '.join([name, *command.collect_usage_pieces(context)])}\n"
    rows = [record for each in command.params if each.name != "help" and (record := each.get_help_record(context))]
    if rows:
        yield "| option | meaning |"
        yield "|---|---|"
        for names, meaning in rows:
            yield f"| `{_cell(names)}` | {_escaped(_cell(meaning))} |"
        yield ""
    if command.epilog:
        yield f"{_prose(command.epilog)}\n"


def _prose(text: str) -> str:
    """Help as Markdown: examples become code, and names of pages links."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(Text.from_markup(text).plain)):
        lines = part.splitlines()
        words = _escaped("\n".join(line for line in lines if not line.startswith("$ ")))
        parts.append(_linked(words))
        if examples := [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]:
            parts.append("\n".join(["```bash", *examples, "```"]))
    return "\n\n".join(parts)


def _linked(text: str) -> str:
    """Text for a page of the reference, with the files that it names as links to their pages."""
    return re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text whose <, * and _ mean themselves, but in code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"[*_]", r"\\\g<0>", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


# --- Endpoints


def endpoints() -> str:
    """Every endpoint: what is sent there, and what of its answers can be timed, counted and checked."""
    parts = [
        "# Endpoints\n",
        "`endpoint` of a workload (`--set endpoint=…`) says where requests go. What each takes, and what is known of its answers:\n",
        "| endpoint | requests | work | timed | counted | checked | may be left out |",
        "|---|---|---|---|---|---|---|",
        *(f"| `{name}` | {' | '.join(map(_table_text, _endpoint(each)))} |" for name, each in ENDPOINTS.items()),
        "",
        (ROOT / "docs/reference/endpoints.md").read_text().partition("<!-- what the table means -->")[2],
    ]
    return "\n".join(parts)


def _endpoint(endpoint: Endpoint) -> tuple[str, ...]:
    """The cells of an endpoint's row."""
    words = {"text": "a text", "chat": "the messages of a chat", "query": "a query and its documents"}
    kinds = [words[kind] for kind in endpoint.kinds if kind != "calls"]  # which are a chat's
    kinds = kinds if endpoint.sends_text(RequestForm()) else ["token ids", *kinds]
    work = endpoint.work
    timed = "E2E"
    counted = "prompt tokens"
    checked = "the prompt's length"
    if work.generates:
        timed = f"TTFT, {'first output after reasoning, ' if endpoint.reasons else ''}ITL, TPOT, E2E"
        counted = f"prompt, cached{', reasoning' if endpoint.reasons else ''} and output tokens"
        checked += f", the answer's (`{endpoint.limits[0]}`), that a stream ends (with `[DONE]`)"
    left_out = ", ".join(f"`{name}`" for name in OPTIONAL if name not in endpoint.lacks)
    return (
        f"`POST {endpoint.address}`: {' or '.join(kinds)}",
        f"{work.name}: {work.answer}",
        timed,
        counted,
        checked,
        left_out or "–",
    )


# --- Records


def records() -> str:
    """Every record with its fields."""
    parts = [
        "# Records\n",
        "The files that pass results from stage to stage. All are JSON and are checked when they are read. A run's raw records are "
        "never changed after it was measured; `run.json` holds the SHA-256 of each. Times are seconds, sizes bytes, shares 0 to 1.\n",
        "| file | is |",
        "|---|---|",
        *(f"| [`{path}`](#{_anchor(kind)}) | {_summary(kind)} |" for path, kind in _RECORDS.items()),
        f"| `{_RUN}/telemetry.jsonl.gz` | Every scrape of every endpoint: when it was taken, and the samples that changed. |",
        f"| [`{Paths.SUMMARY}`](metrics.md) | One row a run, with every column of the catalogue; `{Paths.SUMMARY_CSV}` is the same. |",
        f"| [`{Paths.ANALYSIS}/*.parquet`](analysis.md) | What the runs show: a row a curve, or a pair of deployments. |",
        f"| `{Paths.TIMESERIES}` | What each run's server reported over time. |",
        "",
    ]
    seen: list[type[Any]] = []
    for path, kind in _RECORDS.items():
        parts += [f"## `{Path(path).name}` {{ #{_anchor(kind)} }}\n", f"At `{path}`. {_summary(kind)}\n", *_fields(kind)]
        inner = [each for each in _inside(kind) if each not in seen]
        for each in inner:
            seen.append(each)
            parts += [f"### `{each.__name__}` {{ #{_anchor(each)} }}\n", f"{_summary(each)}\n", *_fields(each)]
    return "\n".join(parts)


def _fields(kind: type[Any]) -> Iterator[str]:
    hints, meanings = typing.get_type_hints(kind), _meanings(kind)
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for field in fields(kind):
        meaning = meanings.get(field.name) or (_summary(hints[field.name]) if is_dataclass(hints[field.name]) else "")
        yield f"| `{field.name}` | {_type(hints[field.name])} | {_table_text(meaning)} |"
    yield ""


def _meanings(kind: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and those that it is built on say of its fields."""
    names = [field.name for field in fields(kind)]
    found: dict[str, str] = {}
    for each in reversed([base for base in kind.__mro__ if is_dataclass(base)]):
        text = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        for group, meaning in split(text, names):
            for name in names:
                if name in group or any(name.startswith(f"{start}_") and start not in names for start in group):
                    found[name] = meaning
    return found


def _summary(kind: type[Any]) -> str:
    return _table_text(" ".join(inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[0].split()))


def _table_text(text: str) -> str:
    """A docstring's words for readers of JSON."""
    text = re.sub(r"\bNone\b", "null", text)
    return (text[:1].upper() + text[1:]).replace("|", "\\|").replace("<", "&lt;")


def _anchor(kind: type[Any]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def _inside(kind: type[Any]) -> Iterator[type[Any]]:
    """The classes that its fields hold, and those in them."""
    for hint in typing.get_type_hints(kind).values():
        for each in (hint, *typing.get_args(hint)):
            if is_dataclass(each):
                yield each  # type: ignore[misc] # a class
                yield from _inside(each)  # type: ignore[arg-type]


def _type(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(each) if each is not type(None) else "null" for each in inner)
    if origin is typing.Literal:
        return ", ".join(f"`{json.dumps(each)}`" for each in inner)
    if origin in (list, tuple):
        return f"list of {_type(inner[0])}"
    if origin is not None:
        return f"mapping of text to {_type(inner[1])}"
    if is_dataclass(hint):
        return f"[{hint.__name__}](#{_anchor(hint)})"  # type: ignore[arg-type]
    return {int: "integer", float: "number", str: "text", bool: "true or false", Any: "anything"}[hint]


# --- Files of the repository


def included(path: str, folder: str) -> str:
    """A Markdown file of the repository as a page in `folder`: links to pages stay, links to sources become text."""

    def link(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if target.startswith(("http", "#")):
            return match[0]
        file, _, anchor = target.partition("#")
        where = ((ROOT / path).parent / file).resolve()
        docs = ROOT / "docs"
        if not where.is_relative_to(docs) or where.suffix != ".md" or not where.exists():
            return text if text.startswith("`") else f"`{text}`"
        relative = Path(*[".."] * len((docs / folder).resolve().relative_to(docs).parts), where.relative_to(docs))
        return f"[{text}]({relative}{'#' + anchor if anchor else ''})"

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, (ROOT / path).read_text(encoding="utf-8"))


def lines_of_code() -> str:
    """The lines of each folder's sources, those below it included; not what a benchmark fetched."""
    rows = ["| folder | lines |", "|---|--:|"]
    for folder in _FOLDERS:
        files = [file for file in (ROOT / folder).rglob("*") if file.suffix in _SOURCES and "/." not in str(file)]
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        rows.append(f"| {folder} | {lines:,} |")
    return "\n".join(rows)
