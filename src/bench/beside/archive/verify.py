"""Whether a pack or a folder of results is what was measured: checksums, digests, and what is made of the raw records, made again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import chdir
from pathlib import Path

from bench.beside.archive.check import (
    Check,
    at,
    check_deployments,
    check_runs,
    copy_measurements,
    key_of,
    parsed_of,
    run_workflow,
    same_numbers,
    summary_of,
    why_not_parsed,
)
from bench.beside.archive.pack import packed_study
from bench.beside.archive.unpack import extract, runs_of_visits, study_of
from bench.errors import BenchError, count_text, is_are
from bench.runs.files import UNREADABLE, checked_names, checksum, read_object
from bench.runs.paths import Paths
from bench.runs.run import RunRecord
from bench.study.plan import Plan
from bench.study.read import load_file
from bench.yaml_file import read_yaml

_PACK = (
    "who packed it: a pack is not signed. Whoever changes a file in it can write a new list of checksums; compare the pack's own "
    "SHA-256 with its sender's",
    "what the records hold, figures and report: unpack it, draw it, and check the results",
)
_RESULTS = (
    "who measured: nothing is signed. Whoever makes up raw records can make up their checksums, too",
    "logs, engine records and checkpoints: no checksum of them is kept",
    "what searches found and what was graded: the answers in search.json and grades.parquet are taken as they are",
    "the report's sentences and the figures' pixels: their checksums are those of what was drawn, and the figures' data is made again",
    "launches of runs kept from earlier settings: the workflow keeps the runs alone",
)


def verify_pack(file: Path) -> list[Check]:
    """Check a pack, without putting anything of it among the results, or running anything on it.

    Raises:
        BenchError: it is not a whole pack.
    """
    with tempfile.TemporaryDirectory(prefix="saturate-verify-") as name:
        folder = Path(name)
        index, wrong = extract(file, folder)
        files = Check("files of the pack", checked=len(index.files.keys() | wrong))
        files.differs += [f"{each}: missing, or not what was packed (SHA-256 in pack.json)" for each in sorted(wrong)]
        raw, records, _ = check_runs(folder)
        of_study, specs = Check("runs of its study"), {}
        try:
            plan = study_of(folder)
        except BenchError as error:
            of_study.unchecked.append(f"these sources reject its study: {error}")
        else:
            visits = runs_of_visits(plan, folder)
            defined = {run.key: run.digest for run in (*plan.runs, *visits)}
            specs = {**plan.deployments, **{run.deployment.name: run.deployment for run in visits}}
            here = {key_of(run): record.digest for run, record in records.items()}
            for key in sorted({*here, *defined, *index.runs}):
                if here.get(key) != index.runs.get(key):
                    of_study.compare(f"runs/{key}: not the run that pack.json lists")
                elif defined.get(key) == index.runs.get(key):
                    of_study.compare(None)
                else:
                    of_study.unchecked.append(
                        f"{key}: these sources define it differently; check it with those of {index.commit or 'its commit'}"
                    )
        checks = [files, raw, of_study, check_deployments(folder, records, specs)]
        for check in checks:
            check.differs = [text.replace(f"{folder}/", "") for text in check.differs]
            check.unchecked = [text.replace(f"{folder}/", "") for text in check.unchecked]
    return [*checks, Check("anything else", unchecked=[*_PACK])]


def verify_results(folder: Path, study: Path | None, say: Callable[[str], None]) -> list[Check]:
    """Check a folder of results.

    Args:
        study: the file that defines it; by default the one noted in the folder by the workflow. say: takes progress lines.

    Raises:
        BenchError: there is no run in it.
    """
    folder = folder.absolute()
    raw, records, intact = check_runs(folder)
    if not raw.checked:
        raise BenchError(f"{folder}: no run (runs/DEPLOYMENT/RUN/run.json), so there is nothing to check.")
    made, plan = [Check("raw records parsed"), Check("summaries"), Check("what was drawn")], None
    with tempfile.TemporaryDirectory(prefix="saturate-verify-") as name, chdir(folder.parent):
        try:
            file, scale = (study, None) if study else _study(folder)
            if not file.is_file():
                raise BenchError(f"the study's file {file} is not here; name it with --configfile")
            plan = Plan.of(load_file(file, select="*", **({"scale": scale} if scale else {})), results=folder)
            _make_again(folder, file, plan, {run: records[run] for run in intact}, Path(name), say, made)
        except BenchError as error:
            made[-1].unchecked.append(f"summaries and figures: {error}")
    deployments = check_deployments(folder, records, plan.deployments if plan else {})
    return [raw, deployments, *made, Check("anything else", unchecked=[*_RESULTS])]


def _make_again(
    folder: Path,
    file: Path,
    plan: Plan,
    intact: Mapping[Path, RunRecord],
    to: Path,
    say: Callable[[str], None],
    made: list[Check],
) -> None:
    """Run the workflow on the runs that were drawn, and compare; where some are not as they were measured, parse the others alone."""
    drawn, listed = _drawn(folder, file, plan)
    of_study = {run.key: run.digest for run in plan.runs if run.key in drawn}
    runs = [run for run, record in intact.items() if of_study.get(key_of(run)) == record.digest]
    lost = sorted(of_study.keys() - set(map(key_of, runs)))
    ladders = {(run.deployment.name, run.workload_name) for run in plan.runs if run.key in drawn and run.searched}
    searches = [each.key for each in plan.searches if (each.deployment.name, each.workload_name) in ladders]
    measured = {run.key for run in plan.every}  # which the report counts
    files = [
        *(lock for engine in plan.config.engines.values() for lock in engine.locks),
        *(file for workload in plan.config.workloads.values() for file in workload.files),
    ]
    here = copy_measurements(folder, [run for run in intact if key_of(run) in measured], files, to)
    content = packed_study(read_yaml(file), plan, [*map(key_of, runs), *searches])
    said = run_workflow(content, parsed_of(plan, runs) if lost else [Paths.MANIFEST], here, say) if runs else ""
    parsed, summaries, pictures = made
    _check_parsed(parsed, runs, here, said)
    if others := len(intact) - len(runs):
        parsed.unchecked.append(f"{count_text(others, 'run')} {is_are(others)} not among those that were drawn last")
    for run in runs:
        if (again := here / summary_of(run)).is_file():
            summaries.compare_numbers(run / again.name, again)
    if lost:
        what = f"{count_text(len(lost), 'run', of=len(of_study))} {is_are(len(lost))} not here as measured when drawn"
        raise BenchError(f"{what}, such as {lost[0]}")
    if said:
        raise BenchError(f"the workflow failed: {said}")
    summaries.compare_numbers(at(folder, Paths.SUMMARY), here / Paths.SUMMARY)
    _check_drawn(pictures, folder, here, listed)


def _check_parsed(check: Check, runs: Collection[Path], to: Path, said: str) -> None:
    """Whether the raw records of `runs` could be parsed in `to`. Args: said: by a workflow that failed."""
    tried = {run: (to / summary_of(run)).is_file() or why_not_parsed(to, run) for run in runs}
    for run, why in tried.items():
        if why:
            check.compare(None if why is True else f"{run}: {why}")
    if untried := sum(why is None for why in tried.values()):
        check.unchecked.append(f"{count_text(untried, 'run', of=len(runs))}: the workflow did not come to them: {said}")


def _check_drawn(check: Check, folder: Path, to: Path, listed: Mapping[str, str]) -> None:
    """Each figure's files and the page against the checksums of what was drawn; specifications, which hold the data, made again.

    Args:
        listed: by name the SHA-256 of each file as it was drawn.
    """
    manifest, page = at(folder, Paths.MANIFEST), at(folder, Paths.REPORT)
    made = {file.name: file for file in (to / Paths.MANIFEST).parent.glob("*.*")}
    for name in sorted({*made, *listed}):
        stored = page if name == page.name else manifest.with_name(name)
        if stored != page and name not in made:
            check.compare(f"{manifest}: lists {name}, which this study does not have")
        elif not stored.is_file():
            check.compare(f"{stored}: missing")
        elif checksum(stored) != listed.get(name):
            check.compare(f"{stored}: not what was drawn (SHA-256 in {manifest})")
        elif stored.suffix == ".json" and not same_numbers(*(read_object(each) for each in (stored, made[name]))):
            check.compare(f"{stored}: not what the raw records give")
        else:
            check.compare(None)


def _drawn(folder: Path, file: Path, plan: Plan) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """By key the digest of each run that was drawn last, and by name the SHA-256 of each figure and of the page.

    Raises:
        BenchError: that is not known, or the study defines the runs otherwise.
    """
    place = at(folder, Paths.MANIFEST)
    try:
        manifest = read_object(place)
        figures, page, runs = manifest["figures"], checked_names(manifest["page"]), dict(manifest["runs"])
    except FileNotFoundError:
        raise BenchError(f"{place} is not here: the study is not drawn to its end") from None
    except (*UNREADABLE, KeyError, TypeError) as error:
        raise BenchError(f"{place} is not readable ({error!r})") from None
    here = {run.key: run.digest for run in plan.runs if run.key in runs}
    if other := sorted({key for key, _ in here.items() ^ runs.items()}):
        raise BenchError(
            f"{file} defines {len(other)} of the {len(runs)} runs differently from when they were drawn, such as {other[0]}"
        )
    return runs, {**checked_names(figures), **page}


def _study(folder: Path) -> tuple[Path, str | None]:
    place = at(folder, Paths.STUDY)
    try:
        note = read_object(place)
        return Path(str(note["file"])), note.get("scale")
    except (*UNREADABLE, KeyError):
        raise BenchError(f"{place} does not name the study's file; name it with --configfile") from None
