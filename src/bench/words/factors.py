"""What a factor study shows, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def correlation(strength: str, r: float) -> str:
    """Its strength with its sign, such as `high, negative`. Args: strength: as `bench.analysis.factors.correlations` has it."""
    return f"{strength}, negative" if r < 0 and strength != "none" else strength


def model_score(row: Mapping[str, Any]) -> str:
    """How well a metric is explained: R² with its interval. Args: row: of `bench.analysis.importance.importances`."""
    r2, low, high = (f"{row[key]:.2f}".replace("-", "−") for key in ("score", "score_low", "score_high"))
    return f"R² {r2} ({low} to {high}), n = {row['n']}"


def together(pairs: Sequence[tuple[str, str]]) -> str:
    """Which factors go together. Args: pairs: of `bench.analysis.factors.confounded`."""
    return f"cannot be separated: {'; '.join(f'{one} and {other}' for one, other in pairs)}"
