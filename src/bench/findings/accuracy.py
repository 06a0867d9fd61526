"""What of a graded set a deployment solves at each load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from bench.errors import signed_percent
from bench.report.blocks import Block, Cell, Column, Section, Table, Text
from bench.statistics.percentiles import Share
from bench.statistics.textbook import Z

if TYPE_CHECKING:
    from bench.findings.view import View

_RUN = ["deployment", "run", "digest"]
_LOAD = ("workload", "axis", "level")


@dataclass(frozen=True)
class Accuracy:
    """A share of graded tasks that is solved (0–1), or by how much it differs from the baseline's (−1 to 1), of the tasks that both
    answered; between `low` and `high` at 95 % confidence.
    """

    tasks: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Graded:
    """A deployment's answers at one load.

    Attributes:
        throughput_tokens_per_s: mean of its valid runs; None where there are none. failed: requests without an answer.
        difference: from the baseline's at the same load; None for the baseline, and where it has none there.
        solved: share of a task's answers that are right (0–1), by task.
    """

    deployment: str
    workload: str
    axis: str
    level: float
    throughput_tokens_per_s: float | None
    failed: int
    accuracy: Accuracy
    difference: Accuracy | None
    solved: Mapping[str, float]


def graded(runs: pl.DataFrame, grades: pl.DataFrame) -> list[Graded]:
    """What each deployment solves at each load that was graded, in the order of `runs`.

    Args:
        runs: rows of the summary table, of which the column `baseline` says with what the others are compared. A client that was late
            changes no answer, so invalid runs count, but for throughput. grades: the table of that name.
    """
    tasks = grades.join(runs.select(*_RUN, *_LOAD), on=_RUN)
    tasks = tasks.group_by("deployment", *_LOAD, "task", maintain_order=True).agg(
        pl.col("right").sum() / pl.col("answers").sum()
    )
    solved = {
        key: dict(rows.select("task", "right").iter_rows())
        for key, rows in tasks.group_by("deployment", *_LOAD, maintain_order=True)
    }
    found = []
    loads = list(runs.group_by("deployment", *_LOAD, maintain_order=True))
    baselines = {key[1:]: solved[key] for key, rows in loads if key in solved and rows["baseline"].any()}
    for key, rows in loads:
        share = accuracy(solved.get(key, {}))
        if share is None:
            continue
        against = None if rows["baseline"].any() else baselines.get(key[1:])
        found.append(
            Graded(
                **dict(zip(("deployment", *_LOAD), key, strict=True)),
                throughput_tokens_per_s=rows.filter("valid").select(pl.col("throughput_tokens_per_s").mean()).item(),
                failed=int(rows["failed"].sum()),
                accuracy=share,
                difference=accuracy_difference(against, solved[key]) if against else None,
                solved=solved[key],
            )
        )
    return found


def accuracy(solved: Mapping[str, float]) -> Accuracy | None:
    """The share of tasks that are solved (pass@1); None without any.

    Several answers to one task are one trial, which is solved in part: their mean. The interval is Clopper and Pearson's.

    Args:
        solved: share of its answers that are right (0–1), by task.
    """
    if not solved:
        return None
    share = Share(sum(solved.values()), len(solved))
    return Accuracy(len(solved), share.share, *share.interval())


def accuracy_difference(baseline: Mapping[str, float], candidate: Mapping[str, float]) -> Accuracy | None:
    """The difference on the tasks that both answered; None where there is none.

    Args:
        baseline, candidate: as `solved` of `accuracy`.

    Source: Newcombe, Improved confidence intervals for the difference between binomial proportions based on paired data, Statistics in
    Medicine 17 (1998), method 10: Wilson's intervals of both shares, joined with the correlation of the pairs.
    """
    both = [(baseline[task], candidate[task]) for task in baseline if task in candidate]
    n = len(both)
    if not n:
        return None
    solved, gained = sum(x * y for x, y in both), sum((1 - x) * y for x, y in both)
    lost, missed = sum(x * (1 - y) for x, y in both), sum((1 - x) * (1 - y) for x, y in both)
    ours, theirs = (solved + lost) / n, (solved + gained) / n
    (ours_low, ours_high), (theirs_low, theirs_high) = _wilson(ours, n), _wilson(theirs, n)
    phi = _correlation(solved, lost, gained, missed)

    def joined(up: float, down: float) -> float:
        return math.sqrt(max(0.0, up**2 - 2 * phi * up * down + down**2))

    by = theirs - ours
    low = by - joined(theirs - theirs_low, ours_high - ours)
    high = by + joined(theirs_high - theirs, ours - ours_low)
    return Accuracy(n, by, max(-1.0, low), min(1.0, high))


def _wilson(share: float, n: int) -> tuple[float, float]:
    middle, half = share + Z**2 / (2 * n), Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return (middle - half) / (1 + Z**2 / n), (middle + half) / (1 + Z**2 / n)


def _correlation(solved: float, lost: float, gained: float, missed: float) -> float:
    """The φ of a table of pairs, which method 10 takes nearer to 0 where it is positive; 0 where a side solves all or nothing."""
    product = (solved + lost) * (gained + missed) * (solved + gained) * (lost + missed)
    if product <= 0:
        return 0.0
    n, cross = solved + lost + gained + missed, solved * missed - lost * gained
    return (max(cross - n / 2, 0.0) if cross > 0 else cross) / math.sqrt(product)


HEADS = ("tokens/s", "pass@1", "interval", "tasks", "failed", "difference", "interval")
MEANING = (
    "pass@1: share of the tasks that are solved, of several answers to a task their mean. Difference: from the baseline at "
    "the same load, in percentage points, on the tasks that both answered. Intervals: 95 %. One that includes 0 shows no difference."
)


def accuracy_cells(found: Graded) -> list[tuple[str, float | None]]:
    """The cells of a row under `HEADS`: what stands in each, and the number by which it sorts."""
    share, by = found.accuracy, found.difference
    speed = found.throughput_tokens_per_s
    return [
        ("–" if speed is None else f"{speed:.4g}", speed),
        (f"{100 * share.share:.1f} %", share.share),
        (f"{100 * share.low:.1f} to {100 * share.high:.1f} %", share.low),
        (str(share.tasks), share.tasks),
        (str(found.failed), found.failed),
        ("–" if by is None else f"{signed_percent(by.share)} points", by.share if by else None),
        ("–" if by is None else f"{signed_percent(by.low)} to {signed_percent(by.high)}", by.low if by else None),
    ]


def section(view: View) -> Section:
    """What of a graded set each deployment solves at each load; or why nothing is graded."""
    results, rows = view.results, []
    for each in graded(results.runs, results.grades) if results.grades is not None else ():
        cells = {str(i): Cell(*it) for i, it in enumerate(accuracy_cells(each))}
        rows.append({**vars(each), **cells})
    heads = [Column("curve", "curve"), Column("load", "load"), *(Column(head, str(i)) for i, head in enumerate(HEADS))]
    again = "To try again, remove results/analysis/grades.parquet."
    meaning = f"Answers are not graded: {results.ungraded} {again}" if results.ungraded else MEANING if rows else ""
    blocks: list[Block] = [Table("Tasks solved, and how fast", heads, view.of_curves(rows)), Text(meaning)]
    return Section("accuracy", "Right answers", blocks, short=blocks)
