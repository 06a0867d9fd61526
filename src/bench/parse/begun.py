"""The requests with which a closed loop begins: they ask for what is left of their output, as if met on their way (`schedule`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.runs.latencies import parts_of


def is_natural(definition: Mapping[str, Any]) -> bool:
    """Whether answers end by themselves: those of all classes, or of none."""
    lengths = [part.get("output_tokens") for part in parts_of(definition)]
    return all(isinstance(length, Mapping) and length.get("distribution") == "natural" for length in lengths)


def is_begun(definition: Mapping[str, Any]) -> pl.Expr:
    """Whether a request, by its column `index`, is one of those with which a closed loop begins."""
    begins = (
        definition["arrival"] == "closed" and not (definition.get("turns") or is_natural(definition)) and "level" in definition
    )
    return pl.col("index") < int(definition["level"]) if begins else pl.lit(value=False)


def whole_requests(definition: Mapping[str, Any], requests: pl.DataFrame) -> pl.DataFrame:
    """The requests that are as long as the workload demands; all, where a closed loop has none but those it begins with."""
    whole = requests.filter(~is_begun(definition)) if "index" in requests.columns else requests
    return requests if whole.is_empty() else whole


def request_share(definition: Mapping[str, Any], requests: pl.DataFrame) -> pl.Expr:
    """Share of a whole request that each one is: 1, but for those with which a closed loop begins: their output ÷ the mean of the
    others, of its class where there are classes.

    Counted as whole ones they would raise the rate of a window of n latencies by up to 1 ÷ 2n: in a run of five, by a tenth.

    Args:
        requests: all of the run; `index`, `output_asked` (tokens), of classes `request_class`.
    """
    whole = whole_requests(definition, requests)
    usual = whole["output_asked"].mean()
    if not usual:
        return pl.lit(1.0)
    mean = pl.lit(usual)
    if definition.get("classes"):
        of_class = dict(whole.group_by("request_class").agg(pl.col("output_asked").mean()).iter_rows())
        mean = pl.col("request_class").replace_strict(of_class, default=usual, return_dtype=pl.Float64)
    return pl.when(is_begun(definition)).then(pl.col("output_asked") / mean).otherwise(1.0)
