"""The runs of a session, parsed (those that are parsed already are kept), and what they show at once, ahead of the next session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.errors import BenchError
from bench.parse.run import parse_run
from bench.runs.files import read_kept, write_kept
from bench.runs.store import ParsedSession

_TABLES = {"requests": "requests.parquet", "telemetry": "telemetry.parquet", "wide": "metrics.csv", "summary": "summary.json"}


def parse_session(
    runs: Path, records: Mapping[str, str], file: Path, *, code: str, say: Callable[[str], None] = lambda _: None
) -> None:
    """Parse the runs in `runs` whose tables are missing, or were made of another record or by other code; list all in `file`.

    Args:
        records: SHA-256 of each run's record, by the run's name. code: digest of the code that parses.
        say: takes a line for each run that cannot be parsed.

    Raises:
        BenchError: some cannot be; the others are parsed.
    """
    known = read_kept(ParsedSession, file)
    parsed = dict(known.runs) if known and known.code == code else {}
    failed = 0
    for run, record in records.items():
        tables = {table: runs / run / name for table, name in _TABLES.items()}
        if parsed.get(run) == record and all(path.exists() for path in tables.values()):
            continue
        try:
            parse_run(runs / run, **tables)
        except BenchError as error:
            say(f"{run}: {error}")
            failed += 1
    if failed:
        raise BenchError(
            f"{failed} of {len(records)} runs cannot be parsed, for the reasons above. Forget them, and the next workflow measures "
            f"them again: `bench runs --discard '{runs.name}/RUN'`"
        )
    write_kept(ParsedSession(code=code, runs=dict(records)), file)
