"""What must be the same in two sets of runs for their difference to mean anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import polars as pl

from bench.statistics import student_t
from bench.study.settings import SETTINGS, is_own

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
# relative rise of the client's CPU time for a piece of an answer that is reported; convention: less says little of the machine
_SLOWER = 0.20


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


@dataclass(frozen=True)
class SlowerMachine:
    """The client's own work took more CPU time beside one side, by a share of the other's. deployment: as in `Differs`."""

    side: Literal["baseline", "candidate"]
    share: float
    deployment: str | None = None


Difference: TypeAlias = Differs | SlowerMachine


def differences(both: pl.DataFrame) -> list[Difference]:
    """Each locked variable that differs between the runs of a pair, and each deployment whose machine was slower on one side.

    Args:
        both: a row a pair of runs: the baseline's columns, and the candidate's with `_candidate` at their end; `deployment`,
            `workload` and `level` are common.
    """
    several = both["deployment"].n_unique() > 1
    found: list[Difference] = []
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
    return [*found, *_machine(both, several)]


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


def _machine(both: pl.DataFrame, several: bool) -> list[SlowerMachine]:
    """Each deployment beside which the client's own work took more CPU time on one side: the machine was slower then.

    CPU time of the load processes ÷ pieces of answers that they stamped, over the means of the levels. It counts where the 95 %
    interval of their mean log ratio (Student's t) leaves out 0 and the mean is a fifth or more: a server that is slower, or answers
    in smaller pieces, makes some more work too. docs/explanation/comparing.md judges it on a machine whose speed changed.
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
    return [
        SlowerMachine("candidate" if mean > 0 else "baseline", math.exp(abs(mean)) - 1, name if several else None)
        for name, n, mean, spread in found.filter(pl.col("n") > 2).rows()
        if abs(mean) > student_t(n - 1) * spread / n**0.5 and abs(mean) >= math.log(1 + _SLOWER)
    ]
