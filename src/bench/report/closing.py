"""What a workflow says last: whether there was anything to show, and if not, why."""

from __future__ import annotations

from collections import Counter

import polars as pl

__all__ = ["closing_words"]

_REASONS = 5  # named at most
_MEND = (
    "Most often something else ran on this machine; `.venv/bin/bench discard --invalid` and the same make once more measure them "
    "again. Both take --configfile for a study that is not config/config.yaml."
)


def closing_words(runs: pl.DataFrame, *, figures: int) -> list[str]:
    """Lines to end with; none where every run is valid and something was drawn.

    Where no run is valid the reasons are named, the most frequent first: the figures are there, and show nothing that holds.

    Args:
        runs: the summary table, with `valid` and `reasons`. figures: how many files of figures there are.
    """
    invalid = runs.filter(~pl.col("valid"))
    lines = []
    if not figures:
        lines.append("No figure: these runs answer no figure's question (most need two levels of load). The report lists them.")
    if invalid.height and invalid.height == runs.height:
        lines.append(f"Nothing to show: 0 of {runs.height} runs are valid. The report and the figures are kept, and mark them.")
        counts = Counter(reason for reasons in invalid["reasons"] for reason in reasons)
        lines += [f"    {reason} ({count} of {runs.height} runs)" for reason, count in counts.most_common(_REASONS)]
        if len(counts) > _REASONS:
            lines.append(f"    and {len(counts) - _REASONS} more reasons: `.venv/bin/bench runs`")
        lines.append(_MEND)
    elif invalid.height:
        lines.append(
            f"{invalid.height} of {runs.height} runs are invalid: the report and `.venv/bin/bench runs` say why. {_MEND}"
        )
    return lines
