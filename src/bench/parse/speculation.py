"""How much of what a server drafted it kept: speculative decoding, by the server's counters and by its answers."""

from __future__ import annotations

import polars as pl

from bench.parse.server import FEWEST_SCRAPES, gauges, rises, server_means
from bench.statistics.percentiles import percentile

_COUNTS = ("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens")
_SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}  # percentiles as shares; derived


def speculation_figures(telemetry: pl.DataFrame) -> dict[str, float | None]:
    """Acceptance between the first and the last of these scrapes; null where the server reports nothing, or drafted nothing.

    A server with a gauge alone, SGLang, has the mean of its values while requests ran. The value that stood at first is older than
    these scrapes, and is left out until it changes.

    Args:
        telemetry: the samples of the engine's endpoint.

    Returns:
        `acceptance_rate` (accepted ÷ drafted tokens, 0–1) and `accepted_length` (1 + accepted tokens ÷ drafts, tokens).

    Source: vLLM's vllm/v1/spec_decode/metrics.py (0.32), whose mean acceptance length counts the token that the model itself adds.
    """
    drafts, drafted, accepted = rises(telemetry, _COUNTS) if len(telemetry) else (None, None, None)
    rate = accepted / drafted if accepted is not None and drafted else None
    length = 1 + accepted / drafts if accepted is not None and drafts else None
    return {"acceptance_rate": rate, "accepted_length": _mean_length(telemetry) if drafts is None else length}


def _mean_length(telemetry: pl.DataFrame) -> float | None:
    shown = server_means(telemetry, "spec_accepted_length")
    fresh = shown.with_columns(changed=(pl.col("value") != pl.col("value").first()).cum_max()).filter("changed")
    busy = gauges(telemetry).filter((pl.col("gauge") == "running") & (pl.col("value") > 0))
    values = fresh.join(busy.select("scrape"), on="scrape").filter(pl.col("value") > 0)["value"]
    return float(values.mean()) if len(values) >= FEWEST_SCRAPES else None  # type: ignore[arg-type]


def answer_figures(ok: pl.DataFrame) -> dict[str, float | int | None]:
    """Acceptance of single answers, of those that carry what was drafted for them.

    Args:
        ok: answered requests: `draft_tokens`, `accepted_tokens`.

    Returns:
        `answer_acceptance_n` (answers; null where none carries the counts) and the percentiles of `answer_acceptance` (0–1).
    """
    rates = ok.filter(pl.col("draft_tokens") > 0).select(pl.col("accepted_tokens") / pl.col("draft_tokens")).to_series()
    rates = rates.drop_nulls().sort()
    figures: dict[str, float | int | None] = {"answer_acceptance_n": len(rates) or None}
    return figures | {f"answer_acceptance_{name}": percentile(rates, share) for name, share in _SHARES.items()}
