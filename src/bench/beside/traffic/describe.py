"""What a log says of its traffic, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.beside.traffic.arrivals import Burstiness, Window, burstiness, hours, windows
from bench.beside.traffic.lengths import Fit, correlation, fitted, percentiles, shared_share
from bench.beside.traffic.log import Floats, Log


@dataclass(frozen=True)
class Lengths:
    """Lengths of prompts or of answers (tokens).

    Attributes:
        percentiles: with `min`, `max` and `mean`. fit: None where nothing can be fitted.
    """

    percentiles: dict[str, float]
    fit: Fit | None


@dataclass(frozen=True)
class Concurrency:
    """Requests in flight. Attributes: mean: over time. most: at any moment. requests: how many have a known duration."""

    mean: float
    most: int
    requests: int


@dataclass(frozen=True)
class Described:
    """A log's traffic.

    Attributes:
        requests: how many. span_s: from the first to the last. rate: requests/s, None where all came at once. windows, burstiness,
            hours: as `arrivals` has them. prompts, outputs: lengths. correlation: of both, by ranks; None where one is
            constant. concurrency: None where durations are not known.
        shared: share of the prompts' characters that an unbounded prefix cache would find, by blocks (0–1); None without texts.
    """

    requests: int
    span_s: float
    rate: float | None
    windows: Sequence[Window]
    burstiness: Burstiness | None
    hours: Sequence[float | None] | None
    prompts: Lengths
    outputs: Lengths
    correlation: float | None
    concurrency: Concurrency | None
    shared: float | None


def describe(log: Log) -> Described:
    """All that a log says."""
    return Described(
        requests=log.count,
        span_s=log.span_s,
        rate=log.rate,
        windows=windows(log),
        burstiness=burstiness(log),
        hours=hours(log),
        prompts=Lengths(percentiles(log.prompt_tokens), fitted(log.prompt_tokens)),
        outputs=Lengths(percentiles(log.output_tokens), fitted(log.output_tokens)),
        correlation=correlation(log.prompt_tokens, log.output_tokens),
        concurrency=_concurrency(log.arrival_s, log.duration_s),
        shared=None if log.texts is None else shared_share(log.texts),
    )


def _concurrency(arrival_s: Floats, duration_s: Floats | None) -> Concurrency | None:
    known = np.zeros(0, dtype=bool) if duration_s is None else duration_s >= 0
    if duration_s is None or not known.any():
        return None
    begin, end = arrival_s[known], arrival_s[known] + duration_s[known]
    moments = np.concatenate([end, begin])
    # Of one moment, ends come first, but not before their own beginning: a clock of whole seconds shows short requests so.
    turns = np.concatenate([np.where(end > begin, 0, 2), np.ones(len(begin), dtype=np.int64)])
    steps = np.concatenate([-np.ones(len(end), dtype=np.int64), np.ones(len(begin), dtype=np.int64)])
    most = int(steps[np.lexsort((turns, moments))].cumsum().max())
    over = float(end.max() - begin.min())
    return Concurrency(float(duration_s[known].sum()) / over if over else float(most), most, int(known.sum()))
