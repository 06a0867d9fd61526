"""A folder of results: what was measured in it, and everything that was made of that."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.commit import commit_of, labelled
from bench.errors import BenchError
from bench.records.files import UNREADABLE, read_object
from bench.records.run import RunRecord
from bench.study import Paths, Plan, load_file
from bench.verify.check import Check
from bench.verify.drawn import Drawing, at, check_figures, check_models, check_report, check_tables, drawn_by
from bench.verify.parsed import check_parsed, parse_again
from bench.verify.raw import check_definitions, check_deployments, check_raw

__all__ = ["verify_results"]

_UNKNOWN = (
    "who measured: nothing is signed. Whoever makes up raw records can make up their checksums, too",
    "logs, engine records and checkpoints: no checksum of them is kept",
)


def verify_results(folder: Path, study: Path | None, say: Callable[[str], None]) -> list[Check]:
    """Check a folder of results.

    Args:
        study: the file that defines it; by default the one that the workflow noted in the folder. say: takes progress lines.

    Raises:
        BenchError: there is no run in it.
    """
    folder = folder.absolute()
    raw, records, intact = check_raw(folder)
    if not raw.checked:
        raise BenchError(f"{folder}: holds no run (runs/DEPLOYMENT/RUN/run.json), so there is nothing to check.")
    checks = [raw, check_definitions(records)]
    with tempfile.TemporaryDirectory(prefix="saturate-verify-") as name, chdir(folder.parent):
        again = Path(name)
        parsed = parse_again(sorted(intact), again / "runs", say)
        made_by = _made_by(folder, records)
        made = check_parsed(sorted(intact), again / "runs", made_by)
        tables, models, figures, report = (
            Check(what) for what in ("tables of the study", "models of the servers", "figures", "report")
        )
        specs = None
        try:
            manifest, plan = _drawn(folder, study, {run: records[run] for run in intact})
            specs = plan.deployments
            drawing = Drawing(folder, again, plan, {**manifest["figures"], **manifest["page"]}, say)
            tables, models = check_tables(drawing, made_by), check_models(drawing)
            figures, report = check_figures(drawing), check_report(drawing)
        except BenchError as error:
            tables.unchecked.append(f"tables, figures and report: {error}")
        checks += [check_deployments(folder, records, specs), parsed, made, tables, models, figures, report]
    return [*checks, Check("anything else", unchecked=list(_UNKNOWN))]


def _made_by(folder: Path, records: Mapping[Path, RunRecord]) -> str | None:
    """The sources that made the tables, where they are not these: those that drew the report, or else that measured the last run."""
    measured = max(records.values(), key=lambda record: record.started).commit if records else None
    known, here = drawn_by(folder) or measured, commit_of()
    return None if known and known == here else labelled(known) if known else "an unknown version"


def _drawn(folder: Path, study: Path | None, intact: Mapping[Path, RunRecord]) -> tuple[dict[str, Any], Plan]:
    """The manifest of what was drawn last, and the plan of its runs.

    Raises:
        BenchError: why it is not known what was drawn, or from which study.
    """
    place = at(folder, Paths.MANIFEST)
    try:
        manifest = read_object(place)
        runs = manifest["runs"]
        if not all(isinstance(manifest[key], dict) for key in ("figures", "page", "runs")):
            raise ValueError("it lists no figures")
    except FileNotFoundError:
        raise BenchError(f"{place} is not here: the study is not drawn to its end") from None
    except (*UNREADABLE, KeyError) as error:
        raise BenchError(f"{place} is not readable ({error!r})") from None
    file = study or _study(folder)
    if not file.is_file():
        raise BenchError(f"the study's file {file} is not here; name it with --configfile")
    plan = Plan.of(load_file(file, select="*"), results=folder)
    drawn = tuple(run for run in plan.runs if run.key in runs)
    defined = {run.key: run.digest for run in drawn}
    if other := sorted({key for key, _ in defined.items() ^ runs.items()}):
        raise BenchError(
            f"{file} defines {len(other)} of the {len(runs)} runs otherwise than when they were drawn, such as {other[0]}"
        )
    here = {f"{run.parent.name}/{run.name}": record.digest for run, record in intact.items()}
    if other := sorted({key for key, value in defined.items() if here.get(key) != value}):
        raise BenchError(
            f"{len(other)} of the {len(runs)} runs that were drawn are not here as they were measured, such as {other[0]}"
        )
    names = {run.deployment.name for run in drawn}
    return manifest, replace(
        plan, runs=drawn, deployments={key: spec for key, spec in plan.deployments.items() if key in names}
    )


def _study(folder: Path) -> Path:
    """The file that the workflow noted."""
    place = at(folder, Paths.STUDY)
    try:
        return Path(str(read_object(place)["file"]))
    except (*UNREADABLE, KeyError):
        raise BenchError(f"{place} does not name the study's file; name it with --configfile") from None
