"""Commands of production: what a study measured as alerts, a dashboard and limits, and whether production is that still."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.entry import command
from bench.cli.options import Json, MeasuredWorkload, OutputDir, option
from bench.cli.output import print_json, print_table
from bench.errors import BenchError


@command(
    "bench guard results:llama-fp8",
    "bench guard results:llama-fp8 --workload chat --output-dir guard/llama-fp8",
)
def guard(
    results: Annotated[
        Path,
        typer.Argument(metavar="[RESULTS]", help="A folder with a study's results, or one of its servers: results:llama-fp8."),
    ] = Path("results"),
    workload: MeasuredWorkload = None,
    output_dir: OutputDir = Path("guard"),
) -> None:
    """Writes rules.yaml (Prometheus), dashboard.json (Grafana), haproxy.cfg and keda.yaml, with the metric names of the server or fleet
    that was measured. What the study does not know is left out, and a line says so.
    """
    from bench.beside.production.guard import FILES, written
    from bench.beside.production.guard.measured import read_measured

    measured = read_measured(results, workload)
    print(f"{measured.deployment}: {measured.limit_text}.")
    texts, left = written(measured)
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        file = output_dir / name
        if name in texts:
            file.write_text(texts[name], encoding="utf-8")
            print(file)
        else:
            file.unlink(missing_ok=True)  # of an earlier study, whose limits these are not
    if left:
        print("\nLeft out:", *left, sep="\n- ")


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@command(
    "bench drifted --prometheus http://prometheus:9090",
    "bench drifted results:llama-fp8 --prometheus http://prometheus:9090 --last 6h --label job=vllm",
    after="Exit status: 0 where production is what was measured; 1 where it differs; 3 where that is not known; 2 for what you can "
    "fix. What a verdict means: docs/how-to/drifted.md.",
)
def drifted(
    prometheus: Annotated[str, option("URL", "The address of a Prometheus that scrapes the servers.")],
    results: Annotated[
        Path,
        typer.Argument(metavar="[RESULTS]", help="A folder with a study's results, or one of its servers: results:llama-fp8."),
    ] = Path("results"),
    workload: MeasuredWorkload = None,
    label: Annotated[
        list[str] | None,
        option("KEY=VALUE", "A label of production's series. Repeatable.", default="job=DEPLOYMENT, as of `bench guard`"),
    ] = None,
    last: Annotated[str, option("TIME", "How far back to look, such as 30m, 6h or 2d.")] = "1h",
    end: Annotated[
        str | None, option("MOMENT", "Look up to then, such as 2026-11-27T10:00Z.", None, "--to", default="now")
    ] = None,
    json: Json = False,
) -> None:
    """Compares production's traffic (load, lengths, prefix-cache hits), its latencies at the loads that it had, and its server with
    what a study measured, from the series that Prometheus kept. All are the engine's own counts but the study's lengths,
    which are the client's. Each difference has an interval and a verdict: same, differs or not known.
    """
    from dataclasses import asdict

    from bench.beside.production.curve import read_curve
    from bench.beside.production.drifted import DIFFERS, UNKNOWN, advice, conclusion, find_drift, rows
    from bench.beside.production.drifted.served import Window
    from bench.workloads.trace_times import date_s

    curve = read_curve(results, workload)
    moment = date_s(end)
    if end and moment is None:
        raise BenchError(f"--to {end}: give a date with a time of day, such as 2026-11-27T10:00Z.")
    until = time.time() if moment is None else float(moment)
    since = until - _length(last)
    window = Window(prometheus, _labels(label or [], curve.point["deployment"]), since, until)
    found = find_drift(curve, window)
    if json:
        print_json({**asdict(found), "verdict": found.verdict, "advice": list(advice(found)), "from": since, "to": until})
    else:
        times = " to ".join(datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%d %H:%M") for each in (since, until))
        print(f"{found.deployment}, {found.workload}: {found.instances} in production, {times} UTC.\n")
        print_table(rows(found), "<<<<<")
        print()
        print("\n".join([*conclusion(found), *advice(found)]))
    status = {DIFFERS: 1, UNKNOWN: 3}.get(found.verdict, 0)
    if status:
        raise SystemExit(status)


def _labels(given: list[str], deployment: str) -> dict[str, str]:
    """Labels that production's series have: those given, else the job's name, `deployment`."""
    if wrong := next((text for text in given if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", text)), None):
        raise BenchError(f"--label {wrong}: give NAME=VALUE, such as job=vllm.")
    return dict(text.split("=", 1) for text in given) or {"job": deployment}


def _length(text: str) -> float:
    """Seconds of a time such as `6h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if not found or not float(found[1]):
        raise BenchError(f"--last {text}: give a number above 0 with s, m, h, d or w, such as 6h.")
    return float(found[1]) * _UNITS_S[found[2]]
