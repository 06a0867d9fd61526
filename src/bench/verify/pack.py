"""A pack: its files, and what was measured in them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.archive.pack import STUDY
from bench.archive.unpack import extract, runs_of_visits, study_of
from bench.errors import BenchError, count_text
from bench.runs.pack import PackIndex
from bench.verify.again import copy_measurements, key_of, locks_of, run_workflow, summary_of
from bench.verify.check import Check
from bench.verify.made import check_parsed
from bench.verify.raw import check_definitions, check_deployments, check_raw
from bench.yaml_file import read_yaml

_UNKNOWN = (
    "who packed it: a pack is not signed. Whoever changes a file in it can write a new list of checksums; compare the pack's own "
    "SHA-256 with its sender's",
    "figures and report: a pack holds raw records alone. Unpack it, draw it, and check the results",
)


def verify_pack(file: Path, say: Callable[[str], None]) -> list[Check]:
    """Check a pack, without putting anything of it among the results.

    Args:
        say: takes progress lines.

    Raises:
        BenchError: it is not a whole pack.
    """
    with tempfile.TemporaryDirectory(prefix="saturate-verify-") as name:
        folder, again = (Path(name) / part for part in ("pack", "again"))
        folder.mkdir()
        again.mkdir()
        index, wrong = extract(file, folder)
        files = Check("files of the pack", checked=len(index.files.keys() | wrong))
        files.differs += [f"{each}: missing, or not what was packed (SHA-256 in pack.json)" for each in sorted(wrong)]
        raw, records, intact = check_raw(folder)
        unknown = list(_UNKNOWN)
        runs, specs, known, locks = Check("runs of its study"), None, [], []
        try:
            plan = study_of(folder)
        except BenchError as error:
            runs.unchecked.append(f"these sources do not take its study: {error}")
        else:
            specs, locks = plan.deployments, locks_of(plan)
            visits = runs_of_visits(plan, folder)
            defined = {run.key: run.digest for run in (*plan.runs, *visits)}
            specs = {**specs, **{run.deployment.name: run.deployment for run in visits}}
            here = {key_of(run): record.digest for run, record in records.items()}
            _compare_runs(runs, here, defined, index)
            parsed = {run.key for run in plan.runs}
            known = [run for run in sorted(intact) if key_of(run) in parsed and defined[key_of(run)] == records[run].digest]
            if visits:
                unknown.append(
                    f"what the tuning concluded of its {count_text(len(visits), 'run')}, which are checked and not parsed"
                )
        said = ""
        if known:
            say("parsing its runs")
            again = copy_measurements(folder, known, locks, again)
            study = {**read_yaml(folder / STUDY), "select": [*map(key_of, known)]}
            said = run_workflow(study, [summary_of(run) for run in known], again, say)
        checks = [
            files,
            raw,
            check_definitions(records),
            runs,
            check_deployments(folder, records, None if runs.unchecked else specs),
            check_parsed(known, again, said),
            Check("anything else", unchecked=unknown),
        ]
        inside = f"{folder}/"
        for check in checks:
            check.differs = [text.replace(inside, "") for text in check.differs]
            check.unchecked = [text.replace(inside, "") for text in check.unchecked]
    return checks


def _compare_runs(check: Check, here: Mapping[str, str], defined: Mapping[str, str], index: PackIndex) -> None:
    """The digests of the runs in a pack, those that its study gives, and those that its index lists."""
    for key in sorted({*here, *defined, *index.runs}):
        if here.get(key) != index.runs.get(key):
            check.compare(f"runs/{key}: not the run that pack.json lists")
        elif defined.get(key) == index.runs.get(key):
            check.compare(None)
        else:
            check.unchecked.append(
                f"{key}: these sources define it otherwise; check it with those of {index.commit or 'its commit'}"
            )
