"""What the workflow made of the measurements, beside what it makes of them again."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bench.errors import count_text, is_are
from bench.runs.checksums import checksum
from bench.runs.files import UNREADABLE, read_object
from bench.runs.paths import ANALYSES, Paths
from bench.verify.again import at, summary_of, why_not_parsed
from bench.verify.check import Check, Tables, same_numbers, same_text

_OF_A_RUN = tuple(Path(path).name for path in (Paths.RUN_SUMMARY, Paths.REQUESTS, Paths.TELEMETRY, Paths.WIDE))
_OF_A_STUDY = (Paths.SUMMARY, Paths.SUMMARY_CSV, Paths.TIMESERIES, *(Paths.ANALYSED.format(table=name) for name in ANALYSES))
_DRAWN_BY = re.compile(r"This page was drawn by Saturate \S+ from <code>(?:commit )?([^<]+)</code>")
_VERSION = r"[0-9]+(?:[.+]\w+)*"
_COMMIT = rf"(?:commit |sources )?[0-9a-f]{{7,40}}(?:, version {_VERSION})?(?:, with changes that are not committed)?"
# Where the page and its text name the sources that drew them, and nothing else.
_SOURCES = re.compile(rf"Saturate {_VERSION}(?:(?:, | from <code>){_COMMIT})?")
# How they call `bench` and the workflow, which is by where these are installed (`bench.words.answer`).
_CALLED = re.compile(r"\.venv/bin/(?=bench\b)|(?<=same <code>)(?:make|snakemake)\b|(?<=same `)(?:make|snakemake)\b")


def drawn_by(folder: Path) -> str | None:
    """The sources that drew the report in a folder of results, as `commit_of` names them; None where it does not name any."""
    page = at(folder, Paths.REPORT)
    found = _DRAWN_BY.search(page.read_text(encoding="utf-8", errors="replace")) if page.is_file() else None
    return found[1] if found else None


def check_parsed(runs: Collection[Path], to: Path, said: str) -> Check:
    """Whether the raw records of `runs` could be parsed in `to`. Args: said: by a workflow that failed."""
    check = Check("raw records parsed")
    untried = 0
    for run in runs:
        if (to / summary_of(run)).is_file():
            check.compare(None)
        elif why := why_not_parsed(to, run):
            check.compare(f"{run}: {why}")
        else:
            untried += 1
    if untried:
        check.unchecked.append(f"{count_text(untried, 'run', of=len(runs))}: the workflow did not come to them: {said}")
    return check


def check_runs(runs: Collection[Path], to: Path, made_by: str | None) -> Check:
    """The tables and the summary of each run.

    Args:
        to: where the workflow made them again. made_by: the sources that made the stored ones, where they are not these.
    """
    check = Check("tables and summaries of runs")
    tables, missing = Tables(check, made_by), set()
    for run in runs:
        again = (to / summary_of(run)).parent
        for name in _OF_A_RUN:
            if not (again / name).is_file():
                continue  # its raw records cannot be parsed, which is counted there
            if (run / name).is_file():
                tables.compare(run / name, again / name)
            else:
                missing.add(run)
    if missing:
        check.unchecked.append(
            f"{count_text(len(missing), 'run')} {is_are(len(missing))} not parsed here, such as {min(missing)}"
        )
    return tables.done()


def check_tables(folder: Path, to: Path, made_by: str | None) -> Check:
    """The tables of the study. Args as of `check_runs`."""
    check = Check("tables of the study")
    tables = Tables(check, made_by)
    for path in _OF_A_STUDY:
        if at(folder, path).is_file():
            tables.compare(at(folder, path), to / path)
        else:
            check.compare(f"{at(folder, path)}: missing")
    return tables.done()


def check_models(folder: Path, to: Path) -> Check:
    """The model of each server, with all of its numbers."""
    check, file = Check("models of the servers"), at(folder, Paths.CALIBRATION)
    if not (to / Paths.CALIBRATION).is_file():
        return check
    again = _models(to / Paths.CALIBRATION)
    try:
        stored = _models(file)
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as error:
        check.compare(f"{file}: missing" if isinstance(error, FileNotFoundError) else f"{file}: not readable ({error!r})")
        return check
    for name, model in again.items():
        same = same_numbers(stored.get(name), model)
        check.compare(None if same else f"{file}: the model of {name} is not what the raw records give")
    return check


def _models(file: Path) -> dict[str, Any]:
    """Models by deployment, without the digest of what each was fitted to, which the code is part of."""
    return {
        model["deployment"]: {key: value for key, value in model.items() if key != "digest"}
        for model in read_object(file, constants=True)["models"]
    }


def check_figures(folder: Path, to: Path, listed: Mapping[str, str]) -> Check:
    """Every figure. Specifications, which hold the data, have to be the same; pictures, where the fonts are.

    A differing picture counts as altered only if another of the same format matches (so the fonts are the same).

    Args:
        listed: by name the SHA-256 of each file as it was drawn.
    """
    check, figures = Check("figures"), at(folder, Paths.MANIFEST).parent
    made = {file.name: file for file in sorted((to / Paths.MANIFEST).parent.glob("*.*"))}
    otherwise: dict[str, list[Path]] = {}
    same: set[str] = set()
    for name, new in made.items():
        stored, kind = figures / name, new.suffix
        if not stored.is_file():
            check.compare(f"{stored}: missing")
        elif checksum(stored) != listed.get(name):
            check.compare(f"{stored}: not what was drawn (SHA-256 in {at(folder, Paths.MANIFEST)})")
        elif _same_file(stored, new):
            check.compare(None)
            same.add(kind)
        elif kind == ".json":
            check.compare(f"{stored}: not what the raw records give")
        else:
            otherwise.setdefault(kind, []).append(stored)
    for kind, pictures in otherwise.items():
        if kind in same:
            for picture in pictures:
                check.compare(f"{picture}: not what the raw records give")
        else:
            check.unchecked.append(
                f"{len(pictures)} {kind[1:].upper()} files, by their pixels: drawn with other fonts or another renderer. Their "
                "specifications and their checksums are checked"
            )
    for name in sorted(listed.keys() - made.keys() - {Path(Paths.REPORT).name}):
        check.compare(f"{at(folder, Paths.MANIFEST)}: lists {name}, which this study does not have")
    return check


def _same_file(stored: Path, new: Path) -> bool:
    if new.suffix == ".png":
        return stored.read_bytes() == new.read_bytes()
    return same_text(*(file.read_text(encoding="utf-8", errors="replace") for file in (stored, new)))


def check_report(folder: Path, to: Path, listed: Mapping[str, str], made_by: str | None) -> Check:
    """The page and its text, whichever sources they name, and what the manifest says of the figures; otherwise as `check_figures`."""
    check = Check("report")
    otherwise = f"; {made_by} wrote it, and these may word things otherwise" if made_by else ""
    page = at(folder, Paths.REPORT)
    if page.is_file() and checksum(page) != listed.get(page.name):
        check.compare(f"{page}: not what was drawn (SHA-256 in {at(folder, Paths.MANIFEST)})")
    for path in (Paths.REPORT, Paths.REPORT_MARKDOWN):
        stored = at(folder, path)
        if not stored.is_file():
            check.unchecked.append(f"{stored}: not here")
        elif not check.differs or stored != page:
            own, again = (file.read_text(encoding="utf-8", errors="replace") for file in (stored, to / path))
            same = same_text(without_names(own), without_names(again))
            check.compare(None if same else f"{stored}: not what the raw records give{otherwise}")
    manifest = at(folder, Paths.MANIFEST)
    same = _said(manifest) == _said(to / Paths.MANIFEST)
    check.compare(None if same else f"{manifest}: not what the raw records give{otherwise}")
    return check


def without_names(text: str) -> str:
    """A report's text without what names the sources that drew it, and how it calls `bench` and the workflow."""
    return _CALLED.sub("", _SOURCES.sub("", text))


def _said(manifest: Path) -> dict[str, Any]:
    """What a manifest says, without checksums of what was drawn, and the last lines: they name `bench` by where it is installed."""
    return {key: value for key, value in read_object(manifest).items() if key not in ("figures", "page", "closing")}
