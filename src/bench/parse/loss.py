"""What the loss of a worker did to a run. Definition: docs/reference/metrics.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from bench.parse.recovery import WINDOW, back_from
from bench.parse.steady import FEWEST_GROWING, SteadyWindow, in_steady_state
from bench.records.run import Lost

_FAILING = 0.01  # largest share of failed requests once errors have ended; convention: the default of `decision.failed_share`
# probability that requests which go on to fail look as if they did no longer, at each moment looked at; convention: over all moments
# it is larger, see docs/reference/metrics.md
_BY_CHANCE = 0.02
_STRAY = 1  # failed requests that say nothing of the others, however few follow; convention


def loss_figures(lost: Lost | None, requests: pl.DataFrame, window: SteadyWindow | None) -> dict[str, Any]:
    """What followed the loss of a worker; nulls without one.

    The level that the other workers hold is that of the steady window after the loss. The fleet is at it at the first nine consecutive
    requests whose median TTFT (E2E where answers have no TTFT) and TPOT are at most the P90 of that window, and once errors have
    ended: of a fleet that is at its level, nine requests pass with a probability of 0.998 (`recovery`).

    Args:
        requests: the tidy table. window: of `steady_figures`, after the loss.

    Returns:
        `lost_at_s`, `lost_failed` (requests that were under way then, or due later, and failed), `lost_failed_share` (of all of
        those, 0–1), `lost_errors_s` (from the loss until errors had ended, `_errors_end`; 0 where none failed, null where they went
        on or may have), `lost_recovered` (false where latencies never come to the level, and where requests pile up or errors go on
        in 150 requests or more after the loss; null where the run is too short to tell, or answers have no latency) and
        `lost_recovery_s`
        (from the loss, null unless recovered).
    """
    names = ("at_s", "failed", "failed_share", "errors_s", "recovered", "recovery_s")
    if lost is None:
        return {f"lost_{name}": None for name in names}
    requests = requests.with_columns(due_s=pl.coalesce("scheduled_s", "sent_s"))
    later = requests.filter(pl.col("due_s") >= lost.at_s)
    under_way = (pl.col("end_s") >= lost.at_s) | (pl.col("sent_s").is_not_null() & pl.col("end_s").is_null())
    hit = requests.filter((pl.col("due_s") >= lost.at_s) | under_way)
    failed = hit.filter(pl.col("outcome") != "ok")
    until, may_recur = _errors_end(later, failed, lost.at_s)
    recovered, recovery_s = (None, None) if may_recur else _recovered(later, window, lost.at_s, until)
    return dict(
        zip(
            (f"lost_{name}" for name in names),
            (
                lost.at_s,
                failed.height,
                failed.height / hit.height if hit.height else None,
                None if until is None else until - lost.at_s,
                recovered,
                recovery_s,
            ),
            strict=True,
        )
    )


def _errors_end(later: pl.DataFrame, failed: pl.DataFrame, at_s: float) -> tuple[float | None, bool]:
    """When errors ended (s since the run's start; None where they went on), and whether too few requests follow to say so.

    That is the first moment, of the loss and of the failures after it, from which nine requests in a row are answered, none that is
    under way fails, and few that follow do. Where requests failed after nine that were answered, as many have to follow as would
    hardly do so well if each still failed with the share of those.

    Args:
        later: due after the loss. failed: those of them, and of the ones under way, that failed.
    """
    if failed.is_empty():
        return at_s, False
    by_time = later.sort("due_s")
    due, ok = by_time["due_s"].to_numpy(), (by_time["outcome"] == "ok").to_numpy()
    begun = failed["due_s"].to_numpy()
    ended = failed.select(pl.coalesce("end_s", "due_s").clip(lower_bound=at_s)).to_series().to_numpy()
    since = may_recur = None
    for moment in np.unique([at_s, *ended]):
        first = np.searchsorted(due, moment, side="right")
        row, follow, more = ok[first : first + WINDOW], len(due) - first, int((begun > moment).sum())
        under_way = (begun <= moment) & (ended > moment)
        if len(row) < WINDOW or not row.all() or under_way.any():
            continue
        if more <= max(_STRAY, _FAILING * follow):
            recurring = 0.0 if since is None or since == first else float((~ok[since:first]).mean())
            if _at_most(more, follow, recurring) <= _BY_CHANCE:
                return float(moment), False
            may_recur = True
        since = first if since is None else since
    return None, bool(may_recur)


def _at_most(failures: int, requests: int, share: float) -> float:
    """The probability that so few of independent requests fail, if each fails with that probability (below 1); 0 where none is
    expected to. Summed from logarithms: of many requests the number of ways is beyond a float.
    """
    if share == 0:
        return 0.0

    def log(n: int) -> float:
        ways = math.lgamma(requests + 1) - math.lgamma(n + 1) - math.lgamma(requests - n + 1)
        return ways + n * math.log(share) + (requests - n) * math.log1p(-share)

    return math.fsum(math.exp(log(n)) for n in range(failures + 1))


def _recovered(
    later: pl.DataFrame, window: SteadyWindow | None, at_s: float, errors_until_s: float | None
) -> tuple[bool | None, float | None]:
    """Whether the fleet came to its level, and when (s from the loss). Args: errors_until_s: None where they did not end."""
    if errors_until_s is None or (window is not None and window.why == "grows"):
        return (False if later.height >= FEWEST_GROWING else None), None
    if window is None or window.why in ("short", "unsure"):
        return None, None
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
