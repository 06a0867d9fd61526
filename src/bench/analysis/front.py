"""How long requests wait between a run's clients and its engines, as in a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.parse.stream import ONE_EACH, engine_is_ahead

_SAME = 0.01  # share by which client and engines may differ in the number of requests whose TTFT they average; convention
_LEAST_WAIT_S = 0.05  # shortest wait before the engines that is named (s); convention
# share of the clients' mean TTFT from which a wait is named; measured: docs/h200, above the 16 % that an honest API server adds to a
# burst of 400
_WAIT_SHARE = 0.25


def front_wait() -> pl.Expr:
    """How long requests wait before they reach the engines, in the mean (s), of a summary table's rows.

    The clients' mean TTFT less the engines' is the way's own time and the wait. The way is the least difference of the runs with the
    same deployment, workload and arrival, so the wait is too short where something waits in all of them. Null where that is one load
    alone, where engine and client did not average the same requests, where first tokens come together with later ones, and where the
    engine makes tokens faster than clients get them. Then the API server is the limit (`front_end` of `bench.analysis.advice`).
    """
    same = (pl.col("server_ttft_n") - pl.col("ttft_n")).abs() <= _SAME * pl.col("ttft_n")
    alone = pl.max_horizontal("tokens_per_chunk", "tokens_per_arrival").fill_null(1.0) <= ONE_EACH
    longer = pl.when(same & alone & (pl.col("ttft_n") > 0)).then(pl.col("ttft_mean_s") - pl.col("server_ttft_mean_s"))
    curve = ("deployment", "workload", "arrival")
    loads = pl.when(longer.is_not_null()).then("level").drop_nulls().n_unique().over(curve)
    ahead = engine_is_ahead().fill_null(value=False)
    return pl.when((loads > 1) & ~ahead).then(longer - longer.min().over(curve))


def long_wait(run: Mapping[str, Any]) -> float | None:
    """The mean wait before the engines (s) where it is worth naming. Args: run: a row of the summary table."""
    wait, ttft = run.get("front_wait_s"), run.get("ttft_mean_s")
    return None if wait is None or ttft is None or wait <= max(_LEAST_WAIT_S, _WAIT_SHARE * ttft) else wait
