"""A folder of results: what was measured in it, and everything that was made of that."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.archive.pack import packed_study
from bench.commit import commit_of, labelled
from bench.errors import BenchError, count_text, is_are
from bench.runs.files import UNREADABLE, read_object
from bench.runs.paths import Paths
from bench.runs.run import RunRecord
from bench.study.plan import Plan
from bench.study.read import load_file
from bench.study.specs import RunSpec
from bench.verify.again import at, copy_measurements, key_of, locks_of, run_workflow, summary_of
from bench.verify.check import Check
from bench.verify.made import check_figures, check_models, check_parsed, check_report, check_runs, check_tables, drawn_by
from bench.verify.raw import check_definitions, check_deployments, check_raw
from bench.yaml_file import read_yaml

_UNKNOWN = (
    "who measured: nothing is signed. Whoever makes up raw records can make up their checksums, too",
    "logs, engine records and checkpoints: no checksum of them is kept",
    "what searches found: their runs are checked, and not the answers in search.json",
)
_GRADES = "grades of answers: programs that a model wrote are not run again; `bench grade` runs them"


@dataclass(frozen=True)
class _Drawn:
    """What was drawn last.

    Attributes:
        file: of the study. plan: of all of it. runs: those that were drawn. listed: by name the SHA-256 of each figure and of the page.
    """

    file: Path
    plan: Plan
    runs: tuple[RunSpec, ...]
    listed: dict[str, str]

    @property
    def searches(self) -> list[str]:
        """Keys of the searches of which any run was drawn."""
        ladders = {(run.deployment.name, run.workload_name) for run in self.runs if run.searched}
        return [each.key for each in self.plan.searches if (each.deployment.name, each.workload_name) in ladders]

    @property
    def known(self) -> set[str]:
        """The keys of all runs of the study, which the report counts."""
        return {run.key for run in self.plan.every}


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
    made, specs = Check("made again"), None
    checks = [made]
    with tempfile.TemporaryDirectory(prefix="saturate-verify-") as name, chdir(folder.parent):
        try:
            file = study or _study(folder)
            if not file.is_file():
                raise BenchError(f"the study's file {file} is not here; name it with --configfile")
            plan = Plan.of(load_file(file, select="*"), results=folder)
            specs = plan.deployments  # known too where something else was drawn
            drawn = _drawn(folder, file, plan)
            checks = _make_again(folder, drawn, sorted(intact), records, Path(name), say)
        except BenchError as error:
            made.unchecked.append(f"tables, figures and report: {error}")
    graded = at(folder, Paths.GRADES).is_file()
    unknown = Check("anything else", unchecked=[*_UNKNOWN, *([_GRADES] if graded else [])])
    return [raw, check_definitions(records), check_deployments(folder, records, specs), *checks, unknown]


def _make_again(
    folder: Path,
    drawn: _Drawn,
    intact: Collection[Path],
    records: Mapping[Path, RunRecord],
    to: Path,
    say: Callable[[str], None],
) -> list[Check]:
    """Run the workflow on the runs that were drawn, and compare; where some are not as they were measured, parse the others alone."""
    of_study = {run.key: run.digest for run in drawn.runs}
    runs = [run for run in intact if of_study.get(key_of(run)) == records[run].digest]
    lost = sorted(of_study.keys() - set(map(key_of, runs)))
    measured = [run for run in intact if key_of(run) in drawn.known]
    files = [*locks_of(drawn.plan), *(file for workload in drawn.plan.config.workloads.values() for file in workload.files)]
    here = copy_measurements(folder, measured, files, to)
    study = packed_study(read_yaml(drawn.file), drawn.plan, [*map(key_of, runs), *drawn.searches])
    targets = [summary_of(run) for run in runs] if lost else [Paths.MANIFEST]
    said = run_workflow(study, targets, here, say) if runs else ""
    made_by = _made_by(folder, records)
    checks = [check_parsed(runs, here, said), check_runs(runs, here, made_by)]
    if others := len(intact) - len(runs):
        checks[0].unchecked.append(f"{count_text(others, 'run')} {is_are(others)} not among those that were drawn last")
    if lost:
        all_drawn = count_text(len(lost), "run", of=len(of_study))
        said = f"{all_drawn} {is_are(len(lost))} not here as measured when drawn, such as {lost[0]}"
    elif said:
        said = f"the workflow failed: {said}"
    if said:
        return [*checks, Check("tables of the study", unchecked=[f"tables, figures and report: {said}"])]
    return [
        *checks,
        check_tables(folder, here, made_by),
        check_models(folder, here),
        check_figures(folder, here, drawn.listed),
        check_report(folder, here, drawn.listed, made_by),
    ]


def _made_by(folder: Path, records: Mapping[Path, RunRecord]) -> str | None:
    """The sources that made the tables, where they are not these: those that drew the report, or else that measured the last run."""
    measured = max(records.values(), key=lambda record: record.started).commit if records else None
    known, here = drawn_by(folder) or measured, commit_of()
    return None if known and known == here else labelled(known) if known else "an unknown version"


def _drawn(folder: Path, file: Path, plan: Plan) -> _Drawn:
    """What was drawn last, by the manifest and the study.

    Raises:
        BenchError: why that is not known.
    """
    place = at(folder, Paths.MANIFEST)
    try:
        manifest = read_object(place)
        figures, page, runs = (_digests(manifest[key]) for key in ("figures", "page", "runs"))
    except FileNotFoundError:
        raise BenchError(f"{place} is not here: the study is not drawn to its end") from None
    except (*UNREADABLE, KeyError) as error:
        raise BenchError(f"{place} is not readable ({error!r})") from None
    drawn = tuple(run for run in plan.runs if run.key in runs)
    if other := sorted({key for key, _ in {run.key: run.digest for run in drawn}.items() ^ runs.items()}):
        raise BenchError(
            f"{file} defines {len(other)} of the {len(runs)} runs otherwise than when they were drawn, such as {other[0]}"
        )
    return _Drawn(file, plan, drawn, {**figures, **page})


def _digests(content: Any) -> dict[str, str]:
    if not isinstance(content, dict):
        raise ValueError("it lists no figures")
    return content


def _study(folder: Path) -> Path:
    place = at(folder, Paths.STUDY)
    try:
        return Path(str(read_object(place)["file"]))
    except (*UNREADABLE, KeyError):
        raise BenchError(f"{place} does not name the study's file; name it with --configfile") from None
