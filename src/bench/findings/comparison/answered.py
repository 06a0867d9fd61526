"""Whether a candidate fails more requests than the baseline, which outweighs its latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bench.findings.comparison.effects import CONFIGURATION
from bench.statistics.textbook import rarer_by_chance

LEAST_SHARE = 0.01  # share of the requests by which the sides must differ; convention
_WRONG = 0.01  # probability of a false verdict, over all levels together; convention
FAILURES = {
    **dict.fromkeys(("deployment", "workload", "axis"), pl.String),
    "level": pl.Float64,
    **dict.fromkeys(("failed_baseline", "requests_baseline", "failed", "requests"), pl.Int64),
    **dict.fromkeys(("share_baseline", "share", "p"), pl.Float64),
    "verdict": pl.String,
    "alike": pl.Boolean,
}


def failures(baseline: pl.DataFrame, candidate: pl.DataFrame) -> pl.DataFrame:
    """The levels at which either side failed requests; valid runs and others alike, as a failure is the server's own answer.

    Fisher's exact test on the counts, one-sided, Bonferroni's for the number of levels; the counts are divided by their dispersion
    first: Pearson's χ² of the runs around their side's share ÷ (runs − 2), 1 at least. So one run in which all failed is one event.
    Of a single run on each side there is no dispersion, and each request counts.

    Args:
        baseline, candidate: summary rows, deployments called alike (`CONFIGURATION`, `failed`, `requests`).

    Returns:
        One row a level: counts and shares (0–1) of both sides; `p` of the side that failed more; `verdict` on the candidate, `better`
        or `worse` where the shares differ significantly, by 1 % or more; `alike`, whether they differ by less: otherwise latencies
        of the requests that survived are not comparable.
    """
    sides = [_counts(side) for side in (baseline, candidate)]
    both = (
        sides[0]
        .join(sides[1], on=CONFIGURATION, suffix="_candidate", maintain_order="left")
        .sort("workload", "level", maintain_order=True)
    )
    rows = [row for row in both.iter_rows(named=True) if any(row["failed"]) or any(row["failed_candidate"])]
    return pl.DataFrame([_row(row, both.height) for row in rows], schema=FAILURES)


def _counts(runs: pl.DataFrame) -> pl.DataFrame:
    # A wrong key or model is refused under any load, and says nothing of the server.
    content = pl.col("faults").list.contains("content").fill_null(False)
    sent = runs.filter((pl.col("requests") > 0) & pl.col("failed").is_not_null() & ~content)
    return sent.group_by(CONFIGURATION, maintain_order=True).agg("failed", "requests")


def _row(level: Mapping[str, Any], levels: int) -> dict[str, Any]:
    failed, sent = level["failed"], level["requests"]
    failed_too, sent_too = level["failed_candidate"], level["requests_candidate"]
    share, share_too = sum(failed) / sum(sent), sum(failed_too) / sum(sent_too)
    dispersion = _dispersion([(failed, sent), (failed_too, sent_too)])
    ours, theirs = (
        (round(sum(f) / dispersion), round(sum(n) / dispersion)) for f, n in ((failed, sent), (failed_too, sent_too))
    )
    (more, of_more), (fewer, of_fewer) = (theirs, ours) if share_too > share else (ours, theirs)
    p = rarer_by_chance(fewer, of_fewer, more, of_more)
    alike = abs(share_too - share) < LEAST_SHARE
    verdict = "no evidence" if alike or p > _WRONG / levels else "worse" if share_too > share else "better"
    return {
        **{key: level[key] for key in CONFIGURATION},
        "failed_baseline": sum(failed),
        "requests_baseline": sum(sent),
        "failed": sum(failed_too),
        "requests": sum(sent_too),
        "share_baseline": share,
        "share": share_too,
        "p": p,
        "verdict": verdict,
        "alike": alike,
    }


def _dispersion(sides: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """Pearson's χ² of runs around their side's share ÷ its degrees of freedom, 1 at least."""
    squares, runs = 0.0, 0
    for failed, sent in sides:
        share = sum(failed) / sum(sent)
        runs += len(sent)
        if 0 < share < 1:
            squares += sum((f - n * share) ** 2 / (n * share * (1 - share)) for f, n in zip(failed, sent, strict=True))
    return max(1.0, squares / (runs - len(sides))) if runs > len(sides) else 1.0
