"""What speculative decoding accepts, and what that does to TPOT."""

from __future__ import annotations

import polars as pl

from bench.findings.tables import Tables
from bench.report.figure import alt, figure
from bench.report.theme import Span, load_panel, nothing_to_show, with_curve

_DRAFTED = (pl.col("spec_draft_tokens").fill_null(0) > 0) | pl.col("accepted_length").is_not_null()


@figure(
    "speculation",
    title="Acceptance of drafted tokens, and TPOT, against load",
    question="Does speculation make answers faster, and under which text and load?",
    reading="Acceptance is that of servers that speculate, in tokens a step where a server reports these alone. Verifying a draft "
    "takes longer than making a token: speculation pays where much is accepted, and other requests leave room for it.",
    judged="telemetry_valid",
)
def speculation(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Acceptance rate, or accepted length where no rate is known, beside TPOT P50: a point a run, a line a curve."""
    runs = with_curve(results, results.runs.with_columns(speculates=_DRAFTED.any().over("deployment")))
    if not runs["speculates"].any():
        return nothing_to_show("no server counts drafted tokens, or none was drafted")
    known = runs.filter("speculates").with_columns(valid=pl.col("counts_valid"))
    if known["acceptance_rate"].null_count() < known.height:
        accepted = load_panel(results, known, "acceptance_rate", "drafted tokens accepted", format=".0%", span=Span(0.0, 1.02))
    else:
        accepted = load_panel(results, known, "accepted_length", "tokens of a step that verifies a draft", format=".2f")
    tpot = load_panel(results, runs, "tpot_p50_s", "TPOT P50 (ms)", form=lambda value: value * 1000, drawn="tpot_p50_ms")
    return alt.concat(accepted, tpot, columns=2)
