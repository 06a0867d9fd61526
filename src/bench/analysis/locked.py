"""What must be alike in two sets of runs, so that their difference means what it is taken for."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from bench.statistics import student_t

__all__ = ["differences"]

# Of a deployment, and of a run.
_DEPLOYMENT = (
    "model",
    "parameters",
    "hardware",
    "device",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "gpus",
    "engine",
    "engine_version",
    "kv_bytes_per_token",
    "kv_tokens",
    "environment",
)
_RUN = ("arrival", "stream", "cache", "num_requests", "prompt_tokens", "output_tokens", "seed")
_NAMED = 3  # loads named in one line
_SLOWER = 0.20  # of the client's own CPU time for a piece of an answer; less says little of the machine


def differences(both: pl.DataFrame) -> list[str]:
    """A line for each locked variable that differs between the runs of a pair, such as `engine_version: 0.31.0 → 0.32.0`.

    Args:
        both: a row a pair of runs: the baseline's columns, and the candidate's with `_candidate` at their end; `deployment`,
            `workload` and `level` are common.
    """
    several = both["deployment"].n_unique() > 1
    lines = []
    for column in (*_DEPLOYMENT, *_RUN):
        apart = both.filter(pl.col(column).ne_missing(pl.col(f"{column}_candidate")))
        if column in _DEPLOYMENT:
            rows = apart.select("deployment", column, f"{column}_candidate").unique(maintain_order=True).rows()
            lines += [f"{column}{f' of {name}' if several else ''}: {_text(x)} → {_text(y)}" for name, x, y in rows]
        elif len(apart):
            first = apart.row(0, named=True)
            lines.append(f"{column}: {_text(first[column])} → {_text(first[f'{column}_candidate'])} ({_loads(apart)})")
    return lines + _machine(both, several)


def _machine(both: pl.DataFrame, several: bool) -> list[str]:
    """A line for each deployment beside which the client's own work took more CPU time on one side: the machine was slower then.

    CPU time of the load processes ÷ pieces of answers that they stamped, over the means of the levels. Told where the 95 % interval of
    their mean log ratio (Student's t) leaves out 0 and the mean is a fifth or more: a server that is slower, or answers in smaller
    pieces, makes some more work too. docs/metrics.md, Comparison, has what it was worth on a machine whose speed changed.
    """
    columns = [f"client_{key}{side}" for key in ("cpu_s", "reads") for side in ("", "_candidate")]
    ours, theirs = (pl.col(f"client_cpu_s{side}") / pl.col(f"client_reads{side}") for side in ("", "_candidate"))
    levels = (
        both.filter(pl.all_horizontal(pl.col(column) > 0 for column in columns))
        .group_by("deployment", "workload", "axis", "level", maintain_order=True)
        .agg(log=(theirs / ours).log().mean())
    )
    found = levels.group_by("deployment", maintain_order=True).agg(
        n=pl.len(), mean=pl.col("log").mean(), spread=pl.col("log").std()
    )
    lines = []
    for name, n, mean, spread in found.filter(pl.col("n") > 2).rows():
        if abs(mean) > student_t(n - 1) * spread / n**0.5 and abs(mean) >= math.log(1 + _SLOWER):
            side = "candidate" if mean > 0 else "baseline"
            lines.append(
                f"machine{f' of {name}' if several else ''}: the client's own work took {math.exp(abs(mean)) - 1:.0%} more CPU time "
                f"beside the {side}: most likely the machine was slower then, or shared"
            )
    return lines


def _loads(pairs: pl.DataFrame) -> str:
    """The loads of some pairs in short, such as `short at 8`."""
    loads = [
        f"{workload} at {level:g}" for workload, level in pairs.select("workload", "level").unique(maintain_order=True).rows()
    ]
    more = len(loads) - _NAMED
    return ", ".join(loads[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _text(value: Any) -> str:
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
