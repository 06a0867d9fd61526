"""What a results folder's raw tables show, worked out anew: nothing here is read from the code that writes sentences."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import polars as pl

__all__ = ["Curve", "Level", "Study"]

Row = dict[str, Any]
_PERCENTILE = re.compile(r"(ttft|tpot|e2e)_p(\d\d)_s")


@dataclass
class Level:
    """The valid runs of one load. Attributes: judged: of all of them together, each request's latencies (s) by metric, or that it failed."""

    load: float
    runs: list[Row]

    @cached_property
    def judged(self) -> list[Row]:
        return [request for run in self.runs for request in run["judged"] or ()]

    def sorted(self, metric: str) -> list[float]:
        """The metric of each request; infinite of those that failed."""
        values = (each[metric] if each["ok"] else math.inf for each in self.judged)
        return sorted(value for value in values if value is not None)

    def beyond(self, metric: str, limit: float) -> float | None:
        """The share of requests that fail or take longer; None where none shows it."""
        values = self.sorted(metric)
        return sum(value > limit for value in values) / len(values) if values else None

    def meets(self, slo: tuple[str, float, float]) -> bool | None:
        """Whether the percentile is within the limit."""
        metric, share, limit = slo
        beyond = self.beyond(metric, limit)
        return None if beyond is None else beyond <= 1 - share + 1e-9

    def values(self, column: str) -> list[float]:
        """What a column of the summary has at this load: of whole runs, and of steady windows."""
        if (found := _PERCENTILE.fullmatch(column)) and (known := self.sorted(found[1])):
            return [known[max(0, math.ceil(len(known) * int(found[2]) / 100 - 1e-9) - 1)]]
        steady = {"throughput_requests_per_s": "steady_requests_per_s", "throughput_tokens_per_s": "steady_tokens_per_s"}
        names = (column, steady.get(column, f"steady_{column}"))
        sets = [[run[name] for run in self.runs if run.get(name) is not None] for name in names]
        return [sum(each) / len(each) for each in sets if each]

    def highest(self, column: str) -> float | None:
        return max((run[column] for run in self.runs if run.get(column) is not None), default=None)


@dataclass
class Curve:
    """One workload on one deployment; its levels ascend. Attributes: slos: (metric, share, limit in s), by their text."""

    deployment: str
    workload: str
    rows: list[Row]
    levels: dict[float, Level] = field(default_factory=dict)
    slos: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def rate(self, load: float, column: str = "throughput_tokens_per_s") -> float | None:
        """Throughput at a load, between levels on a line."""
        known = [(level.load, level.values(column)[-1]) for level in self.levels.values() if level.values(column)]
        if not known or load > known[-1][0] or load < known[0][0]:
            return None
        for (low, below), (high, above) in zip(known, known[1:], strict=False):
            if low <= load <= high:
                return below + (above - below) * (load - low) / (high - low)
        return known[0][1]

    @property
    def highest(self) -> float:
        """The highest load that any run had."""
        return max(float(row["level"]) for row in self.rows)


def slo_of(text: str) -> tuple[str, float, float] | None:
    """An SLO as it is printed."""
    found = re.search(r"(TTFT|TPOT|E2E) P(\d\d) ≤ ([\d.]+) (ms|s)", text)
    return found and (found[1].lower(), int(found[2]) / 100, float(found[3]) * (0.001 if found[4] == "ms" else 1))


class Study:
    """A results folder's curves, and its tables by name, one row a curve.

    Args:
        folder: with `summary.parquet`, and `analysis` with what was found.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = pl.read_parquet(folder / "summary.parquet").sort("level").to_dicts()
        self.curves: dict[tuple[str, str], Curve] = {}
        for row in rows:
            key = (row["deployment"], row["workload"])
            curve = self.curves.setdefault(key, Curve(*key, []))
            curve.rows.append(row)
            if row["valid"]:
                curve.levels.setdefault(float(row["level"]), Level(float(row["level"]), [])).runs.append(row)
        self.runs = {(row["deployment"], row["run"]): row for row in rows}
        self.tables = {name: self._table(name) for name in ("capacity", "saturation", "regions", "causes")}
        for key, row in self.tables["capacity"].items():
            self.curves[key].slos = {text: slo for text in row["slos"] or () if (slo := slo_of(text))}
        reliefs = folder / "reliefs.json"
        found = json.loads(reliefs.read_text())["curves"] if reliefs.exists() else []
        self.gains = {(each["deployment"], each["workload"]): each["relief"]["gains"] for each in found if each["relief"]}
        self.several = {name for name, _ in self.curves if sum(name == other for other, _ in self.curves) > 1}
        names = sorted({*(name for name, _ in self.curves), *(workload for _, workload in self.curves)}, key=len, reverse=True)
        self._names = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})(?![\w-])")

    def _table(self, name: str) -> dict[tuple[str, str], Row]:
        path = self.folder / "analysis" / f"{name}.parquet"
        rows = pl.read_parquet(path).to_dicts() if path.exists() else []
        return {
            (row["deployment"], row["workload"]): row
            for row in rows
            if row.get("metric") in (None, "throughput_tokens_per_s") or name == "causes"
        }

    def mentions(self, text: str) -> Iterator[tuple[int, list[Curve]]]:
        """Where a text names curves, and which; of a name of several curves, all of them."""
        found = list(self._names.finditer(text))
        skip = False
        for one, two in zip_longest(found, found[1:]):
            if skip:
                skip = False
                continue
            close = two is not None and re.fullmatch(r"(?: · |, | with | \(|/| under |: )", text[one.end() : two.start()])
            if close and two and (one[0], two[0]) in self.curves:
                skip = True
                yield one.start(), [self.curves[one[0], two[0]]]
            else:
                named = [curve for curve in self.curves.values() if one[0] in (curve.deployment, curve.workload)]
                yield one.start(), named

    def curves_at(self, text: str, position: int, context: str = "") -> list[Curve]:
        """Which curve a claim at `position` is of: what is named last before it, or first after it, or in its heading; else all."""
        found = list(self.mentions(text))
        before = [curves for at, curves in found if at <= position]
        after = [curves for at, curves in found if at > position]
        return (
            before[-1:] or after[:1] or [curves for _, curves in self.mentions(context)][-1:] or [list(self.curves.values())]
        )[0]
