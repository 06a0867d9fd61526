"""What a token of a prompt or an answer costs, and what streaming buys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

from bench.analysis.lengths import Line, line

__all__ = ["FEWEST_LENGTHS", "LengthCost", "StreamingGain", "length_costs", "streaming_gains"]

FEWEST_LENGTHS = 3  # through fewer there is no line
Kind = Literal["prompt", "output"]
# Of each length that may vary: its column, that of the other, and that of the latency that it sets (s).
_SWEPT: dict[Kind, tuple[str, str, str]] = {
    "prompt": ("prompt_fixed", "output_fixed", "ttft_p50_s"),
    "output": ("output_fixed", "prompt_fixed", "e2e_p50_s"),
}
_ALIKE = ("deployment", "arrival", "axis", "level", "prompt_fixed", "output_fixed", "endpoint", "cache", "turns")


@dataclass(frozen=True)
class LengthCost:
    """What a token costs: the latency over one length, all else alike.

    Attributes:
        kind: which length varies. `prompt` sets TTFT, `output` E2E latency.
        lengths: the shortest and the longest with a valid run (tokens); None without any. valid, runs: how many.
        line: latency (ms) over length (tokens); None below three lengths with a valid run.
    """

    deployment: str
    workload: str
    level: float
    kind: Kind
    lengths: tuple[int, int] | None
    valid: int
    runs: int
    line: Line | None

    @property
    def known(self) -> Line | None:
        """The line, where its slope surely differs from 0."""
        return self.line if self.line and abs(self.line.slope) > self.line.slope_half else None


@dataclass(frozen=True)
class StreamingGain:
    """The same requests with and without streaming (s, medians of the valid runs); None where one side has no valid run.

    Attributes:
        first_s: until there is something to read, with streaming. streamed_s, whole_s: until the answer is complete, with and without.
        runs: valid ones of either side.
    """

    deployment: str
    level: float
    prompt: int
    output: int
    first_s: float | None
    streamed_s: float | None
    whole_s: float | None
    runs: tuple[int, int]


def length_costs(runs: pl.DataFrame) -> list[LengthCost]:
    """What a token costs in each family of workloads of which a ladder sweeps one length alone.

    Args:
        runs: summary rows (`deployment`, `family`, `axis`, `level`, `prompt_fixed`, `output_fixed`, `ttft_p50_s`, `e2e_p50_s`,
            `valid`).
    """
    return [cost for kind in _SWEPT for cost in _costs(runs, kind)]


def _costs(runs: pl.DataFrame, kind: Kind) -> Iterator[LengthCost]:
    x, other, y = _SWEPT[kind]
    swept = runs.filter(
        (pl.col(x).n_unique().over("deployment", "family", "axis", "level") >= FEWEST_LENGTHS)
        & (pl.col(other).n_unique().over("family") == 1)
    )
    for _, group in swept.group_by("deployment", "family", "axis", "level", maintain_order=True):
        valid = group.filter("valid").drop_nulls([x, y])
        first = group.row(0, named=True)
        yield LengthCost(
            deployment=first["deployment"],
            workload=first["family"],
            level=first["level"],
            kind=kind,
            lengths=(int(valid[x].min()), int(valid[x].max())) if valid.height else None,  # type: ignore[arg-type]
            valid=valid.height,
            runs=group.height,
            line=line(group.with_columns(milliseconds=pl.col(y) * 1000), x, "milliseconds"),
        )


def streaming_gains(runs: pl.DataFrame) -> list[StreamingGain]:
    """What streaming changes for the reader, of each pair of workloads that are alike but for it.

    Args:
        runs: summary rows (`stream`, `ttft_p50_s`, `e2e_p50_s`, `valid` and what pairs are alike in).
    """
    fixed = runs.drop_nulls(["prompt_fixed", "output_fixed", "stream"])
    paired = fixed.filter(pl.col("stream").n_unique().over(_ALIKE) == 2)
    found = []
    for _, group in paired.group_by(_ALIKE, maintain_order=True):
        first = group.row(0, named=True)
        streamed, whole = (group.filter(pl.col("valid") & (pl.col("stream") == kind)) for kind in (True, False))
        found.append(
            StreamingGain(
                deployment=first["deployment"],
                level=first["level"],
                prompt=first["prompt_fixed"],
                output=first["output_fixed"],
                first_s=_median(streamed, "ttft_p50_s"),
                streamed_s=_median(streamed, "e2e_p50_s"),
                whole_s=_median(whole, "e2e_p50_s"),
                runs=(streamed.height, whole.height),
            )
        )
    return found


def _median(runs: pl.DataFrame, column: str) -> float | None:
    value = runs[column].median()
    return None if value is None else float(value)  # type: ignore[arg-type]
