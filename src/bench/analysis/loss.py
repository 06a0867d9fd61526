"""What the loss of a worker did to a fleet, and whether the others hold the load within the SLOs (N + 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from bench.analysis.judging import DOUBT, Level, judged_levels, limits_of, unmeasured
from bench.analysis.observation import FAILED
from bench.study import Slo


@dataclass(frozen=True)
class Loss:
    """A run that lost a worker; the rest is in its columns `lost_*`.

    Attributes:
        holds: whether the other workers sustain this load, by the rule of C_max: the probability that their limit lies below it is 25 %
            or less. False where it is 75 % or more, and where requests pile up or too many fail in the steady window; None between,
            where the run is invalid or too short after the loss, where an SLO's latency was not measured, and without SLOs.
    """

    deployment: str
    run: str
    holds: bool | None


def losses(runs: pl.DataFrame, slos: Sequence[Slo], failed_share: float = 0.01) -> list[Loss]:
    """Each run that lost a worker; runs of one load are judged together, by their steady windows after the loss.

    Args:
        runs: summary rows.
    """
    found = []
    for _, curve in runs.filter(pl.col("lost_at_s").is_not_null()).group_by("deployment", "workload", maintain_order=True):
        verdicts = _holding(curve, slos, failed_share)
        for name, run, level, valid in curve.select("deployment", "run", "level", "valid").iter_rows():
            found.append(Loss(name, run, verdicts.get(level) if valid else None))
    return found


def _holding(curve: pl.DataFrame, slos: Sequence[Slo], failed_share: float) -> dict[float, bool | None]:
    """By load, whether the workers that are left hold it."""
    limits, valid = limits_of(curve, slos), curve.filter("valid").to_dicts()
    if not limits or not valid:
        return {}
    return {level.load: _held(level, limits) for level in judged_levels(valid, limits, failed_share)[0]}


def _held(level: Level, slos: Sequence[Slo]) -> bool | None:
    if level.unsettled is not None:
        return None
    if not level.missed:
        return None if any(unmeasured(level.rows, slo) for slo in slos) else True
    certain = any(verdict.key == FAILED or verdict.grows or verdict.below >= 1 - DOUBT for verdict in level.missed)
    return False if certain else None
