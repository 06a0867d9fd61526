"""Evidence made by hand."""

from bench.findings.regions import Point
from bench.predict.calibration import Gain

CAUSE = {
    "level": 8.0, "unit": "requests in flight", "unsettled": "short", "needs_s": 50, "failed": 1200, "requests": 4000, "in_flight": 6.5, "said": "no",
    "metric": "ttft", "request_class": "chat", "value_s": 1.466, "limit_s": 0.5, "per_request": 0.123, "slots": 4,
    "running": 3.8, "waiting": 3, "free_tokens": 1600.0, "prompt_tokens": 3200.0, "request_bytes": 3.0 * 2**20,
    "gains": (Gain("decode", 1.8, 1.7, 2.0), Gain("sequences", 1.25, 1.0, 1.89), Gain("prefill", 1.04, 1.003, 1.1), Gain("kv", 1.0, 1.0, 1.02)),
    "tied": 1,
}  # fmt: skip


def cell(name, point):
    """A row of `regions` with one point."""
    return {"levels": 9, "top": 96.0, "noise": 0.02, **{f"{name}_{key}": value for key, value in vars(point).items()}}


TURNS = [
    Point("peak", 48.0, 40.0, 56.0), Point("peak", 4.0, None, 8.0), Point("left", 3.3127, 2.0, 4.0), Point("flat", 1.0), Point("below", high=8.0),
    Point("above", low=8.0), Point("unknown", low=8.0, why="noise"), Point("unknown", why="disorder"), Point("unknown", why="few"),
]  # fmt: skip
