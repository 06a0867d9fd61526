"""What speculative decoding changes for the reader: servers that speculate beside the one that does not."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from bench.study.settings import SPECULATION, flag_column, settings_in

__all__ = ["SpeculationGain", "speculates", "speculation_gains"]

_ALIKE = ("model", "engine", "workload", "axis")
_SPECULATIVE = (flag_column("spec-"), flag_column("speculative-"))  # how what further flags of speculation are called begins
_DRAFTED = (pl.col("spec_draft_tokens").fill_null(0) > 0) | pl.col("accepted_length").is_not_null()


@dataclass(frozen=True)
class SpeculationGain:
    """A server that speculates under a workload, beside the one of the same model and engine that does not.

    Attributes:
        plain: the other deployment.
        drafted, accepted: tokens of all valid runs together; None where none of these counts them.
        low, high: TPOT P50 ÷ that of `plain`, medians of valid runs, at the loads where it is least and greatest.
        levels: loads that both have.
    """

    deployment: str
    plain: str
    workload: str
    drafted: float | None
    accepted: float | None
    low: float
    high: float
    levels: int


def speculates() -> pl.Expr:
    """Whether a run's deployment drafted anything in any run; null where none of its runs has the server's counts."""
    counted = pl.col("server_generation_tokens").is_not_null().any().over("deployment")
    drafted = _DRAFTED.any().over("deployment")
    return pl.when(counted | drafted).then(drafted)


def speculation_gains(runs: pl.DataFrame) -> list[SpeculationGain]:
    """What speculation changes, of each server that has one counterpart alone, under each workload that they share.

    Args:
        runs: summary rows (`deployment`, `model`, `engine`, `workload`, `axis`, `level`, `tpot_p50_s`, `spec_draft_tokens`,
            `spec_accepted_tokens`, `accepted_length`, `server_generation_tokens`, `valid`, `counts_valid`, and settings).
    """
    known = runs.with_columns(speculates=speculates())
    found = []
    # With another setting too, nothing says which of them did it.
    settings = [x for x in settings_in(runs.columns) if x not in SPECULATION and not x.startswith(_SPECULATIVE)]
    for _, group in known.group_by(*_ALIKE, *settings, maintain_order=True):
        with_, without = (group.filter(pl.col("speculates") == kind) for kind in (True, False))
        if without["deployment"].n_unique() != 1:
            continue
        usual = _levels(without)
        for (name,), own in with_.group_by("deployment", maintain_order=True):
            ratios = _levels(own).join(usual, on="level").select(pl.col("tpot") / pl.col("tpot_right")).to_series()
            if ratios.is_empty():
                continue
            counted = own.filter("counts_valid")
            counted = counted.drop_nulls(["spec_draft_tokens", "spec_accepted_tokens"])
            drafted, accepted = (
                float(counted[f"spec_{each}_tokens"].sum()) if counted.height else None for each in ("draft", "accepted")
            )
            found.append(
                SpeculationGain(
                    deployment=str(name),
                    plain=without["deployment"][0],
                    workload=own["workload"][0],
                    drafted=drafted,
                    accepted=accepted,
                    low=float(ratios.min()),  # type: ignore[arg-type]
                    high=float(ratios.max()),  # type: ignore[arg-type]
                    levels=len(ratios),
                )
            )
    return found


def _levels(runs: pl.DataFrame) -> pl.DataFrame:
    """The median TPOT of each load's valid runs: `level`, `tpot` (s)."""
    return (
        runs.filter("valid").group_by("level").agg(tpot=pl.col("tpot_p50_s").median()).drop_nulls().filter(pl.col("tpot") > 0)
    )
