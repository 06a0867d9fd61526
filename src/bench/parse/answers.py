"""What the runs of a session show at once, a line a curve, ahead of the next session: measured numbers, no estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.axes import AXES
from bench.parse.server import FULL
from bench.runs.summary import read_run_summary


def answer_lines(runs: Path, names: Iterable[str]) -> list[str]:
    """The highest throughput of each curve, and from which load on its KV cache was full.

    Args:
        runs: the folder of a deployment's runs. names: of those that are parsed.
    """
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for name in names:
        figures = read_run_summary(runs / name / "summary.json").figures
        curves.setdefault(str(figures["workload"]), []).append(figures)
    return [f"{runs.name} · {workload}: {_answer(curve)}" for workload, curve in curves.items()]


def _answer(curve: Sequence[Mapping[str, Any]]) -> str:
    unit = AXES[curve[0]["axis"]].short
    best = max(curve, key=lambda run: run["throughput_tokens_per_s"] or 0.0)
    usage = [(run["level"], run.get("kv_usage_peak")) for run in curve]
    full = [level for level, share in usage if share is not None and share >= FULL]
    cache = f"the KV cache was full at {min(full):g} {unit}" if full else "the KV cache was never full"
    shown = f"; {cache}" if any(share is not None for _, share in usage) else ""
    return f"at most {best['throughput_tokens_per_s'] or 0:.3g} tokens/s, at {best['level']:g} {unit}{shown}"
