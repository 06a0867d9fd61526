"""What a model of a search's first runs says of its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.predict.limit import limit_by_model
from bench.predict.sources import measured_run, shows_steps
from bench.predict.state import Limits
from bench.records.searches import ModelLimit
from bench.search.search import Measured
from bench.study import Slo

__all__ = ["by_model"]


def by_model(limits: Limits | None, slos: Sequence[Slo]) -> Callable[[Sequence[Measured]], ModelLimit | None]:
    """What `search` asks after some valid runs; an answer is kept, as a search that goes on asks again.

    Args:
        limits: that the scheduler obeys; None where they are not known, and a model says nothing.
    """
    kept: dict[tuple[str, ...], ModelLimit | None] = {}

    def asked(runs: Sequence[Measured]) -> ModelLimit | None:
        key = tuple(str(run.row["run"]) for run in runs)
        if key not in kept:
            kept[key] = None if limits is None else _said(runs, limits, slos)
        return kept[key]

    return asked


def _said(runs: Sequence[Measured], limits: Limits, slos: Sequence[Slo]) -> ModelLimit | None:
    known = [(run.row, run.requests) for run in runs if run.requests is not None and shows_steps(run.row)]
    calibrating = [found for row, requests in known if (found := measured_run(row, requests, limits))]
    try:
        return limit_by_model(calibrating, limits, slos)
    except (ArithmeticError, ValueError):  # a server that has no model is searched without one
        return None
