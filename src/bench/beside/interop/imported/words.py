"""Runs of other tools beside our own, in a table and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.axes import AXES
from bench.beside.interop.imported import Imported
from bench.parse.validity import reason_texts

_HEAD = ("", "load", "answered", "prompt", "output", "requests/s", "tokens/s")
_COUNTED = ("counted_prompt_tokens", "counted_output_tokens", "throughput_requests_per_s", "throughput_tokens_per_s")
_TIMES = {
    "ttft_p50_s": "TTFT P50",
    "ttft_p99_s": "P99",
    "tpot_p50_s": "TPOT P50",
    "itl_p50_s": "ITL P50",
    "e2e_p50_s": "E2E P50",
}


def imported_rows(runs: Sequence[Imported], own: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """A table, its head first: our own runs and those of other tools, by load; below each of the latter what the tool itself reports.

    Lengths are means in tokens, times in ms.

    Args:
        own: rows of the summary table.
    """
    rows = [
        (_load(row), 0, _row(str(row["deployment"]) + ("" if row["valid"] else ", invalid"), _label(row), row)) for row in own
    ]
    for i, run in enumerate(runs, 1):
        load, title = _load(run.figures), f"{run.form.title} {run.peer.version or ''}".strip()
        if run.requests is not None:
            rows.append((load, i, _row(title, _label(run.figures), run.figures)))
            rows.append((load, i, _row("  as it reports", "", run.peer.reported)))
        else:
            rows.append((load, i, _row(f"{title}, as it reports", _label(run.figures), run.peer.reported)))
    head = [*_HEAD, *(f"{title}, ms" for title in _TIMES.values())]
    return [head, *(row for *_, row in sorted(rows, key=lambda row: row[:2]))]


def _load(row: Mapping[str, Any]) -> tuple[str, str, float]:
    return str(row["workload"]), str(row["axis"]), float(row["level"])


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['workload']} {AXES[row['axis']].label(row['level'])}"


def _row(name: str, load: str, figures: Mapping[str, Any]) -> list[str]:
    return [
        name,
        load,
        f"{figures['ok']:.0f} of {figures['requests']:.0f}" if figures.get("requests") is not None else "–",
        *(_number(figures.get(column)) for column in _COUNTED),
        *(_number(figures.get(column), 1e3) for column in _TIMES),
    ]


def _number(value: float | None, scale: float = 1.0) -> str:
    return "–" if value is None else f"{float(f'{scale * value:.3g}'):,g}"


def imported_notes(runs: Sequence[Imported], own: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What a reader of the table should know of the runs. Args: own: as of `imported_rows`."""
    for row in own:
        if not row["valid"]:
            yield f"{row['deployment']}, {_label(row)}: invalid, as {'; '.join(reason_texts(row['reasons']))}."
    for run in {run.source: run for run in runs}.values():
        if run.requests is None:
            why = run.peer.lacks or "it does not have every request"
            yield f"{run.source}: {why}, so it is a line of this table alone. Expected: {run.form.file}."
        elif run.peer.lacks:
            yield f"{run.source}: {run.peer.lacks}, so there is no ITL and no steady window."
    yield "What each tool defines otherwise, or by another name: docs/reference/imported.md."
