"""What a token of a prompt or an answer costs, and what streaming buys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from bench.statistics import FEWEST_POINTS, student_t
from bench.workloads.workload import ALIKE

Kind = Literal["prompt", "output"]
# Of each length that may vary: its column, that of the other, and that of the latency that it sets (s).
SWEPT: dict[Kind, tuple[str, str, str]] = {
    "prompt": ("prompt_fixed", "output_fixed", "ttft_p50_s"),
    "output": ("output_fixed", "prompt_fixed", "e2e_p50_s"),
}
_SWEEP = ("deployment", "family", "axis", "level")


@dataclass(frozen=True)
class LengthCost:
    """What a token costs: the latency over one length, all else alike.

    Attributes:
        kind: which length varies. `prompt` sets TTFT, `output` E2E latency. workload: the family whose lengths vary.
        lengths: the shortest and the longest of the valid runs that have the latency (tokens), which are `measured` of all `runs`.
        slope, slope_half, r_squared: of the least-squares line (ms a token), with half of its 95 % interval (Student's t, n − 2);
            None below three lengths that were measured.
    """

    deployment: str
    workload: str
    axis: str
    level: float
    kind: Kind
    lengths: tuple[int, int] | None
    measured: int
    runs: int
    slope: float | None = None
    slope_half: float | None = None
    r_squared: float | None = None


@dataclass(frozen=True)
class StreamingGain:
    """The same requests with and without streaming: medians of the valid runs (s); None where no run has one.

    Attributes:
        first_s: until there is something to read, with streaming. streamed_s, whole_s: until the answer is complete, with and without.
        valid: how many of the `runs` are.
    """

    deployment: str
    axis: str
    level: float
    prompt: int
    output: int
    first_s: float | None
    streamed_s: float | None
    whole_s: float | None
    valid: int
    runs: int


def swept(runs: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """The runs of families in which this length alone is swept, over three values or more at one load."""
    x, other, _ = SWEPT[kind]
    several = pl.col(x).drop_nulls().n_unique().over(_SWEEP) >= FEWEST_POINTS
    return runs.filter(several & (pl.col(other).drop_nulls().n_unique().over("family") == 1))


def length_costs(runs: pl.DataFrame) -> list[LengthCost]:
    """What a token costs in each sweep of a length.

    Args:
        runs: summary rows (`deployment`, `family`, `axis`, `level`, `prompt_fixed`, `output_fixed`, `ttft_p50_s`, `e2e_p50_s`,
            `valid`).
    """
    found = []
    for kind, (x, _, y) in SWEPT.items():
        for (deployment, family, axis, level), group in swept(runs, kind).group_by(_SWEEP, maintain_order=True):
            known = group.filter("valid").drop_nulls([x, y])
            ends = (int(known[x].min()), int(known[x].max())) if known.height else None  # type: ignore[arg-type]
            line = _line(known[x], 1000 * known[y]) if known[x].n_unique() >= FEWEST_POINTS else ()
            found.append(
                LengthCost(
                    str(deployment),
                    str(family),
                    str(axis),
                    float(level),
                    kind,
                    ends,
                    known.height,
                    group.height,
                    *line,
                )
            )
    return found


def _line(x: pl.Series, y: pl.Series) -> tuple[float, float, float]:
    """The slope of the line through the points, half of its interval, and the share of the variance that it explains."""
    import numpy as np  # noqa: PLC0415 - a tenth of a second that few need

    (slope, intercept), covariance = np.polyfit(x.cast(pl.Float64), y, 1, cov=True)
    left, whole = float(((y - intercept - slope * x) ** 2).sum()), float(((y - y.mean()) ** 2).sum())
    return float(slope), student_t(len(x) - 2) * float(covariance[0, 0]) ** 0.5, 1 - left / whole if whole else 0.0


def streamed_both_ways(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs of fixed lengths that were measured with and without streaming. Lengths of a distribution need not be the same."""
    fixed = runs.drop_nulls(["prompt_fixed", "output_fixed", "stream"])
    return fixed.filter(pl.col("stream").n_unique().over(ALIKE) == 2)


def streaming_gains(runs: pl.DataFrame) -> list[StreamingGain]:
    """What streaming changes for the reader, of workloads that are alike but for it.

    Args:
        runs: summary rows (`stream`, `ttft_p50_s`, `e2e_p50_s`, `valid` and what such workloads are alike in).
    """
    medians = streamed_both_ways(runs).group_by(ALIKE, maintain_order=True).agg(
        first_s=pl.col("ttft_p50_s").filter("valid", "stream").median(),
        streamed_s=pl.col("e2e_p50_s").filter("valid", "stream").median(),
        whole_s=pl.col("e2e_p50_s").filter(pl.col("valid") & ~pl.col("stream")).median(),
        valid=pl.col("valid").sum(),
        runs=pl.len(),
    )  # fmt: skip
    renamed = medians.rename({"prompt_fixed": "prompt", "output_fixed": "output"})
    return [StreamingGain(**row) for row in renamed.select(list(StreamingGain.__dataclass_fields__)).to_dicts()]
