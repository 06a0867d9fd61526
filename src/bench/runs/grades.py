"""The file of a study's grades, which also says why there are none and how often that has happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.runs.columns import schema_of

_WHY, _FAILURES = "saturate.why", "saturate.failures"


def write_grades(file: Path, rows: Iterable[Mapping[str, Any]], *, why: str | None = None, failures: int = 0) -> None:
    """Write the table `grades`.

    Args:
        why: nothing could be graded. failures: how often that has been so.
    """
    import polars as pl  # noqa: PLC0415 - the workflow's rules read this module without it

    file.parent.mkdir(parents=True, exist_ok=True)
    said = {_FAILURES: str(failures), **({_WHY: why} if why else {})}
    pl.DataFrame(list(rows), schema=schema_of("grades")).write_parquet(file, metadata=said)


def why_ungraded(file: Path) -> str | None:
    """Why nothing could be graded; None where something was."""
    return _said(file).get(_WHY)


def failed_gradings(file: Path) -> int:
    """How often nothing could be graded, since there is the file; 0 without one. A file that tells of another failure has another
    number than the rule `grade` had when it began, which runs it again; one that tells of grades has the same.
    """
    return int(_said(file).get(_FAILURES, 0))


def _said(file: Path) -> Mapping[str, str]:
    if not file.exists():
        return {}
    import polars as pl  # noqa: PLC0415 - as above

    return pl.read_parquet_metadata(file)
