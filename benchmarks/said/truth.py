"""What a results folder's raw tables show, worked out anew: nothing here is read from the code that writes sentences."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import polars as pl

__all__ = ["Curve", "Level", "Slo", "Study", "slo_of"]

Row = dict[str, Any]
Slo = tuple[
    str, float, float, str | None
]  # metric, share of the requests, limit (s), and of which class they are; None: of all
_STEADY = {"throughput_requests_per_s": "steady_requests_per_s", "throughput_tokens_per_s": "steady_tokens_per_s"}


def slo_of(text: str) -> Slo | None:
    """An SLO as it is printed."""
    found = re.search(r"(TTFT|TPOT|E2E) P(\d\d)(?: of ([\w.-]+))? ≤ ([\d.]+) (ms|s)", text)
    return (
        (found[1].lower(), int(found[2]) / 100, float(found[4]) * (0.001 if found[5] == "ms" else 1), found[3])
        if found
        else None
    )


def _judged(runs: list[Row]) -> list[Row]:
    return [request for run in runs for request in run["judged"] or ()]


def _latencies(requests: list[Row], metric: str) -> list[float]:
    """Ascending (s); infinite of requests that failed."""
    values = (each[metric] if each["ok"] else math.inf for each in requests)
    return sorted(value for value in values if value is not None)


@dataclass
class Level:
    """The valid runs of one load."""

    load: float
    runs: list[Row]

    @cached_property
    def steady(self) -> list[Row]:
        """The runs that became steady; bursts do not."""
        return [run for run in self.runs if run["steady_from_s"] is not None and run["steady_why"] != "short"]

    @cached_property
    def judged(self) -> list[Row]:
        """The requests of all runs, or of those that became steady: their latencies (s) by metric, and whether they are `ok`."""
        return _judged(self.steady or self.runs)

    def beyond(self, slo: Slo) -> float | None:
        """The share of requests that fail or take longer; None where none shows it."""
        metric, _, limit, of = slo
        values = _latencies([each for each in self.judged if of in (None, each.get("request_class"))], metric)
        return sum(value > limit for value in values) / len(values) if values else None

    def meets(self, slo: Slo) -> bool | None:
        """Whether no more requests take longer than may."""
        beyond = self.beyond(slo)
        return None if beyond is None else beyond <= 1 - slo[1] + 1e-9

    def values(self, column: str) -> list[float]:
        """A column of the summary: of latencies the percentile of all requests; else the mean, of whole runs and of steady windows.

        There may be two: with and without runs that did not become steady.
        """
        if found := re.fullmatch(r"(ttft|tpot|e2e)_p(\d\d)_s", column):
            sets = [_latencies(requests, found[1]) for requests in (self.judged, _judged(self.runs))]
            return [known[math.ceil(len(known) * int(found[2]) / 100 - 1e-9) - 1] for known in sets if known]
        each = [[run[name] for run in self.runs if run.get(name) is not None] for name in (column, _STEADY.get(column, column))]
        return [sum(values) / len(values) for values in each if values]


@dataclass
class Curve:
    """One workload on one deployment; its levels, of valid runs, ascend.

    Attributes:
        slos: by their text. further: upper end of its limit ÷ its highest load, where that lies beyond.
    """

    deployment: str
    workload: str
    rows: list[Row] = field(default_factory=list)
    levels: dict[float, Level] = field(default_factory=dict)
    slos: dict[str, Slo] = field(default_factory=dict)
    further: float = 1.0

    def rates(self, column: str) -> dict[float, float]:
        """Throughput by load."""
        return {level.load: values[-1] for level in self.levels.values() if (values := level.values(column))}

    def rate(self, load: float) -> float | None:
        """Tokens/s at a load, between levels on a line; None outside of them."""
        known = list(self.rates("throughput_tokens_per_s").items())
        for (low, below), (high, above) in pairwise(known):
            if low <= load <= high:
                return below + (above - below) * (load - low) / (high - low)
        return None

    @property
    def highest(self) -> float:
        """The highest load of any run."""
        return max(float(row["level"]) for row in self.rows)


class Study:
    """A results folder's curves, and its tables by name and curve.

    Args:
        folder: with `summary.parquet`, `reliefs.json` if any, and `analysis` with what was found.
    """

    def __init__(self, folder: Path) -> None:
        rows = pl.read_parquet(folder / "summary.parquet").sort("level").to_dicts()
        self.runs = {(row["deployment"], row["run"]): row for row in rows}
        self.curves: dict[tuple[str, str], Curve] = {}
        for row in rows:
            key, load = (row["deployment"], row["workload"]), float(row["level"])
            curve = self.curves.setdefault(key, Curve(*key))
            curve.rows.append(row)
            if row["valid"]:
                curve.levels.setdefault(load, Level(load, [])).runs.append(row)
        self.tables: dict[str, dict[tuple[str, str], Row]] = {}
        for name in ("capacity", "saturation"):
            table = pl.read_parquet(folder / "analysis" / f"{name}.parquet").to_dicts()
            of_mean = [row for row in table if row.get("metric") in (None, "throughput_tokens_per_s")]
            self.tables[name] = {(row["deployment"], row["workload"]): row for row in of_mean}
        for key, row in self.tables["capacity"].items():
            self.curves[key].slos = {text: slo for text in row["slos"] or () if (slo := slo_of(text))}
            self.curves[key].further = max(1.0, (row["high"] or 0.0) / self.curves[key].highest)
        reliefs = folder / "reliefs.json"
        found = json.loads(reliefs.read_text())["curves"] if reliefs.exists() else []
        self.gains = {(each["deployment"], each["workload"]): each["relief"]["gains"] for each in found if each["relief"]}
        names = sorted({name for key in self.curves for name in key}, key=len, reverse=True)
        self._names = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])")

    def _mentions(self, text: str) -> Iterator[tuple[int, list[Curve]]]:
        """Where a text names curves, and which: of a deployment or workload alone, all that have it."""
        joined = -1
        found = list(self._names.finditer(text))
        for one, two in zip_longest(found, found[1:]):
            if one.start() == joined:
                continue
            between = text[one.end() : two.start()] if two else ""
            if two and (one[0], two[0]) in self.curves and between in (" · ", ", ", " with ", " (", "/", ": "):
                joined = two.start()
                yield one.start(), [self.curves[one[0], two[0]]]
            else:
                yield one.start(), [curve for key, curve in self.curves.items() if one[0] in key]

    def curves_at(self, text: str, position: int, context: str = "") -> list[Curve]:
        """Which curves a claim at a position may be of: named last before it, or first after it, or in its headings; else all."""
        found = list(self._mentions(text))
        near = [curves for at, curves in found if at <= position][-1:] or [curves for _, curves in found][:1]
        return (near or [curves for _, curves in self._mentions(context)][-1:] or [list(self.curves.values())])[0]
