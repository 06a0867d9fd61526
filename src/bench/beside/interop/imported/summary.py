"""Runs of other tools as `bench parse` writes those of our own: what a file does not say is null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.beside.interop.imported.kind import Format, PeerRun
from bench.parse.latency import latency_columns
from bench.parse.run import summarise
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.stream import supported
from bench.runs.checksums import checksum
from bench.runs.files import digest, write_object
from bench.runs.request import KEPT
from bench.runs.run import Client, Host, Prefix, RunRecord
from bench.runs.run_summary import RunSummary, write_run_summary

# largest relative difference of mean lengths of one load, as tools count them; convention: tools miss the length that is asked for
_ALIKE = 0.1
_IDENTITY = 8  # characters of a run's digest in its name; convention: of a thousand runs two share them with odds of 1 to 8,600
# What the records of a client of our own say, and a file of another tool does not.
_NOT_KNOWN = ("drain_s", "commit", "cache", "turns", "template_tokens", "cut_answers", "without_done", "round", "hidden_tokens")
_OF_A_LOAD = (
    *(
        "deployment",
        "run",
        "workload",
        "family",
        "arrival",
        "axis",
        "level",
        "repeat",
        "endpoint",
        "stream",
        "digest",
        "started",
    ),
)
_OF_CHUNKS = ("throughput_peak_tokens_per_s", "tokens_per_chunk", "tokens_per_arrival", "held_back_answers")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A run of another tool beside our own.

    Attributes:
        source: the file it was read from. figures: the columns of the summary table that follow from its records, by our definitions;
            of aggregates alone, what the load was and what was counted. requests: its records; None of aggregates alone.
    """

    form: Format
    source: Path
    peer: PeerRun
    figures: Mapping[str, Any]
    requests: pl.DataFrame | None = None


def imported(peers: Iterable[tuple[Format, Path, PeerRun]], own: Sequence[Mapping[str, Any]] = ()) -> list[Imported]:
    """The runs, each with the columns that follow from its file.

    A load of the same arrivals and lengths has one name, by which runs are compared and drawn on one curve: that of a run of our own,
    where there is one.

    Args:
        own: rows of the summary table.
    """
    loads = [(str(row["arrival"]), row["prompt_tokens"], row["output_tokens"], str(row["workload"])) for row in own]
    found: list[Imported] = []
    repeats: dict[tuple[Any, ...], int] = {}
    for form, source, peer in peers:
        lengths, (kind, _, level) = _lengths(peer), peer.load
        workload = next((name for arrival, *of, name in loads if arrival == kind and _alike(of, lengths)), None)
        if workload is None:
            workload = "_".join([kind, *(f"{letter}{mean:.0f}" for letter, mean in zip("po", lengths, strict=True) if mean)])
            loads.append((kind, lengths[0], lengths[1], workload))
        load = (form.name, peer.model, workload, level)
        repeats[load] = repeats.get(load, 0) + 1
        found.append(_run(form, source, peer, workload, repeats[load]))
    return found


def _lengths(peer: PeerRun) -> list[float | None]:
    """Mean lengths of prompts and of answers, as the tool counts them."""
    ok = peer.table.filter(pl.col("outcome") == "ok")
    means = [ok[column].mean() for column in ("prompt_tokens", "completion_tokens")]
    columns = ("counted_prompt_tokens", "counted_output_tokens")
    return [peer.reported.get(ours) if mean is None else mean for ours, mean in zip(columns, means, strict=True)]  # type: ignore[misc] # of numbers


def _alike(ours: Sequence[float | None], theirs: Sequence[float | None]) -> bool:
    return all(a is not None and b is not None and abs(a - b) <= _ALIKE * a for a, b in zip(ours, theirs, strict=True))


def _run(form: Format, source: Path, peer: PeerRun, workload: str, repeat: int) -> Imported:
    arrival, axis, level = peer.load
    definition = {
        "deployment": f"{peer.model} ({form.title})",
        "workload": workload,
        "arrival": arrival,
        "axis": axis,
        "level": level,
        "repeat": repeat,
        "endpoint": peer.endpoint,
        "stream": peer.stream,
        "prompts": {"source": "imported"},
        "output_tokens": {"distribution": "natural"},  # nothing says whether an answer's length was asked for
    }
    identity = digest([definition, checksum(source)])
    # Folders of runs have this name: another model's run of the same load, or of a later call, is another one.
    definition["run"] = f"{form.name}_{workload}_{AXES[axis].label(level)}_r{repeat}_{identity[:_IDENTITY]}"
    table = peer.table
    counted = [pl.coalesce("prompt_asked", "prompt_tokens"), pl.coalesce("output_asked", "completion_tokens")]
    table = latency_columns(table.lazy().with_columns(counted)).collect()
    record = RunRecord(
        digest=identity,
        round=1,
        definition=definition,
        started=peer.started or "",
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
    figures |= dict.fromkeys(_NOT_KNOWN) | {"started": peer.started}
    if not peer.requests:  # times by the tool's own definitions are no columns of ours
        counts = {name: int(peer.reported[name]) for name in ("requests", "ok") if name in peer.reported}
        return Imported(form=form, source=source, peer=peer, figures={name: figures[name] for name in _OF_A_LOAD} | counts)
    if peer.lacks:
        figures |= dict.fromkeys([*_OF_CHUNKS, *(name for name in figures if name.startswith(("steady", "itl_")))])
    requests = supported(table).drop(*KEPT, "request_class")
    return Imported(form=form, source=source, peer=peer, figures=figures, requests=requests)


def write_imported(runs: Iterable[Imported], folder: Path) -> list[Path]:
    """Write each run into a folder of its own below `folder`: its tables and summary, as `bench parse` does, and `import.json`, which
    says where it comes from. Runs with aggregates alone are left out. Returns the folders.
    """
    written = []
    for run in runs:
        if run.requests is None:
            continue
        place = folder / str(run.figures["run"])
        place.mkdir(parents=True, exist_ok=True)
        run.requests.write_parquet(place / "requests.parquet")
        pl.DataFrame(schema=TELEMETRY_SCHEMA).write_parquet(place / "telemetry.parquet")
        write_run_summary(RunSummary.of(run.figures), place / "summary.json")
        origin = {
            "tool": run.form.title,
            "version": run.peer.version,
            "file": run.source.name,
            "sha256": checksum(run.source),
            "reported": run.peer.reported,
        }
        write_object(origin, place / "import.json")
        written.append(place)
    return written
