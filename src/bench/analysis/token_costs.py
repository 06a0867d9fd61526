"""What a token of a prompt or an answer costs, and what streaming buys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

from bench.analysis.lengths import Line, line
from bench.statistics import FEWEST_POINTS
from bench.workloads.workload import ALIKE

Kind = Literal["prompt", "output"]
# Of each length that may vary: its column, that of the other, and that of the latency that it sets (s).
SWEPT: dict[Kind, tuple[str, str, str]] = {
    "prompt": ("prompt_fixed", "output_fixed", "ttft_p50_s"),
    "output": ("output_fixed", "prompt_fixed", "e2e_p50_s"),
}
_PAIR = (*ALIKE, "session", "repeat")


@dataclass(frozen=True)
class LengthCost:
    """What a token costs: the latency over one length, all else alike.

    Attributes:
        kind: which length varies. `prompt` sets TTFT, `output` E2E latency.
        workload: the family whose lengths vary. lengths: the shortest and the longest that were measured (tokens); None without any.
        measured, valid, runs: valid runs that have the latency, all valid runs, all runs.
        line: latency (ms) over length (tokens); None below three lengths that were measured.
    """

    deployment: str
    workload: str
    axis: str
    level: float
    kind: Kind
    lengths: tuple[int, int] | None
    measured: int
    valid: int
    runs: int
    line: Line | None

    @property
    def known(self) -> Line | None:
        """The line, where its slope differs significantly from 0."""
        return self.line if self.line and abs(self.line.slope) > self.line.slope_half else None


@dataclass(frozen=True)
class StreamingGain:
    """The same requests with and without streaming (s, medians over pairs); None where no pair is valid or the latency is not known.

    Attributes:
        workload: that streams. first_s: until there is something to read, with streaming. streamed_s, whole_s: until the answer is
            complete, with and without. pairs, left_out: runs of one session and repeat of which both are valid, and others.
        valid: valid runs with and without streaming, in a pair or not.
    """

    deployment: str
    workload: str
    axis: str
    level: float
    prompt: int
    output: int
    first_s: float | None
    streamed_s: float | None
    whole_s: float | None
    pairs: int
    left_out: int
    valid: tuple[int, int]


def length_costs(runs: pl.DataFrame) -> list[LengthCost]:
    """What a token costs in each family of workloads in which one length alone is swept.

    Args:
        runs: summary rows (`deployment`, `family`, `axis`, `level`, `prompt_fixed`, `output_fixed`, `ttft_p50_s`, `e2e_p50_s`,
            `valid`).
    """
    return [cost for kind in SWEPT for cost in _costs(runs, kind)]


def _costs(runs: pl.DataFrame, kind: Kind) -> Iterator[LengthCost]:
    x, other, y = SWEPT[kind]
    swept = runs.filter(
        (pl.col(x).drop_nulls().n_unique().over("deployment", "family", "axis", "level") >= FEWEST_POINTS)
        & (pl.col(other).drop_nulls().n_unique().over("family") == 1)
    )
    for _, group in swept.group_by("deployment", "family", "axis", "level", maintain_order=True):
        valid = group.filter("valid")
        measured = valid.drop_nulls([x, y])
        first = group.row(0, named=True)
        yield LengthCost(
            deployment=first["deployment"],
            workload=first["family"],
            axis=first["axis"],
            level=first["level"],
            kind=kind,
            lengths=(int(measured[x].min()), int(measured[x].max())) if measured.height else None,  # type: ignore[arg-type]
            measured=measured.height,
            valid=valid.height,
            runs=group.height,
            line=line(group.with_columns(milliseconds=pl.col(y) * 1000), x, "milliseconds"),
        )


def streamed_both_ways(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs of fixed lengths that were measured with and without streaming. Lengths of a distribution need not be the same."""
    fixed = runs.drop_nulls(["prompt_fixed", "output_fixed", "stream"])
    return fixed.filter(pl.col("stream").n_unique().over(ALIKE) == 2)


def streaming_gains(runs: pl.DataFrame) -> list[StreamingGain]:
    """What streaming changes for the reader, of each pair of workloads that are alike but for it.

    Only pairs of runs count of which both are valid: a run without its counterpart would set one side's median alone.

    Args:
        runs: summary rows (`stream`, `ttft_p50_s`, `e2e_p50_s`, `session`, `repeat`, `valid` and what pairs are alike in).
    """
    found = []
    for _, group in streamed_both_ways(runs).group_by(ALIKE, maintain_order=True):
        known = pl.col("valid").all().over(_PAIR) & (pl.col("stream").n_unique().over(_PAIR) == 2)
        paired = group.filter(known)
        first = group.filter("stream").row(0, named=True)
        streamed, whole = (paired.filter(pl.col("stream") == kind) for kind in (True, False))
        pairs = paired.select(_PAIR).n_unique()
        found.append(
            StreamingGain(
                deployment=first["deployment"],
                workload=first["workload"],
                axis=first["axis"],
                level=first["level"],
                prompt=first["prompt_fixed"],
                output=first["output_fixed"],
                first_s=_median(streamed, "ttft_p50_s"),
                streamed_s=_median(streamed, "e2e_p50_s"),
                whole_s=_median(whole, "e2e_p50_s"),
                pairs=pairs,
                left_out=group.select(_PAIR).n_unique() - pairs,
                valid=(group.filter("valid", "stream").height, group.filter("valid", ~pl.col("stream")).height),
            )
        )
    return found


def _median(runs: pl.DataFrame, column: str) -> float | None:
    value = runs[column].median()
    return None if value is None else float(value)  # type: ignore[arg-type]
