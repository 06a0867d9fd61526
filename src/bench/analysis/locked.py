"""What must be the same in two sets of runs for their difference to mean anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.servers.settings import SETTINGS, is_own

_KEYS = tuple(name for name in SETTINGS if not name.endswith("_parallel"))
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
    *_KEYS,
    "environment",
)
_RUN = (
    "arrival",
    "stream",
    "cache",
    "prompts",
    "answers",
    "body",
    "honour_retry_after",
    "num_requests",
    "prompt_tokens",
    "output_tokens",
    "seed",
)
LOCKED = (*_DEPLOYMENT, *_RUN)
# largest relative difference of lengths, or of KV caches, that are measured and count as equal; convention: two runs of one load differ
# by chance
ALIKE = 0.05


@dataclass(frozen=True)
class Differs:
    """A locked variable that differs.

    Attributes:
        deployment: whose it is, where several are compared. loads: workloads and levels at which it does, of what a run has; None of
            what a deployment has.
    """

    variable: str
    baseline: Any
    candidate: Any
    deployment: str | None = None
    loads: tuple[tuple[str, float], ...] | None = None


def differences(both: pl.DataFrame) -> list[Differs]:
    """Each locked variable that differs between the runs of a pair.

    Args:
        both: a row a pair of runs: the baseline's columns, and the candidate's with `_candidate` at their end; `deployment`,
            `workload` and `level` are common.
    """
    several = both["deployment"].n_unique() > 1
    found: list[Differs] = []
    flags = sorted({name.removesuffix("_candidate") for name in both.columns if is_own(name)})
    ends = [end for name in flags for end in (name, f"{name}_candidate") if end not in both.columns]
    both = both.with_columns(pl.lit(None, dtype=pl.String).alias(end) for end in ends)  # a flag of one side alone
    for column in (*LOCKED, *flags):
        apart = both.filter(_apart(column, both))
        if column in _DEPLOYMENT or column in flags:
            rows = apart.select("deployment", column, f"{column}_candidate").unique(maintain_order=True).rows()
            found += [Differs(column, ours, theirs, name if several else None) for name, ours, theirs in rows]
        elif len(apart):
            first = apart.row(0, named=True)
            loads = tuple(apart.select("workload", "level").unique(maintain_order=True).rows())
            found.append(Differs(column, first[column], first[f"{column}_candidate"], loads=loads))
    return found


def _apart(column: str, both: pl.DataFrame) -> pl.Expr:
    """Whether the sides differ. Of natural lengths it takes more than a few tokens: they are measured."""
    ours, theirs = pl.col(column), pl.col(f"{column}_candidate")
    if column in _KEYS or is_own(column):  # without a dtype, nothing is known of that server, or by that version
        known = pl.all_horizontal(pl.col("dtype", "dtype_candidate").is_not_null())
        return known & ours.ne_missing(theirs)
    measured = {"prompt_tokens": ("prompts", "file"), "output_tokens": ("answers", "natural")}.get(column)
    if measured is None or measured[0] not in both.columns:
        return ours.ne_missing(theirs)
    near = ((ours - theirs).abs() <= ALIKE * ours).fill_null(value=False) & (pl.col(measured[0]) == measured[1])
    return ours.ne_missing(theirs) & ~near.fill_null(value=False)
