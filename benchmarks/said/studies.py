"""Planted studies of all kinds: simulated servers whose runs go through the whole pipeline, to a folder as `make figures` leaves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import vl_convert

from bench.aggregate import aggregate
from bench.analyse import analyse, write_analysis
from bench.figures import Results, figure_names
from bench.figures import save as saving
from bench.figures.charts import fleet
from bench.parse import parse_run
from bench.records.calibration import METRICS, Calibration, Interval, MeasuredLoad, ModelRecord, PredictedLoad
from bench.records.deployment import DeploymentFacts, Hardware
from bench.records.files import write_record
from bench.records.launch import Launch, flags_of, settings_of
from bench.records.relief import CurveRelief, Gain, Relief, Reliefs
from bench.records.searches import SearchRecord
from bench.report import page, write_report
from bench.study import Decision, Plan, RunSpec, load_config, parse_slo
from bench.study.config import Thresholds
from bench.words.closing import closing_lines
from benchmarks.capacity.fleet import Case
from benchmarks.capacity.files import simulated, write_run
from benchmarks.capacity.server import Server
from benchmarks.capacity.truth import Demand, Limit

__all__ = ["KINDS", "make", "write_outputs"]

_STARTED = datetime(2026, 1, 1, tzinfo=UTC)
_CLOSED, _BURST, _RATES = (
    (2, 5, 8, 12, 20),
    (1, 4, 8, 14, 24),
    (0.4, 0.7, 0.9, 1.1, 1.4),
)  # levels; rates are shares of the capacity
_ARCHITECTURE = {"layers": 4, "hidden_size": 512, "heads": 4, "kv_heads": 4, "head_dim": 128, "intermediate_size": 1408,
                 "vocabulary": 1024, "context": 16384}  # fmt: skip
_environment = cache(page._environment)  # templates are compiled once for all studies


@dataclass
class _Drawn:
    """A study: its servers by deployment, and of each its curves by workload: how requests arrive, and at which levels.

    Attributes:
        at: of the SLO's limit to what the middle level of the first curve measured; None: no SLO.
    """

    servers: dict[str, Server]
    curves: dict[tuple[str, str], tuple[str, tuple[float, ...]]]
    repeats: int = 2
    requests: int = 80
    at: float | None = 1.2
    percentile: str = "p90"
    withheld: str = ""
    late: float = 0.0
    peak: float | None = 200.0
    planted: set[str] = field(default_factory=set)


def _server(random: np.random.Generator, **changed: Any) -> Server:
    drawn = {"a_ms": random.uniform(5, 12), "b_ms": random.uniform(0.2, 1.0), "c_ms": 0.05, "d_ms": random.uniform(0.02, 0.2),
             "noise": random.uniform(0.02, 0.1), "slots": 24, "blocks": int(random.integers(60, 140)), "wire_ms": 0.3}  # fmt: skip
    return Server(**{**drawn, **changed})


def _drawn(kind: str, random: np.random.Generator) -> _Drawn:
    server = _server(random)
    arrival = "closed" if random.random() < 0.6 else "poisson"
    levels = _CLOSED if arrival == "closed" else _rates(server)
    chat = {("alpha", "chat"): (arrival, levels)}
    one = {"alpha": server}
    match kind:
        case "closed":
            return _Drawn(one, {("alpha", "chat"): ("closed", _CLOSED)})
        case "open":
            return _Drawn(one, {("alpha", "chat"): (str(random.choice(["poisson", "gamma", "constant"])), _rates(server))})
        case "burst":
            return _Drawn(one, {("alpha", "short"): ("burst", _BURST)}, peak=None)
        case "single":
            return _Drawn(one, {("alpha", "chat"): ("closed", (12,))}, at=float(random.choice([0.1, 0.9, 1.5])))
        case "workloads":
            return _Drawn(one, {**chat, ("alpha", "short"): ("burst", _BURST)})
        case "deployments":
            servers = {**one, "beta": _server(random), "gamma": _server(random, blocks=400)}
            return _Drawn(servers, {(name, "short"): ("burst", _BURST) for name in servers}, repeats=1, peak=None)
        case "both":
            servers = {**one, "beta": _server(random)}
            both = {
                (name, load): how
                for name in servers
                for load, how in (("chat", chat["alpha", "chat"]), ("short", ("burst", _BURST)))
            }
            return _Drawn(servers, both, repeats=1)
        case "settings":
            servers = {**one, "beta": _server(random, a_ms=server.a_ms, b_ms=server.b_ms, d_ms=server.d_ms, slots=6)}
            return _Drawn(servers, {(name, "chat"): ("closed", (2, 8, 20)) for name in servers}, planted={"baseline"})
        case "searched":
            return _Drawn(one, {("alpha", "chat"): ("closed", _CLOSED)}, planted={"search"})
        case "modelled":
            return _Drawn(one, chat, planted={"model", *(["relief"] if random.random() < 0.5 else [])})
        case "relieved":
            servers = {**one, "beta": _server(random)}
            return _Drawn(servers, {(name, "chat"): ("closed", _CLOSED) for name in servers}, planted={"relief"})
        case "unmeasured":
            return _Drawn(one, chat, withheld=str(random.choice(["all", "gauges"])))
        case "failing":
            failing = _server(random, failure_share=float(random.uniform(0.005, 0.05)))
            return _Drawn({"alpha": failing}, chat)
        case "refusing":
            return _Drawn({"alpha": _server(random, most_in_flight=10)}, {("alpha", "chat"): ("closed", _CLOSED)})
        case "invalid":
            return _Drawn(one, chat, late=float(random.choice([0.3, 1.0])))
        case "few":
            return _Drawn(one, chat, repeats=1, requests=24)
        case "overloaded":
            return _Drawn(one, {("alpha", "chat"): ("closed", (30, 40, 60))} if arrival == "closed" else {
                ("alpha", "chat"): (arrival, tuple(3 * rate for rate in levels))}, at=0.2)  # fmt: skip
        case "barely met" | "barely missed":
            return _Drawn(one, {("alpha", "chat"): ("closed", (8,) + (12, 20) if random.random() < 0.5 else (5, 8, 12))},
                          at=float(random.uniform(1.0, 1.04) if kind == "barely met" else random.uniform(0.96, 1.0)),
                          repeats=int(random.integers(1, 3)), percentile=str(random.choice(["p90", "p95"])))  # fmt: skip
        case "free":
            return _Drawn(one, {**chat, ("alpha", "short"): ("burst", _BURST)}, at=None, peak=None)
    raise KeyError(kind)


def _rates(server: Server) -> tuple[float, ...]:
    each = (server.a_ms / 8 + server.b_ms) * 24 / 1000  # s a request of about eight at once
    return tuple(float(f"{share / each:.3g}") for share in _RATES)


# Those that differ most stand first, so that a few studies are of many kinds.
KINDS = ("both", "barely met", "searched", "relieved", "burst", "open", "single", "deployments", "settings", "free", "modelled",
         "unmeasured", "failing", "refusing", "invalid", "few", "overloaded", "barely missed", "workloads", "closed")  # fmt: skip


def make(number: int, seed: int, folder: Path, *, figures: bool = True) -> str:
    """Write the `number`th study of a seed, with its outputs, into `folder`; its kind. Args: figures: whether they are drawn."""
    kind = KINDS[number % len(KINDS)]
    random = np.random.default_rng([seed, number])
    drawn = _drawn(kind, random)
    summaries = _parsed(drawn, folder, random)
    slos = _slos(drawn, summaries)
    prices = {"price_per_hour": 2.0, "price_per_million_tokens": 1.0} if drawn.peak else {}
    decision = Decision(slo=slos, peak_rps=drawn.peak, **prices)
    tables = {
        "summary": folder / "summary.parquet",
        "summary_csv": folder / "summary.csv",
        "timeseries": folder / "timeseries.parquet",
    }
    launches, facts = (
        [folder / "deployments" / name / file for name in drawn.servers] for file in ("launch.json", "deployment.json")
    )
    aggregate(summaries, launches=launches, facts=facts, thresholds=Thresholds(), slos=decision.slos,
              baseline="alpha" if "baseline" in drawn.planted else None, **tables)  # fmt: skip
    results = Results.read(tables["summary"], tables["timeseries"], decision)
    searches = tuple(_searches(results.runs, slos)) if "search" in drawn.planted else ()
    reliefs = Reliefs(curves=tuple(_reliefs(drawn, random))) if "relief" in drawn.planted else Reliefs()
    models = _models(results.runs) if "model" in drawn.planted else None
    analysis = analyse(results.runs, decision, reliefs=reliefs.by_curve(), searches=searches)
    write_record(reliefs, folder / "reliefs.json")
    write_analysis(analysis, folder / "analysis")
    write_outputs(Results(results.runs, results.timeseries, None, decision, None, models, searches, analysis), folder, facts,
                  figures=figures)  # fmt: skip
    return kind


def write_outputs(results: Results, folder: Path, facts: list[Path], *, figures: bool) -> None:
    """The report, the figures' specifications without their pictures, and the terminal's last lines."""

    def save(whole: dict[str, Any], stem: Path) -> list[Path]:
        stem.with_suffix(".json").write_text(json.dumps(whole))
        return [stem.with_suffix(".json")]

    (folder / "figures").mkdir()
    (folder / f".vega-{vl_convert.__version__}.js").write_text("")  # nothing is drawn
    specs: list[Path] = []
    # The fleet at other limits takes as long as all the rest.
    with patch.object(saving, "save_chart", save), patch.object(fleet, "steps_of", lambda _, slo: [slo.limit_s]):
        for name in figure_names() if figures else ():
            specs += saving.save_figure(name, results, folder / "figures" / name, leave_out=lambda _: None)
    with patch.object(page, "_environment", _environment):
        write_report(folder / "report.html", title="A planted study", results=results, specs=specs, facts=facts,
                     summary=folder / "report.md")  # fmt: skip
    (folder / "terminal.txt").write_text("\n".join(closing_lines(results.runs, figures=len(specs))))


def _parsed(drawn: _Drawn, folder: Path, random: np.random.Generator) -> list[Path]:
    """The summaries of its runs, which are simulated, written and parsed."""
    plan = Plan.of(load_config(_config(drawn), source="planted"))
    order = sorted(plan.runs, key=lambda run: (run.repeat, random.random()))
    summaries, clock = [], 0.0
    for run in order:
        case = _case(drawn, run)
        target = folder / "runs" / run.deployment.name / run.name
        target.mkdir(parents=True)
        trace, load = simulated(case, run, float(np.exp(random.normal(0, 0.03))))
        clock += write_run(case, run, trace, load, target, _STARTED + timedelta(seconds=clock)) + 3.0
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
    for name, server in drawn.servers.items():
        spec = plan.deployments[name]
        place = folder / "deployments" / name
        place.mkdir(parents=True)
        argv = ("serve", "m", "--max-num-seqs", str(server.slots), "--max-num-batched-tokens", str(server.budget))
        known = {"kv_blocks": server.blocks, "block_size": server.block_size, "kv_tokens": server.blocks * server.block_size}
        write_record(Launch(deployment=name, model="m", engine="none", device="cuda", tensor_parallel=1, gpus=1, digest=spec.digest,
                            plan=None, argv=argv, settings=settings_of(flags_of(argv))), place / "launch.json")  # fmt: skip
        write_record(DeploymentFacts(deployment=name, digest=spec.digest, engine_version="0.32.0", managed=True, command=("true",),
                                     environment={}, ready_s=1.0, prefix_caching=False,
                                     hardware=Hardware(cpu="simulated", cores=1, memory_bytes=2**34, gpus=()), **known), place / "deployment.json")  # fmt: skip
    return summaries


def _config(drawn: _Drawn) -> dict[str, Any]:
    workloads: dict[str, Any] = {}
    ladders = []
    for (name, load), (arrival, levels) in drawn.curves.items():
        axis = "concurrency" if arrival in ("closed", "burst") else "request_rate"
        ladders.append({"deployment": name, "workload": load, "repeats": drawn.repeats, axis: list(levels)})
        workloads[load] = {"arrival": arrival, "prompt_tokens": 100, "output_tokens": 24}
        if arrival == "gamma":
            workloads[load]["burstiness"] = 0.5
        if arrival != "burst":
            workloads[load]["num_requests"] = max(
                drawn.requests, *(int(2 * level) for level in levels if axis == "concurrency"), 0
            )
    return {
        "study": {"title": "planted", "ladders": ladders},
        "models": {"m": {"architecture": _ARCHITECTURE}},
        "engines": {"none": {"source": "command", "command": ["true"]}},
        "deployments": {name: {"model": "m", "engine": "none", "kv_cache_memory": "1GiB"} for name in drawn.servers},
        "workloads": workloads,
    }


def _case(drawn: _Drawn, run: RunSpec) -> Case:
    """As the simulator's own benchmark has one."""
    return Case(0, "any", drawn.servers[run.deployment.name], Demand("closed", 100, 24), Limit("ttft", 0.9, 1.0), 1.0, 1.0, 1.0,
                withheld=drawn.withheld)  # fmt: skip


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
    (name, load), (_, levels) = next(iter(drawn.curves.items()))
    level, share = levels[len(levels) // 2], float(drawn.percentile[1:]) / 100
    found = []
    for path in summaries:
        said = json.loads(path.read_text())
        if (said["deployment"], said["workload"], said["level"]) == (name, load, level):
            found.append(pl.read_parquet(path.parent / "requests.parquet"))
    limits = []
    for metric, column in (("ttft", "ttft_s"), ("tpot", "tpot_s")):
        reached = pl.concat([each.select(column) for each in found])[column].drop_nulls().quantile(share, "higher")
        limits.append(f"{metric}_{drawn.percentile}={max(1.0, 1000 * drawn.at * float(reached or 0.1)):.4g}ms")
    return limits


def _searches(runs: pl.DataFrame, slos: list[str]) -> Iterator[tuple[str, SearchRecord]]:
    """What searches would have found, by what the runs show."""
    rates = dict(runs.filter("valid").group_by("level").agg(pl.col("throughput_tokens_per_s").mean()).sort("level").iter_rows())
    if not rates:
        return
    best, alone = max(rates.values()), next(rate / load for load, rate in rates.items())
    found = {"throughput": next(load for load, rate in rates.items() if rate >= 0.95 * best),
             "equilibrium": max(load for load, rate in rates.items() if rate / load >= 0.8 * alone)}  # fmt: skip
    for target, limit in {"slo": 8.0, **found}.items():
        own = tuple(str(parse_slo(text)) for text in slos) if target == "slo" else ()
        yield "alpha", SearchRecord(name="chat_auto", workload="chat", digest="d", axis="concurrency", slos=own, precision=0.2, why="found",
                                    limit=limit, low=max(1, limit - 1), high=limit + 2, seconds=60, runs=(), target=target, top=best)  # fmt: skip


def _reliefs(drawn: _Drawn, random: np.random.Generator) -> Iterator[CurveRelief]:
    """Gains of which some are established, and some are not."""
    for name, load in drawn.curves:
        gains = []
        for resource in ("kv", "sequences", "prefill", "decode"):
            gain = float(random.choice([1.0, random.uniform(1.0, 2.0)]))
            half = float(random.uniform(0.02, 0.6))
            gains.append(Gain(resource, gain, max(1.0, gain - half), gain + half))
        gains.sort(key=lambda each: (each.sure, each.gain), reverse=True)
        yield CurveRelief(deployment=name, workload=load, digest="d", relief=Relief(tuple(gains), int(gains[0].sure)))


def _models(runs: pl.DataFrame) -> Calibration:
    """A model of each deployment, which predicts what was measured, give or take 10 %."""
    models = []
    for (name,), group in runs.group_by("deployment", maintain_order=True):
        rows = group.filter("valid").select("run", "workload", "axis", "level", *METRICS).to_dicts()
        at = {(row["workload"], row["level"]): row for row in rows}
        if rows:  # a load beyond the measured ones, as `calibrate` predicts it
            at["beyond", 0.0] = {**rows[-1], "level": round(1.2 * rows[-1]["level"])}
        shares = {"median": {"queue": 0.25, "decode": 0.75}, "slowest": {"queue": 1.0}}
        predicted = [
            PredictedLoad(**{key: row[key] for key in ("workload", "axis", "level")}, kv_peak=0.5, waiting=0.0, preemptions=0.0, doubts=(),
                          numbers={key: Interval(row[key], 0.9 * row[key], 1.1 * row[key]) for key in METRICS if row[key] is not None},
                          shares=shares)
            for row in at.values()
        ]  # fmt: skip
        measured = [
            MeasuredLoad(**{key: row[key] for key in ("run", "workload", "axis", "level")},
                         numbers={key: row[key] for key in METRICS if row[key] is not None})
            for row in rows
        ]  # fmt: skip
        models.append(ModelRecord(deployment=str(name), digest="d", parameters={"step_s": Interval(0.002, 0.001, 0.003)}, steps=400,
                                  runs=len(rows), judged=(), predicted=tuple(predicted), measured=tuple(measured)))  # fmt: skip
    return Calibration(models=tuple(models))
