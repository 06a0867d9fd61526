"""Whether a pack or a folder of results is what was measured: checksums, digests, and what is made of the raw records, made again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path

from bench.beside.archive.check import Check, check_runs, same_numbers
from bench.beside.archive.unpack import extract
from bench.errors import BenchError, count_text
from bench.findings.registry import chart
from bench.findings.tables import Tables
from bench.parse.run import parse_run
from bench.parse.table import aggregate
from bench.runs.files import UNREADABLE, checked_names, checksum, read_object
from bench.runs.paths import Paths
from bench.study.plan import Plan
from bench.study.read import load_file
from bench.study.specs import RunSpec

_PACK = (
    "who packed it: a pack is not signed. Whoever changes a file in it can write a new list of checksums; compare the pack's own "
    "SHA-256 with its sender's",
    "what the records hold, figures and report: unpack it, draw it, and check the results",
)
_RESULTS = (
    "who measured: nothing is signed. Whoever makes up raw records can make up their checksums, too",
    "deployments, logs, engine records and checkpoints: no checksum of them is kept",
    "what searches found and what was graded: the answers in search.json and grades.parquet are taken as they are",
    "the report's sentences and the figures' pixels: their checksums are those of what was drawn, and the figures' data is made again",
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
        raw, intact = check_runs(folder)
        raw.differs = [text.replace(f"{folder}/", "") for text in raw.differs]
        for key in sorted(index.runs.keys() ^ intact.keys()):
            raw.compare(f"runs/{key}: not the run that pack.json lists")
    return [files, raw, Check("anything else", unchecked=[*_PACK])]


def verify_results(folder: Path, study: Path | None, say: Callable[[str], None]) -> list[Check]:
    """Check a folder of results.

    Args:
        study: the file that defines it; by default the one noted in the folder by the workflow. say: takes progress lines.

    Raises:
        BenchError: there is no run in it.
    """
    folder = folder.absolute()
    raw, intact = check_runs(folder)
    if not raw.checked:
        raise BenchError(f"{folder}: no run (runs/DEPLOYMENT/RUN/run.json), so there is nothing to check.")
    summaries, data, drawn = Check("summaries"), Check("figures' data"), Check("what was drawn")
    with tempfile.TemporaryDirectory(prefix="saturate-verify-") as name, chdir(folder.parent):
        try:
            file, plan = _study(folder, study)
            runs, listed = _drawn(folder)
            here = {run.key: run.digest for run in plan.runs if run.key in runs}
            if other := sorted({key for key, _ in here.items() ^ runs.items()}):
                were = f"{len(other)} of the {len(runs)} runs differently from when they were drawn, such as {other[0]}"
                raise BenchError(f"{file} defines {were}")
            if lost := sorted(key for key in runs if intact.get(key) != runs[key]):
                what = count_text(len(lost), "run", of=len(runs))
                raise BenchError(f"{what} not as measured when they were drawn, such as {lost[0]}")
            _check_drawn(drawn, folder, listed)
            _make_again(folder, plan, [run for run in plan.runs if run.key in runs], Path(name), say, summaries)
            _draw_again(folder, plan, [each for each in listed if each.endswith(".json")], Path(name), say, data)
        except BenchError as error:
            summaries.unchecked.append(f"what is made of the records: {error}")
    return [raw, summaries, data, drawn, Check("anything else", unchecked=[*_RESULTS])]


def _at(folder: Path, path: str | Path) -> Path:
    """Where a result lies in a folder of results, which may have another name."""
    return folder / Path(path).relative_to(Paths.RESULTS)


def _study(folder: Path, file: Path | None) -> tuple[Path, Plan]:
    """The study's file, and its plan of all runs."""
    place, scale = _at(folder, Paths.STUDY), None
    try:
        if file is None:
            note = read_object(place)
            file, scale = Path(str(note["file"])), note.get("scale")
    except (*UNREADABLE, KeyError):
        raise BenchError(f"{place} does not name the study's file; name it with --configfile") from None
    if not file.is_file():
        raise BenchError(f"the study's file {file} is not here; name it with --configfile")
    return file, Plan.of(load_file(file, select="*", **({"scale": scale} if scale else {})), results=folder)


def _drawn(folder: Path) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """By key the digest of each run that was drawn last, and by name the SHA-256 of each figure and of the page."""
    place = _at(folder, Paths.MANIFEST)
    try:
        manifest = read_object(place)
        return dict(manifest["runs"]), {**checked_names(manifest["figures"]), **checked_names(manifest["page"])}
    except FileNotFoundError:
        raise BenchError(f"{place} is not here: the study is not drawn to its end") from None
    except (*UNREADABLE, KeyError, TypeError) as error:
        raise BenchError(f"{place} is not readable ({error!r})") from None


def _check_drawn(check: Check, folder: Path, listed: Mapping[str, str]) -> None:
    """Each figure's files and the page against the checksums of what was drawn. Args: listed: by name, the SHA-256."""
    manifest, page = _at(folder, Paths.MANIFEST), _at(folder, Paths.REPORT)
    for name, known in listed.items():
        stored = page if name == page.name else manifest.with_name(name)
        if not stored.is_file():
            check.compare(f"{stored}: missing")
        else:
            check.compare(None if checksum(stored) == known else f"{stored}: not what was drawn (SHA-256 in {manifest})")


def _make_again(folder: Path, plan: Plan, runs: Sequence[RunSpec], to: Path, say: Callable[[str], None], check: Check) -> None:
    """Parse the raw records of the runs that were drawn, and make the study's summary of them, in another folder."""
    made = []
    for number, run in enumerate(runs, 1):
        say(f"parsing {run.key} ({number} of {len(runs)})")
        stored, place = folder / "runs" / run.key, to / "runs" / run.key
        requests, telemetry, wide = (place / name for name in ("requests.parquet", "telemetry.parquet", "metrics.csv"))
        try:
            parse_run(stored, requests=requests, telemetry=telemetry, wide=wide, summary=place / "summary.json")
        except BenchError as error:
            check.compare(f"{stored}: {error}")
        else:
            check.compare_numbers(stored / "summary.json", place / "summary.json")
            made.append(place / "summary.json")
    if len(made) < len(runs):
        raise BenchError(
            f"{len(runs) - len(made)} of {len(runs)} runs cannot be parsed, so the study's summary is not made again"
        )
    names = dict.fromkeys(run.deployment.name for run in runs)
    aggregate(
        made,
        launches=[_at(folder, Paths.LAUNCH.format(deployment=name)) for name in names],
        facts=[_at(folder, Paths.facts(name)) for name in names],
        thresholds=plan.config.thresholds,
        baseline=plan.config.study.baseline,
        slos=plan.config.decision.slos,
        summary=to / "summary.parquet",
        summary_csv=to / "summary.csv",
        timeseries=to / "timeseries.parquet",
    )
    check.compare_numbers(_at(folder, Paths.SUMMARY), to / "summary.parquet")


def _draw_again(folder: Path, plan: Plan, names: Iterable[str], to: Path, say: Callable[[str], None], check: Check) -> None:
    """Draw the figures of the tables that `_make_again` made in `to`, and compare their data. Args: names: of their files."""
    models = _at(folder, Paths.CALIBRATION)
    tables = to / "summary.parquet", to / "timeseries.parquet"
    results = Tables.read(*tables, plan.config.decision, plan.device, models if models.is_file() else None)
    for stored in (_at(folder, Paths.MANIFEST).with_name(name) for name in names):
        if stored.is_file():  # else it is missing from what was drawn
            say(f"drawing {stored.stem}")
            again = json.loads(json.dumps(chart(stored.stem, results).to_dict(validate=False)))
            check.compare(None if same_numbers(read_object(stored), again) else f"{stored}: not what the raw records give")
