"""Predicted and measured quantities in words."""

from __future__ import annotations

from bench.analysis.predictions import Prediction
from bench.errors import count_text, shown_share


def quantity(found: Prediction) -> str:
    """What is predicted, with its unit."""
    match found.quantity:
        case "kv_capacity":
            return "KV capacity (tokens)"
        case "saturation":
            return f"saturation with {found.workload} (requests)"
    return f"{found.quantity} of one request, {found.workload} (tokens/s)"


def comparison(found: Prediction) -> str:
    """How the measured value compares with the predicted one."""
    if found.ceiling:
        return f"{shown_share(found.ratio)} of the ceiling"
    if found.quantity == "saturation":
        return _between(found)
    off = found.ratio - 1
    return "the same" if off == 0 else f"{100 * off:+.1f} %"


def _between(found: Prediction) -> str:
    """Whether the prediction lies between the level that did not fill the cache and the one that did."""
    low, high, apart = found.below, found.measured, found.levels_apart
    if low is not None and low < found.predicted <= high:
        return f"within the levels: full at {high:g}, not at {low:g}"
    if not apart:
        return f"full at {high:g}"
    return f"{count_text(abs(apart), 'level')} {'above' if apart > 0 else 'below'}"
