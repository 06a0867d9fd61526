"""What the sections of a report show, as rows: a template names the columns of each table, and says what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.errors import count_text, shown_share
from bench.findings import accuracy, predicted, regions, trust, workers
from bench.findings import settings as setting_gain
from bench.findings.accuracy import graded, left_out
from bench.findings.answers import answers
from bench.findings.capacity import words as capacity
from bench.findings.capacity.curves import Curve
from bench.findings.classes import class_rows
from bench.findings.comparison import words as comparison
from bench.findings.comparison.compare import Comparison
from bench.findings.identical import same_answers
from bench.findings.levels import level_rows, shown_latencies, worker_rows
from bench.findings.streams import stream_notes
from bench.findings.tables import Tables
from bench.models.geometry import Geometry
from bench.parse.validity import failures, reason_texts, stopped
from bench.parse.workers import workers_of_runs
from bench.predict.calibration import ModelRecord, PredictedLoad
from bench.report.answer import Answer
from bench.runs.classes import class_names
from bench.runs.columns import METRICS
from bench.runs.deployment import DeploymentFacts
from bench.runs.sentences import between_text, latency_text, load_cell, load_text
from bench.statistics.percentiles import tail_text
from bench.study.config import Thresholds
from bench.study.slo import Slo, applying

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]
_MARKS = {"better": "▲ ", "better at some loads": "▲ ", "worse": "▼ ", "worse at some loads": "▼ "}
_INVALID = {(False, False): "✕ invalid: ", (False, True): "✕ invalid latencies: ", (True, False): "✕ invalid counts: "}
_MOST_CURVES = 12  # most curves of a first screen; convention


@dataclass(frozen=True)
class Cell:
    """A cell of a table. Attributes: value: what it sorts by. title: shown beside it. met: whether it is within its limit."""

    text: str
    value: float | None = None
    kind: str = "number"
    title: str | None = None
    met: bool = False


def cell(row: Row, column: Sequence[Any]) -> Cell:
    """The cell of a row. Args: column: its head, its key, and of numbers their format and a factor."""
    value = row.get(column[1])
    if len(column) > 2:
        if value is None:
            return Cell("–")
        return Cell((column[2] % (value * (column[3] if len(column) > 3 else 1))).replace("-", "−"), value)
    return value if isinstance(value, Cell) else Cell("–" if value is None else str(value), kind="text")


def _from(at: float | None, below: float | None, *, known: bool = True) -> Cell:
    """The lowest load at which something shows, and the highest at which it does not."""
    if at is None:
        return Cell("not seen" if known else "not known")
    return Cell(f"{at:g}" if below is None else f"{at:g} (not yet at {below:g})", at)


def _latency(value: float | None, met: bool | None, *, name: str = "", marked: bool = False) -> Cell:
    shown = latency_text(value) if value is None else f"{name}{latency_text(value)}"
    return Cell(f"{shown} ✕" if marked and met is False else shown, value, met=bool(met))


@dataclass(frozen=True)
class View:
    """A study as its report shows it.

    Attributes:
        facts: of its deployments. geometries: of models, by deployment.
    """

    results: Tables
    facts: Sequence[DeploymentFacts]
    thresholds: Thresholds
    geometries: Mapping[str, Geometry]

    @cached_property
    def runs(self) -> pl.DataFrame:
        return self.results.runs.sort("deployment", "workload", "level", "repeat", maintain_order=True)

    @cached_property
    def rows(self) -> Rows:
        """The runs, with why each is invalid and what failed in it, in words."""
        return [{**run, **_of_run(run)} for run in self.runs.to_dicts()]

    def often(self, key: str) -> list[str]:
        """Each text that runs have under `key`, with in how many of them it occurs."""
        found = trust.alike(text for run in self.rows for text in run[key])
        return [f"{text} ({count_text(count, 'run', of=len(self.rows))})" for text, count in found]

    @cached_property
    def curves(self) -> list[Curve]:
        return curves(self.results)

    @cached_property
    def answers(self) -> list[Answer]:
        return answers(self.results, self.curves)

    @cached_property
    def families(self) -> dict[str, str]:
        """Of each workload its family."""
        return dict(self.runs.select("workload", "family").iter_rows())

    def of_curves(self, rows: Iterable[Row]) -> Rows:
        """Rows of curves with their `family` and `curve`, their name."""
        return [
            {"family": self.families[row["workload"]], "curve": f"{row['deployment']} · {row['workload']}", **row}
            for row in rows
        ]

    @property
    def headline(self) -> Rows:
        return self.of_curves(headline(self.curves))

    @cached_property
    def judged(self) -> list[list[Slo]]:
        """The limits of each kind of load: of a class that none has, the table of levels would have dashes alone."""
        kinds = self.results.runs["classes"].unique(maintain_order=True)
        return [list(applying(self.results.decision.slos, class_names(classes))) for classes in kinds]

    @property
    def latencies(self) -> list[Slo]:
        """The percentiles in the table of levels."""
        return shown_latencies([slo for slo in self.results.decision.slos if any(slo in each for each in self.judged)])

    @property
    def levels(self) -> Rows:
        return [
            {
                **row,
                "load": _load(row),
                "invalid": not row["valid"],
                "valid": Cell(f"{row['valid']} of {row['runs']}", row["valid"]),
                **{
                    slo.name: _latency(value, met and math.isfinite(slo.limit_s))
                    for slo, (value, met) in zip(self.latencies, row["latencies"], strict=True)
                },
            }
            for row in self.of_curves(level_rows(self.results.runs, self.latencies))
        ]

    @property
    def classes(self) -> Rows:
        return [
            {
                **row,
                "load": _load(row),
                **{
                    name: _latency(value, met, name=f"{percentile} ", marked=True)
                    for name, (percentile, value, met) in zip(("ttft", "tpot", "e2e"), row["latencies"], strict=True)
                },
            }
            for row in self.of_curves(class_rows(self.results.runs, self.results.decision.slos))
        ]

    @property
    def accuracy(self) -> Rows:
        """What of a graded set each deployment solves at each load, beside the share of answers that are the baseline's."""
        results = self.results
        if results.grades is None:
            return []
        same = {
            (name, *(row[key] for key in ("workload", "axis", "level"))): row
            for name, each in results.comparisons.items()
            for row in each.answers
        }
        kv_tokens = dict(results.runs.select("deployment", "kv_tokens").iter_rows())
        points = {(row["deployment"], row["workload"]): row for row in results.points.iter_rows(named=True)}
        found = []
        for each in graded(results.runs, results.grades):
            alike = same.get((each.deployment, each.workload, each.axis, each.level), {})
            c_max = points.get((each.deployment, each.workload), {}).get("c_max")
            cells = [*accuracy.accuracy_cells(each), *accuracy.beside_cells(alike, kv_tokens.get(each.deployment), c_max)]
            found.append({**vars(each), "load": _load(vars(each)), **{str(i): Cell(*it) for i, it in enumerate(cells)}})
        return self.of_curves(found)

    @property
    def accuracy_meaning(self) -> str:
        """What the numbers on accuracy mean, and which tasks are left out; or why nothing is graded."""
        results = self.results
        if results.ungraded:
            return accuracy.ungraded_text(results.ungraded)
        if results.grades is None or results.grades.is_empty():
            return ""
        lost = accuracy.left_out_text(left_out(results.grades), results.grades["task"].n_unique())
        return f"{accuracy.MEANING} {lost}".rstrip()

    @property
    def settings(self) -> Rows:
        return [{**row, "load": _load(row)} for row in setting_gain.rows(self.results.analysis.findings.settings)]

    @cached_property
    def fleets(self) -> list[tuple[str, list[str], Rows]]:
        """Of each deployment with several workers what sets them apart in words, and what each had of the load."""
        known = self.results.runs.filter(pl.col("workers").is_not_null())
        found = []
        for name, apart in workers_of_runs(known, self.thresholds.scrape_gap_s).items():
            measured = [each for each in self.results.analysis.findings.efficiencies if each.fleet == name]
            said = [*map(workers.efficiency, measured), *workers.sentences(apart)]
            found.append((name, said, [{**row, "load": _load(row)} for row in worker_rows(known.filter(deployment=name))]))
        return found

    @property
    def operating(self) -> Rows:
        return self.of_curves(
            {
                **vars(curve.found),
                **curve.found.there,
                **curve.point,
                "curve": curve.name,
                "c_max": Cell(f"{curve.c_max} {curve.point['unit']}", curve.point["c_max"])
                if curve.point["c_max"] is not None
                else curve.c_max,
                "usable": _usable(curve.point),
                "ttft": _ttft(curve.found.there),
            }
            for curve in self.curves
            if curve.slos and curve.point
        )

    @property
    def sized(self) -> Rows:
        """What a peak takes of each curve, and what an instance should admit."""
        return self.of_curves(
            {
                **vars(curve.found),
                **curve.fleet,
                **(curve.fleet["cost"] or {}),
                **(curve.fleet["limits"] or {}),
                "curve": curve.name,
                "instances": Cell(f"{curve.fleet['instances']}{curve.at_most}", curve.fleet["instances"]),
                "gpus": Cell("unknown" if (gpus := curve.fleet["gpus"]) is None else count_text(gpus, curve.gpu), gpus),
            }
            for curve in self.curves
            if curve.fleet
        )

    @property
    def economics(self) -> Rows:
        within = {(curve.deployment, curve.workload): curve.found.there["profit_per_h"] for curve in self.curves}
        rows = self.results.analysis.findings.economics
        return self.of_curves({**row, "within": within[row["deployment"], row["workload"]]} for row in rows)

    @property
    def saturation(self) -> Rows:
        """Where each curve saturates, without workloads of swept lengths at a single load: they saturate nowhere."""
        swept = self.results.runs.filter(
            (pl.col("workload") != pl.col("family")) & (pl.col("level").n_unique().over("deployment", "workload") == 1)
        )
        known = self.results.saturation.join(swept, on=["deployment", "workload"], how="anti", maintain_order="left")
        knees = {(each.deployment, each.workload): each.knee for each in self.results.analysis.findings.curves}
        return [
            {
                **row,
                "full": _from(row["measured"], row["below"], known=row["cache_known"]),
                "knee": _from(knees.get((row["deployment"], row["workload"])), None),
                "queue": _from(row["queue"], row["queue_below"]),
                **{str(name): regions.turning_point(row, name) for name in regions.POINTS},
            }
            for row in self.of_curves(known.iter_rows(named=True))
        ]

    @property
    def baseline(self) -> str | None:
        return next(iter(self.runs.filter("baseline")["deployment"]), None)

    @property
    def compared(self) -> Rows:
        """The metrics of each comparison over all loads."""
        return [
            {"deployment": name, **cells}
            for name, found in self.results.comparisons.items()
            for cells in (
                [_effect(found, row) for row in found.overall.to_dicts()]
                or [{"metric": "no pair of runs whose latencies compare"}]
            )
        ]

    @property
    def beside_effects(self) -> list[tuple[str, list[str]]]:
        """By deployment, what failed, which answers are the same, and what else differs or could not be compared."""
        told = []
        for name, found in self.results.comparisons.items():
            differs = "; ".join(map(comparison.difference_text, found.differences))
            lost = ", ".join(f"{level['workload']} at {level['level']:g}" for level in found.uncompared)
            absent = ", ".join(str(METRICS[metric].title) for metric in found.absent) if found.matched else ""
            texts = [f"{name}: {comparison.failed_requests(found, row)}." for row in found.failures]
            texts += [f"{name}: {same_answers(found, row)}." for row in found.answers]
            texts += [f"{name} differs from {self.baseline} in {differs}."] if differs else []
            texts += [f"{name}: both sides measured {lost}, but no pair of their runs is valid and compares."] if lost else []
            texts += [f"{name}: no pair has {absent} on both sides."] if absent else []
            told += [(name, texts)] if texts else []
        return told

    @property
    def compared_notes(self) -> str:
        """That the baseline was measured again, and what stands before an estimate."""
        found = self.results.comparisons
        replicas = [name for name, each in found.items() if each.replica]
        again = (
            f" {self.baseline} was measured again as {', '.join(replicas)}, where any difference is chance." if replicas else ""
        )
        return f"{again} {comparison.ESTIMATED}" if any(each.estimates for each in found.values()) else again

    @property
    def models(self) -> Rows:
        models = self.results.calibration.models if self.results.calibration else ()
        return [
            {
                "deployment": model.deployment,
                "why_not": predicted.no_model(model),
                **{name: predicted.parameter_text(interval) for name, interval in model.parameters.items()},
                "reached": predicted.prompt_flops_text(model, self.geometries.get(model.deployment)),
                "residual": shown_share(model.residual),
                "noise": shown_share(model.run_noise),
                "judged": [
                    {"deployment": model.deployment, **dict(zip("abcdefgh", cells, strict=True))}
                    for cells in predicted.judgement_lines(model.judged)
                ],
            }
            for model in models
        ]

    @cached_property
    def spent(self) -> dict[tuple[str, str], str]:
        """Of each curve that has a model, by deployment and workload, where a request's time goes about its limit."""
        rows = self.runs.select("workload", "axis", pl.col("turns") > 1).unique(maintain_order=True).iter_rows()
        units = {name: AXES[axis].counted(conversations=turns) for name, axis, turns in rows}
        return {
            (model.deployment, each.workload): predicted.shares_text(load_text(each.level, units[each.workload]), each.shares)
            for model in (self.results.calibration.models if self.results.calibration else ())
            for each in _explained(self.results, model)
        }


def curves(results: Tables) -> list[Curve]:
    """The curves of a study, bursts last: what a decision can rest on comes first."""
    key = ("deployment", "workload")
    points, saturates = (
        {tuple(row[k] for k in key): row for row in table.iter_rows(named=True)}
        for table in (results.capacity, results.saturation)
    )
    found = []
    for each in results.analysis.findings.curves:
        at = (each.deployment, each.workload)
        name = " · ".join(at) if results.several_workloads else each.deployment
        found.append(
            Curve(name, each, points.get(at), saturates.get(at), results.analysis.causes.get(at), results.limits.get(at))
        )
    return sorted(found, key=lambda curve: curve.burst)


def headline(curves: Sequence[Curve]) -> Rows:
    """What each curve sustains, where its cache fills, and how many a peak takes; none where they would not fit a first screen."""
    limited = any(curve.slos for curve in curves)
    found = [
        {
            "curve": curve.name,
            "deployment": curve.deployment,
            "workload": curve.workload,
            "sustains": _sustained(curve, free=limited and not curve.slos) or None,
            "full": _full(curve) or None,
            "fleet": _fleet(curve) or None,
        }
        for curve in curves
    ]
    known = [row for row in found if row["sustains"] or row["full"] or row["fleet"]]
    return known if len(known) <= _MOST_CURVES else []


def _load(row: Row) -> Cell:
    """Requests in flight, requests/s, or times as fast."""
    return Cell(load_cell(row["level"], row["axis"], row.get("turns")), row["level"])


def _of_run(run: Row) -> dict[str, Any]:
    """What a run's row says beside its numbers; what cannot be trusted in a word, as a colour alone would not do."""
    mark = _INVALID.get((run["valid"], run["counts_valid"]), "")
    sent, p99, bound = f"{run['requests']}", run["ttft_p99_s"], run["ttft_p99_bound_s"]
    estimate = f"an estimate: n = {run['ttft_n']} carries no 99 % bound" if p99 is not None and bound is None else None
    failed = failures(run)
    lost = ("latency and throughput", run["valid"]), ("the server's counts", run["counts_valid"])
    return {
        "name": f"{mark}{run['deployment']}/{run['run']}",
        "invalid": bool(mark),
        "load": _load(run),
        "reasons": (reasons := reason_texts(run["reasons"])),
        "why": Cell("; ".join(reasons), kind="text wide"),
        "fault": ", ".join(run["faults"]),
        "lost": ", ".join(what for what, trusted in lost if not trusted),
        "failures": [failed] if failed else [],
        "notes": list(stream_notes(run)),
        "failed": Cell(f"{100 * run['failed_share']:.1f} %" if failed else "–", run["failed_share"] or 0, title=failed),
        "sent": Cell(
            sent if run["stopped_at_s"] is None else f"{sent} of {run['num_requests']}", run["requests"], title=stopped(run)
        ),
        "tail": Cell(tail_text(p99, bound), p99, title=estimate),
    }


def _sustained(curve: Curve, *, free: bool) -> str:
    """The highest load within the SLOs, of a search, or else the rate of the highest measured one. Args: free: no SLO limits it."""
    if (found := curve.searched) and found.why == "found":
        between = between_text(found.low or None, found.high, "{:.3g}")
        return _strong(f"{found.limit:.3g}", AXES[found.axis].short, between)
    point = curve.point
    if point and point["kind"] == "below" and capacity.too_close(point):
        return f"too close to tell at {load_text(point['missed_at'], point['unit'])}"
    if curve.burst or point is None or point["usable_rps"] is None:
        return ""
    between = between_text(point["usable_low"], point["usable_high"], "{:.3g}")
    return _strong(f"{point['usable_rps']:.3g}", "requests/s", between) + ", no SLO limits it" * free


def _full(curve: Curve) -> str:
    row = curve.saturation
    if row is None or row["measured"] is None or not AXES[row["axis"]].requests:
        return ""
    return _strong(f"{row['measured']:g}", "in flight", "" if row["below"] is None else f"not at {row['below']:g}")


def _fleet(curve: Curve) -> str:
    fleet = curve.fleet
    if not fleet or not fleet["instances"]:
        return ""
    return _strong(
        f"{fleet['instances']:,d}", "instances", between_text(fleet["instances_least"], fleet["instances_most"], "{:.3g}")
    )


def _strong(value: str, unit: str, between: str) -> str:
    return f"**{value}** {unit}" + (f" ({between})" if between else "")


def _usable(point: Row) -> Cell:
    if point["usable_rps"] is None:
        return Cell("–")
    low, high = ("not established" if end is None else f"{end:.3g}" for end in (point["usable_low"], point["usable_high"]))
    return Cell(f"{point['usable_rps']:.3g} ({low} to {high})", point["usable_rps"], "text")


def _ttft(there: Row) -> Cell:
    median = "" if there["ttft_p50_s"] is None else f"{there['ttft_p50_s']:.3f}, "
    return Cell(median + tail_text(there["ttft_p99_s"], there["ttft_p99_bound_s"]), there["ttft_p50_s"])


def _effect(found: Comparison, row: Row) -> dict[str, Any]:
    """The cells of a metric over all loads."""
    seen = "–" if row["could_see"] is None else comparison.size_text(row["could_see"])
    return {
        "metric": METRICS[row["metric"]].title,
        "difference": Cell(comparison.estimated_percent(found, row), row["ratio"]),
        "interval": Cell(comparison.interval_text(row["low"], row["high"]), row["low"]),
        "verdict": f"{_MARKS.get(row['verdict'], '')}{row['verdict']}",
        "could_see": Cell(seen, row["could_see"]),
        "levels": row["levels"],
        "sessions": row["sessions"],
    }


def _explained(results: Tables, model: ModelRecord) -> list[PredictedLoad]:
    """Of each curve the predicted load that is nearest to C_max, or else to the load that misses, or to the highest measured one."""
    known = {
        row["workload"]: row["c_max"] or row["missed_at"]
        for row in results.points.filter(deployment=model.deployment).to_dicts()
    }
    highest = dict(results.runs.filter(deployment=model.deployment).group_by("workload").agg(pl.col("level").max()).iter_rows())
    found = []
    for workload in dict.fromkeys(each.workload for each in model.predicted):
        top = highest.get(workload, 0.0)
        curve = [each for each in model.predicted if each.workload == workload and not each.doubts and each.level <= top]
        if curve:
            at = known.get(workload) or top
            found.append(min(curve, key=lambda each: abs(each.level - at)))
    return found
