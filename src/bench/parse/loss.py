"""What the loss of a worker did to a run. Definition: docs/reference/metrics.md."""

from __future__ import annotations

from typing import Any

import polars as pl

from bench.parse.recovery import WINDOW, back_from
from bench.parse.steady import FEWEST_GROWING, SteadyWindow, in_steady_state
from bench.records.run import Lost

__all__ = ["loss_figures"]


def loss_figures(lost: Lost | None, requests: pl.DataFrame, window: SteadyWindow | None) -> dict[str, Any]:
    """What followed the loss of a worker; nulls without one.

    The level that the other workers hold is that of the steady window after the loss. The fleet is at it at the first nine consecutive
    requests whose median TTFT (E2E where answers have no TTFT) and TPOT are at most the P90 of that window, and once errors have
    ended: of a fleet that is at its level, nine requests pass with a probability of 0.998 (`recovery`).

    Args:
        requests: the tidy table. window: of `steady_figures`, after the loss.

    Returns:
        `lost_at_s`, `lost_failed` (requests that were under way then, or came later, and failed), `lost_failed_share` (of all of
        those, 0–1), `lost_errors_s` (from the loss until the last of them ended; 0 where none failed, null where fewer than nine
        that came after it were answered), `lost_recovered` (false where requests pile up or errors do not end; null where the run is
        too short to tell, or fewer than 150 requests came) and `lost_recovery_s` (from the loss, null unless recovered).
    """
    names = ("at_s", "failed", "failed_share", "errors_s", "recovered", "recovery_s")
    if lost is None:
        return {f"lost_{name}": None for name in names}
    hit = requests.filter(pl.col("sent_s").is_null() | (pl.col("end_s").is_null()) | (pl.col("end_s") >= lost.at_s))
    failed = hit.filter(pl.col("outcome") != "ok")
    ends = failed.select(pl.coalesce("end_s", "sent_s", "scheduled_s"))["end_s"].drop_nulls()
    until = max([lost.at_s, *ends.to_list()])
    due = pl.coalesce("scheduled_s", "sent_s")
    later = requests.with_columns(due_s=due).filter(pl.col("due_s") >= lost.at_s)
    ended = failed.is_empty() or later.filter(pl.col("due_s") > until).height >= WINDOW
    recovered, recovery_s = _recovered(later, window, lost.at_s, until if ended else None)
    return dict(
        zip(
            (f"lost_{name}" for name in names),
            (
                lost.at_s,
                failed.height,
                failed.height / hit.height if hit.height else None,
                until - lost.at_s if ended else None,
                recovered,
                recovery_s,
            ),
            strict=True,
        )
    )


def _recovered(
    later: pl.DataFrame, window: SteadyWindow | None, at_s: float, errors_until_s: float | None
) -> tuple[bool | None, float | None]:
    """Whether the fleet came to its level, and when (s from the loss). Args: errors_until_s: None where they did not end."""
    if window is None or window.why in ("short", "unsure"):
        return None, None
    if window.why == "grows" or errors_until_s is None:
        return (False if later.height >= FEWEST_GROWING else None), None
    settled = later.filter(in_steady_state(window) & (pl.col("outcome") == "ok"))
    judged = {name: known for name in ("ttft_s", "tpot_s", "e2e_s") if len(known := settled[name].drop_nulls()) >= WINDOW}
    if "ttft_s" in judged:
        judged.pop("e2e_s", None)  # a share of it follows from how long the answers are
    if not judged:
        return None, None
    moments = [at_s, errors_until_s]
    for name, usual in judged.items():
        back = back_from(later, name, usual)
        if back is None:
            return False, None
        moments.append(back)
    return True, max(moments) - at_s
