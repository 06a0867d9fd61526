"""Planted studies of all kinds: simulated servers whose runs go through the whole pipeline, to a folder as `make figures` leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import vl_convert
from tests.support.planted import searched

from bench.cli import main
from bench.findings.analysis import Analysis, write_analysis
from bench.findings.registry import draw_figure, figures_of
from bench.findings.report import closing_lines, write_report
from bench.findings.tables import Tables
from bench.parse.run import parse_run
from bench.parse.table import aggregate
from bench.predict.calibration import (
    METRICS,
    Calibration,
    CurveRelief,
    Gain,
    Interval,
    MeasuredLoad,
    ModelRecord,
    PredictedLoad,
    Relief,
    Reliefs,
)
from bench.runs.files import write_record
from bench.runs.searches import SearchRecord
from bench.study.config import Thresholds
from bench.study.decision import Decision
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.slo import parse_slo
from benchmarks.capacity.files import config_of, simulated, write_deployment, write_run
from benchmarks.capacity.fleet import Case
from benchmarks.capacity.server import Server
from benchmarks.capacity.truth import Demand, Limit

__all__ = ["KINDS", "make"]

_CLOSED, _BURST = (2, 5, 8, 12, 20), (1, 4, 8, 14, 24)  # levels
_RATES = (0.4, 0.7, 0.9, 1.1, 1.4)  # shares of the capacity


Levels = tuple[float, ...]


@dataclass
class _Drawn:
    """A study: servers, and by workload how its requests arrive and at which levels.

    Attributes:
        at: of the SLO's limit to what the middle level of the first curve measured; None: no SLO. withheld: as of the simulator's
            cases. workers: of each deployment, behind a router. shape: keys of each workload beside its arrival. late: share of runs
            whose client was late. planted: what is not worked out but put in.
    """

    servers: list[Server]
    loads: dict[str, tuple[str, Levels]]
    repeats: int = 2
    requests: int = 80
    at: float | None = 1.2
    percentile: str = "p90"
    withheld: str = ""
    workers: int = 1
    shape: dict[str, Any] = field(default_factory=dict)
    late: float = 0.0
    peak: float | None = 200.0
    planted: set[str] = field(default_factory=set)

    @property
    def named(self) -> dict[str, Server]:
        """The servers by deployment."""
        return dict(zip(("alpha", "beta", "gamma"), self.servers, strict=False))


def _server(random: np.random.Generator, **changed: Any) -> Server:
    drawn = {"a_ms": random.uniform(5, 12), "b_ms": random.uniform(0.2, 1.0), "c_ms": 0.05, "d_ms": random.uniform(0.02, 0.2),
             "noise": random.uniform(0.02, 0.1), "slots": 24, "blocks": int(random.integers(60, 140)), "wire_ms": 0.3}  # fmt: skip
    return Server(**{**drawn, **changed})


def _rates(server: Server) -> Levels:
    each = (server.a_ms / 8 + server.b_ms) * 24 / 1000  # s a request of about eight at once
    return tuple(float(f"{share / each:.3g}") for share in _RATES)


def _chat(server: Server, random: np.random.Generator) -> dict[str, tuple[str, Levels]]:
    """A load that goes on, closed or open."""
    return {"chat": ("closed", _CLOSED) if random.random() < 0.6 else ("poisson", _rates(server))}


def _closed(*levels: int) -> dict[str, tuple[str, Levels]]:
    return {"chat": ("closed", levels or _CLOSED)}


_CLASSES = {"fast": {"share": 0.6}, "slow": {"share": 0.4, "prompt_tokens": 200, "output_tokens": 40}}
_SHORT: dict[str, tuple[str, Levels]] = {"short": ("burst", _BURST)}


def _barely(low: float, high: float, server: Server, random: np.random.Generator) -> _Drawn:
    at, percentile = float(random.uniform(low, high)), str(random.choice(["p90", "p95"]))
    return _Drawn(
        [server], _closed(*((8, 12, 20) if random.random() < 0.5 else (5, 8, 12))), at=at, percentile=percentile, repeats=1
    )


# Of each kind a server and its loads; those that differ most stand first, so that a few studies are of many kinds.
KINDS: dict[str, Callable[[Server, np.random.Generator], _Drawn]] = {
    "both": lambda s, r: _Drawn([s, _server(r)], _chat(s, r) | _SHORT, repeats=1),
    "barely met": lambda s, r: _barely(1.0, 1.04, s, r),
    "searched": lambda s, _: _Drawn([s], _closed(), planted={"search"}),
    "relieved": lambda s, r: _Drawn([s, _server(r)], _closed(), planted={"relief"}),
    "burst": lambda s, _: _Drawn([s], _SHORT, peak=None),
    "open": lambda s, r: _Drawn([s], {"chat": (str(r.choice(["poisson", "gamma", "constant"])), _rates(s))}),
    "single": lambda s, r: _Drawn([s], _closed(12), at=float(r.choice([0.1, 0.9, 1.5]))),
    "deployments": lambda s, r: _Drawn([s, _server(r), _server(r, blocks=400)], _SHORT, repeats=1, peak=None),
    "settings": lambda s, _: _Drawn([s, replace(s, slots=6)], _closed(2, 8, 20), planted={"baseline"}),
    "free": lambda s, r: _Drawn([s], _chat(s, r) | _SHORT, at=None, peak=None),
    "modelled": lambda s, r: _Drawn(
        [s], _chat(s, r), at=float(r.choice([0.1, 1.2])), planted={"model", *(["relief"] if r.random() < 0.5 else [])}
    ),
    "unmeasured": lambda s, r: _Drawn([s], _chat(s, r), withheld=str(r.choice(["all", "gauges"]))),
    "failing": lambda s, r: _Drawn([replace(s, failure_share=float(r.uniform(0.005, 0.05)))], _chat(s, r)),
    "refusing": lambda s, _: _Drawn([replace(s, most_in_flight=10)], _closed()),
    "invalid": lambda s, r: _Drawn([s], _chat(s, r), late=float(r.choice([0.3, 1.0]))),
    "few": lambda s, r: _Drawn([s], _chat(s, r), repeats=1, requests=24),
    "overloaded": lambda s, _: _Drawn([s], _closed(30, 40, 60), at=0.2),
    "barely missed": lambda s, r: _barely(0.96, 1.0, s, r),
    "lax": lambda s, _: _Drawn([replace(s, slots=6)], _closed(), at=5.0),
    "workloads": lambda s, r: _Drawn([s], _chat(s, r) | _SHORT),
    "classes": lambda s, r: _Drawn([s], _chat(s, r), requests=200, shape={"classes": _CLASSES}),
    "trace": lambda s, _: _Drawn([s], {"chat": ("trace", _RATES)}),
    "conversations": lambda s, r: _Drawn(
        [replace(s, blocks=200)], _chat(s, r), shape={"turns": {"count": 3, "new_tokens": 30, "think_s": 0.05}}
    ),
    "fleet": lambda s, r: _Drawn([s], _chat(s, r), workers=2),
}


def make(number: int, seed: int, folder: Path, *, figures: bool = True) -> str:
    """Write the `number`th study of a seed, with its outputs, into `folder`; its kind. Args: figures: whether they are drawn."""
    kind = list(KINDS)[number % len(KINDS)]
    random = np.random.default_rng([seed, number])
    drawn = KINDS[kind](_server(random), random)
    if any(arrival == "trace" for arrival, _ in drawn.loads.values()):
        drawn.shape["trace"] = str(_trace(drawn, folder / "trace.csv", random))
    summaries = _parsed(drawn, Plan.of(load_config(_config(drawn), source="planted")), folder, random)
    slos = _slos(drawn, summaries)
    prices = {"price_per_hour": 2.0, "price_per_million_tokens": 1.0} if drawn.peak else {}
    decision = Decision(slo=slos, peak_rps=drawn.peak, **prices)
    tables = {
        "summary": folder / "summary.parquet",
        "summary_csv": folder / "summary.csv",
        "timeseries": folder / "timeseries.parquet",
    }
    launches, facts = (
        [folder / "deployments" / name / file for name in drawn.named] for file in ("launch.json", "deployment.json")
    )
    aggregate(summaries, launches=launches, facts=facts, thresholds=Thresholds(), slos=decision.slos,
              baseline="alpha" if "baseline" in drawn.planted else None, **tables)  # fmt: skip
    results = Tables.read(tables["summary"], tables["timeseries"], decision)
    searches = tuple(_searches(results.runs, slos)) if "search" in drawn.planted else ()
    reliefs = Reliefs(curves=tuple(_reliefs(drawn, random))) if "relief" in drawn.planted else Reliefs()
    models = _models(results.runs) if "model" in drawn.planted else None
    analysis = Analysis(results.runs, decision, reliefs=reliefs.by_curve())
    write_record(reliefs, folder / "reliefs.json")
    write_analysis(analysis, folder / "analysis")
    results = Tables(results.runs, results.timeseries, None, decision, None, models, searches, analysis)
    names = figures_of(Plan.of(load_config(_config(drawn, decision), source="planted")).rows) if figures else []
    _write_outputs(results, folder, facts, names)
    return kind


def _write_outputs(results: Tables, folder: Path, facts: list[Path], figures: list[str]) -> None:
    """The report, the figures' specifications without their pictures, and the terminal's lines: the last ones, and a fleet's.

    Args:
        figures: names of those that are drawn; without any, no fleet is sized either.
    """

    (folder / "figures").mkdir()
    (folder / f".vega-{vl_convert.__version__}.js").write_text("")  # nothing is drawn
    specs: list[Path] = []
    for name in figures:
        specs += draw_figure(name, results, folder / "figures" / name, leave_out=lambda _: None, kinds=["json"])
    write_report(folder / "report.html", title="A planted study", results=results, specs=specs, facts=facts,
                 summary=folder / "report.md")  # fmt: skip
    lines = closing_lines(results, figures=len(specs))
    for row in results.points.filter(pl.col("usable_rps").is_not_null()).head(1 if figures else 0).iter_rows(named=True):
        slos = [word for text in results.decision.slo for word in ("--slo", text)]
        with redirect_stdout(StringIO()) as said:
            main(["fleet", f"{folder}:{row['deployment']}", "--workload", row["workload"], "--peak-rps", "200", *slos])
        lines += [f"{row['deployment']} · {row['workload']}: {line}" for line in said.getvalue().splitlines()]
    (folder / "terminal.txt").write_text("\n".join(lines))


def _parsed(drawn: _Drawn, plan: Plan, folder: Path, random: np.random.Generator) -> list[Path]:
    """The summaries of its runs, which are simulated, written and parsed."""
    order = sorted(plan.runs, key=lambda run: (run.repeat, random.random()))
    summaries, clock = [], 0.0
    for run in order:
        case = replace(_case(drawn.named[run.deployment.name]), withheld=drawn.withheld)
        target = folder / "runs" / run.deployment.name / run.name
        traces, planned = simulated(case, run, float(np.exp(random.normal(0, 0.03))), drawn.workers)
        clock = write_run(case, run, traces, planned, target, clock)
        if random.random() < drawn.late:
            _spoil(target / "run.json")
        files = {
            "requests": "requests.parquet",
            "telemetry": "telemetry.parquet",
            "wide": "metrics.csv",
            "summary": "summary.json",
        }
        parse_run(target, **{key: target / file for key, file in files.items()})
        summaries.append(target / "summary.json")
    for name, server in drawn.named.items():
        place = folder / "deployments" / name
        place.mkdir(parents=True)
        write_deployment(_case(server), plan.deployments[name], place, replicas=drawn.workers)
    return summaries


def _config(drawn: _Drawn, decision: Decision | None = None) -> dict[str, Any]:
    workloads: dict[str, Any] = {}
    ladders = []
    for load, (arrival, levels) in drawn.loads.items():
        axis = "concurrency" if arrival in ("closed", "burst") else "time_scale" if arrival == "trace" else "request_rate"
        axis = "users" if axis == "concurrency" and "turns" in drawn.shape else axis
        common = {"workload": load, "repeats": drawn.repeats, axis: list(levels)}
        ladders += [{"deployment": name, **common} for name in drawn.named]
        workloads[load] = {"arrival": arrival, **drawn.shape}
        if arrival != "trace":
            workloads[load] |= {"prompt_tokens": 100, "output_tokens": 24}
            workloads[load] |= {} if arrival == "burst" else {"num_requests": max(drawn.requests, int(2 * levels[-1]))}
        workloads[load] |= {"burstiness": 0.5} if arrival == "gamma" else {}
    decided = {"decision": decision.model_dump(exclude_defaults=True)} if decision else {}
    return {**config_of(ladders, drawn.named, workloads), **decided}


def _case(server: Server) -> Case:
    """As the simulator's own benchmark has one."""
    return Case(0, "any", server, Demand("closed", 100, 24), Limit("ttft", 0.9, 1.0), 1.0, 1.0, 1.0)


def _spoil(record: Path) -> None:
    """As if the client had been late."""
    content = json.loads(record.read_text())
    content["client"] |= {
        "schedule_delay_p99_s": 0.8,
        "schedule_delay_max_s": 1.0,
        "loop_lag_p99_s": 0.8,
        "loop_lag_max_s": 1.0,
    }
    record.write_text(json.dumps(content))


def _slos(drawn: _Drawn, summaries: list[Path]) -> list[str]:
    """Limits as far above or below what the middle level of the first curve measured as the study's kind has it."""
    if drawn.at is None:
        return []
    load, (_, levels) = next(iter(drawn.loads.items()))
    share, of = float(drawn.percentile[1:]) / 100, ("alpha", load, levels[len(levels) // 2])
    said = {path: json.loads(path.read_text()) for path in summaries}
    middle = [path for path, each in said.items() if (each["deployment"], each["workload"], each["level"]) == of]
    found = [pl.read_parquet(path.parent / "requests.parquet") for path in middle]
    limits = []
    for name in drawn.shape.get("classes", [None]):
        mine = pl.concat([each if name is None else each.filter(request_class=name) for each in found])
        for metric, column in (("ttft", "ttft_s"), ("tpot", "tpot_s")):
            limit = max(1.0, 1000 * drawn.at * float(mine[column].drop_nulls().quantile(share, "higher") or 0.1))
            limits.append(f"{name + '.' if name else ''}{metric}_{drawn.percentile}={limit:.4g}ms")
    return limits


def _trace(drawn: _Drawn, path: Path, random: np.random.Generator) -> Path:
    """Requests of all lengths that come at 0.7 of what the server can answer of the other workloads."""
    arrivals = np.cumsum(random.exponential(1 / _rates(drawn.servers[0])[1], drawn.requests))
    lengths = zip(random.integers(50, 150, drawn.requests), random.integers(12, 36, drawn.requests), strict=True)
    rows = [f"{at:.4f},{prompt},{output}" for at, (prompt, output) in zip(arrivals, lengths, strict=True)]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    return path


def _searches(runs: pl.DataFrame, slos: list[str]) -> Iterator[tuple[str, SearchRecord]]:
    """What a search would have found."""
    if runs["valid"].any():
        said = tuple(str(parse_slo(text)) for text in slos)
        yield "alpha", searched(name="chat_auto", workload="chat", slos=said, limit=8.0, low=7, high=10)


def _reliefs(drawn: _Drawn, random: np.random.Generator) -> Iterator[CurveRelief]:
    """Gains of which some are established, and some are not."""
    for name in drawn.named:
        gains = []
        for resource in ("kv", "sequences", "prefill", "decode"):
            gain = float(random.choice([1.0, random.uniform(1.0, 2.0)]))
            half = float(random.uniform(0.02, 0.6))
            gains.append(Gain(resource, gain, max(1.0, gain - half), gain + half))
        gains.sort(key=lambda each: (each.sure, each.gain), reverse=True)
        yield CurveRelief(deployment=name, workload="chat", digest="d", relief=Relief(tuple(gains), int(gains[0].sure)))


def _models(runs: pl.DataFrame) -> Calibration:
    """A model of each deployment, which predicts what was measured, give or take 10 %."""
    models = []
    for (name,), group in runs.group_by("deployment", maintain_order=True):
        rows = group.filter("valid").select("run", "workload", "axis", "level", *METRICS).to_dicts()
        at = {(row["workload"], row["level"]): row for row in rows}
        if rows:  # a load beyond the measured ones, as `calibrate` predicts it
            highest = max(rows, key=lambda row: row["level"])
            at["beyond", 0.0] = {**highest, "level": round(1.2 * highest["level"])}
        shares = {"queue": 0.25, "decode": 0.75}
        numbers = [{key: row[key] for key in METRICS if row[key] is not None} for row in (*at.values(), *rows)]
        places = [{key: row[key] for key in ("workload", "axis", "level")} for row in (*at.values(), *rows)]
        predicted = tuple(
            PredictedLoad(**place, numbers={key: Interval(value, 0.9 * value, 1.1 * value) for key, value in known.items()},
                          doubts=(), shares=shares)
            for place, known in zip(places[: len(at)], numbers, strict=False)
        )  # fmt: skip
        measured = tuple(
            MeasuredLoad(**place, run=row["run"], numbers=known)
            for place, known, row in zip(places[len(at) :], numbers[len(at) :], rows, strict=True)
        )
        step = {"step_s": Interval(0.002, 0.001, 0.003)}
        models.append(ModelRecord(deployment=str(name), digest="d", parameters=step, judged=(),
                                  predicted=predicted, measured=measured))  # fmt: skip
    return Calibration(models=tuple(models))
