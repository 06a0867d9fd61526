"""Which study the workflow of this folder measured or drew last."""

from __future__ import annotations

import json
from pathlib import Path

from bench.errors import BenchError
from bench.runs.files import write_object
from bench.runs.paths import Paths


def remember_study(file: Path) -> None:
    """Note the study's file, for commands that are about the results here."""
    record = Path(Paths.STUDY)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_object({"file": str(file)}, record)


def last_study() -> Path | None:
    """The study's file; None where no workflow has noted one.

    Raises:
        BenchError: the note cannot be read.
    """
    record = Path(Paths.STUDY)
    if not record.exists():
        return None
    try:
        return Path(json.loads(record.read_text(encoding="utf-8"))["file"])
    except (ValueError, KeyError, TypeError):
        raise BenchError(f"{record}: not readable. Name the study's file with --configfile, or delete this one.") from None
