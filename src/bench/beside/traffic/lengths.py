"""What a log says of its traffic: how requests arrive, how long prompts and answers are, and how both go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.beside.traffic.arrivals import Burstiness, Window, burstiness, hours, windows
from bench.beside.traffic.log import Log, Whole

_PERCENTILES = (10, 25, 50, 75, 90, 95, 99)  # those of lengths that are printed; convention


@dataclass(frozen=True)
class Described:
    """A log's traffic.

    Attributes:
        requests: how many. span_s: from the first to the last. rate: requests/s, None where all came at once. windows, burstiness,
            hours: as `arrivals` has them. prompts, outputs: percentiles of lengths. correlation: of both, by ranks; None where one is
            constant.
    """

    requests: int
    span_s: float
    rate: float | None
    windows: Sequence[Window]
    burstiness: Burstiness | None
    hours: Sequence[float | None] | None
    prompts: dict[str, float]
    outputs: dict[str, float]
    correlation: float | None


def describe(log: Log) -> Described:
    """All that a log says."""
    return Described(
        requests=log.count,
        span_s=log.span_s,
        rate=log.rate,
        windows=windows(log),
        burstiness=burstiness(log),
        hours=hours(log),
        prompts=percentiles(log.prompt_tokens),
        outputs=percentiles(log.output_tokens),
        correlation=correlation(log.prompt_tokens, log.output_tokens),
    )


def percentiles(lengths: Whole) -> dict[str, float]:
    """Least, percentiles, highest and mean; percentiles are lengths that occur."""
    found = np.quantile(lengths, [0, *(p / 100 for p in _PERCENTILES), 1], method="inverted_cdf").tolist()
    names = ["min", *(f"p{p}" for p in _PERCENTILES), "max"]
    return dict(zip(names, map(float, found), strict=True)) | {"mean": float(lengths.mean())}


def correlation(prompt: Whole, output: Whole) -> float | None:
    """Spearman's rank correlation of prompts and answers; None where either is constant."""
    if min(np.ptp(prompt), np.ptp(output)) == 0:
        return None
    return float(pl.select(pl.corr(pl.Series(prompt), pl.Series(output), method="spearman")).item())
