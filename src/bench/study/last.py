"""Which study the workflow of this folder measured or drew last."""

from __future__ import annotations

import json
from pathlib import Path

from bench.errors import BenchError
from bench.runs.files import write_object
from bench.runs.paths import Paths


def remember_study(file: Path, scale: str | None = None) -> None:
    """Note the study's file and its scale, for commands that are about the results here."""
    record = Path(Paths.STUDY)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_object({"file": str(file), **({"scale": scale} if scale else {})}, record)


def last_study() -> tuple[Path, str | None] | None:
    """The study's file and its scale; None where no workflow has noted one.

    Raises:
        BenchError: the note cannot be read.
    """
    record = Path(Paths.STUDY)
    if not record.exists():
        return None
    try:
        note = json.loads(record.read_text(encoding="utf-8"))
        return Path(note["file"]), note.get("scale")
    except (ValueError, KeyError, TypeError):
        raise BenchError(f"{record}: not readable. Name the study's file with --configfile, or delete this one.") from None
