"""A pack: its files, and what was measured in them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.errors import BenchError
from bench.store.unpack import extract, study_of
from bench.verify.check import Check
from bench.verify.parsed import parse_again
from bench.verify.raw import check_definitions, check_deployments, check_raw

__all__ = ["verify_pack"]

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
        folder = Path(name) / "pack"
        folder.mkdir()
        index, wrong = extract(file, folder)
        files = Check("files of the pack", checked=len(index.files.keys() | wrong))
        files.differs += [f"{each}: missing, or not what was packed (SHA-256 in pack.json)" for each in sorted(wrong)]
        raw, records, intact = check_raw(folder)
        runs, specs = Check("runs of its study"), None
        try:
            plan = study_of(folder)
        except BenchError as error:
            runs.unchecked.append(f"these sources do not take its study: {error}")
        else:
            specs = plan.deployments
            here = {f"{run.parent.name}/{run.name}": record.digest for run, record in records.items()}
            defined = {run.key: run.digest for run in plan.runs}
            for key in sorted({*here, *defined, *index.runs}):
                if len({known.get(key) for known in (here, index.runs)}) > 1:
                    runs.compare(f"runs/{key}: not the run that pack.json lists")
                elif defined.get(key) == index.runs.get(key):
                    runs.compare(None)
                else:
                    runs.unchecked.append(
                        f"{key}: these sources define it otherwise; check it with those of {index.commit or 'its commit'}"
                    )
        checks = [
            files,
            raw,
            check_definitions(records),
            runs,
            check_deployments(folder, records, None if runs.unchecked else specs),
            parse_again(sorted(intact), Path(name) / "again", say),
            Check("anything else", unchecked=list(_UNKNOWN)),
        ]
        inside = f"{folder}/"
        for check in checks:
            check.differs = [text.replace(inside, "") for text in check.differs]
            check.unchecked = [text.replace(inside, "") for text in check.unchecked]
    return checks
