"""The runs of a session, parsed (those that are parsed already are kept), and what they show at once, ahead of the next session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.axes import AXES
from bench.errors import BenchError
from bench.parse.run import parse_run
from bench.parse.server import FULL
from bench.parse.windows import level_values, of_windows
from bench.runs.files import read_kept, write_kept
from bench.runs.sentences import load_text
from bench.runs.store import ParsedSession
from bench.runs.summary import NO_COLUMNS, read_run_summary, summary_table

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


def answer_lines(runs: Path, names: Iterable[str]) -> list[str]:
    """The highest throughput of each curve, and from which load on its KV cache was full.

    Args:
        runs: the folder of a deployment's runs. names: of those that are parsed.
    """
    rows = [read_run_summary(runs / name / "summary.json").figures for name in names]
    table = summary_table([{**{k: v for k, v in row.items() if k not in NO_COLUMNS}, "valid": True} for row in rows])
    levels = level_values(of_windows(table)[0], ["throughput_tokens_per_s", "kv_usage_peak"])  # as the report has them
    curves = levels.partition_by("workload", as_dict=True)
    return [f"{runs.name} · {workload}: {_answer(curve.rows(named=True))}" for (workload,), curve in curves.items()]


def _answer(curve: Sequence[Mapping[str, Any]]) -> str:
    unit = AXES[curve[0]["axis"]].short
    best = max(curve, key=lambda run: run["throughput_tokens_per_s"] or 0.0)
    full = [run["level"] for run in curve if (run["kv_usage_peak"] or 0.0) >= FULL]
    cache = f"the KV cache was full at {load_text(min(full), unit)}" if full else "the KV cache was never full"
    shown = f"; {cache}" if any(run["kv_usage_peak"] is not None for run in curve) else ""
    return f"at most {best['throughput_tokens_per_s'] or 0:.3g} tokens/s, at {load_text(best['level'], unit)}{shown}"
