"""Every run in one line, what failed in them, and why some are invalid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.errors import count_text
from bench.findings import trust
from bench.findings.course import Course, course, ttft_slope
from bench.findings.streams import stream_notes
from bench.parse.validity import PARTS, failures, reason_texts, stopped
from bench.report.blocks import Block, Cell, Column, Fold, Items, Section, Table, Text, cell_of_load
from bench.statistics.percentiles import tail_text

if TYPE_CHECKING:
    import polars as pl

    from bench.findings.view import View

Row = Mapping[str, Any]
# What cannot be trusted in a word, as a colour alone would not do.
_INVALID = {(False, False): "✕ invalid: ", (False, True): "✕ invalid latencies: ", (True, False): "✕ invalid counts: "}
_OPENED = 100  # most runs of a table that is open; convention
_RUNS = (
    Column("run", "name"),
    Column("load", "load"),
    Column("requests", "sent"),
    Column("failed", "failed"),
    Column("tokens/s", "throughput_tokens_per_s", "%.0f"),
    Column("best second", "throughput_peak_tokens_per_s", "%.0f"),
    Column("TTFT P50 (s)", "ttft_p50_s", "%.3f"),
    Column("TTFT P99 (s)", "tail"),
    Column("TPOT P50 (s)", "tpot_p50_s", "%.3f"),
    Column("E2E P50 (s)", "e2e_p50_s", "%.3f"),
    Column("peak KV usage", "kv_usage_peak", "%.0f %%", 100),
    Column("most waiting", "waiting_peak", "%.0f"),
    Column("preemptions", "preemptions", "%.0f"),
    Column("in the queue, mean (s)", "server_queue_time_mean_s", "%.3f"),
    Column("ITL P99 (s)", "itl_p99_s", "%.3f"),
    Column("cache full after (s)", "full_after_s", "%.2g"),
    Column("full for (s)", "full_for_s", "%.2g"),
    Column("running then", "running", "%.0f"),
    Column("tokens/s while it fills", "filling"),
    Column("while it is full", "full"),
    Column("peaks over valleys", "swing", "%.0f %%", 100),
    Column("TTFT, each request of a burst (ms)", "ttft_slope_s", "%.3g", 1000),
    Column("recovered from a step after (s)", "recovery_s", "%.2g"),
    Column("others' work", "host_other_share", "%.0f %%", 100),
)
_MEANING = (
    "While the cache fills, while it is full: the change of tokens/s (95 % interval) where a stretch lasts four seconds or "
    "more; longer answers or more requests make stretches longer. P99: ~ is an estimate of too few requests (fewer than 662) "
    "for a bound; (≤ …) is an upper bound on the true one, at 99 % confidence."
)


def section(view: View) -> Section:
    series = view.results.timeseries
    courses = series.partition_by("deployment", "run", as_dict=True) if series.height else {}
    rows = [{**_row(run), **_course(run, courses.get((run["deployment"], run["run"])))} for run in view.runs.to_dicts()]
    failing = [row for row in rows if row["failures"]]
    found: list[Block] = []
    if failing:
        found += [
            Text(
                f"Requests failed in {count_text(len(failing), 'run', of=len(rows))}. That makes no run invalid: it is the server's "
                "answer to the load. Latencies are of the requests that succeeded."
            ),
            Items(_often([row["failures"] for row in rows])),
        ]
    if notes := _often([list(stream_notes(row)) for row in rows]):
        found += [Text("A chunk of a stream is not always a token:"), Items(notes)]
    table = Fold(f"All {len(rows)} runs", [Table("Every run", _RUNS, rows)], opened=len(rows) <= _OPENED)
    return Section("runs", "Runs", [table, Text(_MEANING), *found], short=found)


def invalid(view: View) -> Section:
    title, of = "Invalid runs", view.runs.height
    if view.invalid.is_empty():
        return Section("invalid", title, [])
    rows = [_row(run) for run in view.invalid.to_dicts()]
    reasons = _often([reason_texts(run["reasons"]) for run in view.runs.to_dicts()])
    columns = [Column("run", "name"), Column("at fault", "fault"), Column("cannot be trusted", "lost"), Column("why", "why")]
    blocks: list[Block] = [
        Text(
            f"Some part of {count_text(len(rows), 'run', of=of)} cannot be trusted, and counts in no conclusion: crosses in figures."
        ),
        Text(trust.accept_others(view.runs.filter(~view.runs["valid"]).to_dicts())),
        Items(reasons if len(reasons) > 1 else []),  # the first line of the page says a single one
        Table("Why runs are invalid", columns, rows),
    ]
    of_fault = {fault for run in view.invalid["faults"].to_list() for fault in run}
    parts = "; ".join(f"**{part}**, {meaning}" for part, meaning in PARTS.items() if part in of_fault)
    fault = f"At fault: {parts}." if parts else ""
    return Section("invalid", title, [*blocks, Text(fault)], short=blocks)


def _course(run: Row, timeseries: pl.DataFrame | None) -> dict[str, Any]:
    """What happens within a run, as cells."""
    seen = course(timeseries) if timeseries is not None else Course()
    return {
        **vars(seen),
        "filling": _change(seen.filling),
        "full": _change(seen.full),
        "ttft_slope_s": ttft_slope(run["judged"] or ()) if run["arrival"] == "burst" else None,
    }


def _change(change: tuple[float, float, float] | None) -> Cell:
    if change is None:
        return Cell("–")
    middle, low, high = (f"{100 * end:+.0f}" for end in change)
    return Cell(f"{middle} % ({low} to {high})".replace("-", "−"), change[0])


def _often(texts: Sequence[Sequence[str]]) -> list[str]:
    """Each text that runs have, with in how many of them it occurs."""
    return [
        f"{text} ({count_text(count, 'run', of=len(texts))})"
        for text, count in trust.alike(one for each in texts for one in each)
    ]


def _row(run: Row) -> dict[str, Any]:
    """A run's row, with what it says beside its numbers."""
    mark = _INVALID.get((run["valid"], run["counts_valid"]), "")
    sent, p99, bound = f"{run['requests']}", run["ttft_p99_s"], run["ttft_p99_bound_s"]
    estimate = f"an estimate: n = {run['ttft_n']} is too few for a 99 % bound" if p99 is not None and bound is None else None
    failed = failures(run)
    lost = ("latency and throughput", run["valid"]), ("the server's counts", run["counts_valid"])
    return {
        **run,
        "name": f"{mark}{run['deployment']}/{run['run']}",
        "invalid": bool(mark),
        "load": cell_of_load(run),
        "why": Cell("; ".join(reason_texts(run["reasons"])), kind="text wide"),
        "fault": ", ".join(run["faults"]),
        "lost": ", ".join(what for what, trusted in lost if not trusted),
        "failures": [failed] if failed else [],
        "failed": Cell(f"{100 * run['failed_share']:.1f} %" if failed else "–", run["failed_share"] or 0, title=failed),
        "sent": Cell(
            sent if run["stopped_at_s"] is None else f"{sent} of {run['num_requests']}", run["requests"], title=stopped(run)
        ),
        "tail": Cell(tail_text(p99, bound), p99, title=estimate),
    }
