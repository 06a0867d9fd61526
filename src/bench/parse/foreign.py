"""Runs that another client measured, by our definitions, as `bench parse` writes those of our own: what nobody recorded is null."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError, shown
from bench.parse.latency import latency_columns
from bench.parse.run import summarise
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.stream import supported
from bench.runs.files import write_object
from bench.runs.request import KEPT, RequestRecord
from bench.runs.request_table import REQUEST_SCHEMA
from bench.runs.run import Client, Host, Prefix, RunRecord
from bench.runs.summary import RunSummary, write_run_summary

# What the records of a client of our own say, and others' do not.
_NOT_KNOWN = ("drain_s", "commit", "cache", "turns", "template_tokens", "cut_answers", "without_done", "round", "hidden_tokens")
_OF_CHUNKS = ("throughput_peak_tokens_per_s", "tokens_per_chunk", "tokens_per_arrival", "held_back_answers")
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # a process that draws these is aborted


@dataclass(frozen=True)
class ForeignRun:
    """A run that another client measured. Attributes: figures: columns of the summary. requests: a row each."""

    figures: Mapping[str, Any]
    requests: pl.DataFrame


def request_table(requests: Sequence[RequestRecord]) -> pl.DataFrame:
    """Requests as a table."""
    return pl.DataFrame([vars(each) for each in requests], schema=REQUEST_SCHEMA)


def foreign_run(
    definition: Mapping[str, Any], requests: pl.DataFrame, *, digest: str, started: str | None = None, stamps: bool = True
) -> ForeignRun:
    """A run's columns, from its records alone.

    Args:
        definition: `deployment`, `run` (its name), `workload`, `arrival`, `axis`, `level`, `repeat`, `endpoint`, `stream`, `prompts`,
            `output_tokens`, as in its record. requests: of `request_table`. digest: tells it from all other runs.
        started: ISO moment.
        stamps: whether each piece of an answer has its moment: without, there are no ITL and no steady window.

    Raises:
        BenchError: a name has a control character.
    """
    if wrong := next((key for key, value in definition.items() if _NO_TEXT.search(str(value))), None):
        raise BenchError(
            f"{wrong} is {shown(definition[wrong])}, with a control character, which no chart can show. Rename it."
        )
    counted = [pl.coalesce("prompt_asked", "prompt_tokens"), pl.coalesce("output_asked", "completion_tokens")]
    table = latency_columns(requests.lazy().with_columns(counted)).collect()
    record = RunRecord(
        digest=digest,
        round=1,
        definition=definition,
        started=started or "",
        clock_start_s=0.0,
        drain_s=0.0,
        scrape_interval_s=None,
        scrape_endpoint=None,
        client=Client(),
        prefix=Prefix(expected_tokens=None),
        host=Host(),
        files={},
    )
    figures = summarise(record, table, pl.DataFrame(schema=TELEMETRY_SCHEMA), [])
    figures |= dict.fromkeys(_NOT_KNOWN) | {"started": started}
    if not stamps:
        figures |= dict.fromkeys([*_OF_CHUNKS, *(name for name in figures if name.startswith(("steady", "itl_")))])
    return ForeignRun(figures, supported(table).drop(*KEPT, "request_class"))


def write_run(run: ForeignRun, folder: Path, origin: Mapping[str, Any]) -> Path:
    """Write a run into a folder of its name below `folder`, and return that: its tables and summary, which `Results.open` reads, and
    `import.json`. Args: origin: where it comes from.
    """
    place = folder / str(run.figures["run"])
    place.mkdir(parents=True, exist_ok=True)
    run.requests.write_parquet(place / "requests.parquet")
    pl.DataFrame(schema=TELEMETRY_SCHEMA).write_parquet(place / "telemetry.parquet")
    write_run_summary(RunSummary.of(run.figures), place / "summary.json")
    write_object(origin, place / "import.json")
    return place
