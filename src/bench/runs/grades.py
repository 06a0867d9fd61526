"""The file of a study's grades, which also says why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.runs.columns import schema_of

_WHY = "saturate.why"


def write_grades(file: Path, rows: Iterable[Mapping[str, Any]], *, why: str | None = None) -> None:
    """Write the table `grades`. Args: why: nothing could be graded."""
    import polars as pl  # noqa: PLC0415 - the workflow's rules read this module without it

    file.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(list(rows), schema=schema_of("grades")).write_parquet(file, metadata={_WHY: why} if why else {})


def why_ungraded(file: Path) -> str | None:
    """Why nothing could be graded; None where something was."""
    import polars as pl  # noqa: PLC0415 - as above

    return pl.read_parquet_metadata(file).get(_WHY)
