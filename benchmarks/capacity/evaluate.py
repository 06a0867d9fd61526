"""What the project makes of each study: files in, one line of JSON out. It imports `bench` alone, of the checkout in PYTHONPATH.

python -P evaluate.py [--limits] FOLDER …       each with the files of `benchmarks.capacity.files`
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from bench.findings.capacity.points import operating_points
from bench.findings.causes import bottleneck, why
from bench.findings.sizing import OperatingPoint, sized
from bench.parse.run import parse_run
from bench.parse.table import aggregate
from bench.predict.relief import find_reliefs
from bench.study.config import Thresholds
from bench.study.slo import Slo, parse_slo

PEAK_RPS = 100.0


def evaluate(folder: Path, *, causes: bool) -> dict[str, Any]:
    """The operating point of the study in `folder`, also within two limits, its cause, and the fleet for a peak of 100 requests/s."""
    case = json.loads((folder / "server.json").read_text())
    slos = [_slo(case["limit"])]
    began = time.perf_counter()
    name = f"s{case['number']:03}"
    with tempfile.TemporaryDirectory() as scratch:
        results, summaries = Path(scratch), []
        deployed = results / "deployments" / name
        deployed.mkdir(parents=True)
        for file in ("launch.json", "deployment.json"):
            shutil.copy(folder / file, deployed / file)
        for run in sorted((folder / "runs").iterdir()):
            out = results / "runs" / name / run.name
            parse_run(run, requests=out / "requests.parquet", telemetry=out / "telemetry.parquet", wide=out / "metrics.csv",
                      summary=out / "summary.json")  # fmt: skip
            summaries.append(out / "summary.json")
        parsed = time.perf_counter()
        table = Path(scratch) / "summary.parquet"
        aggregate(
            summaries,
            expected=None,
            launches=[folder / "launch.json"],
            facts=[folder / "deployment.json"],
            thresholds=Thresholds(),
            slos=slos,
            summary=table,
            summary_csv=Path(scratch) / "summary.csv",
            timeseries=Path(scratch) / "timeseries.parquet",
        )
        runs = pl.read_parquet(table)
        points = operating_points(runs, slos)
        point = points.row(0, named=True)
        both = case["second"] and operating_points(runs, [*slos, _slo(case["second"])]).row(0, named=True)
        if not causes:
            return {"name": case["number"], "point": point, "both": both}
        reliefs = find_reliefs(runs, results, points, slos, code="")
    relief = reliefs.curves[0] if reliefs.curves else None
    found = bottleneck(runs, point, slos, relief)
    carried = OperatingPoint.of(point, runs.row(0, named=True))
    fleet = sized(carried, PEAK_RPS, slos=slos) if carried else {}
    return {
        "name": case["number"],
        "point": point,
        "both": both,
        "cause": found.cause,
        "why": why(found),
        "gains": {each.resource: (each.low, each.gain, each.high) for each in found.gains},
        "tied": found.tied,
        "no_model": relief.why_not if relief else None,
        "instances": fleet.get("instances"),
        "runs": len(runs),
        "valid": int(runs["valid"].sum()) if "valid" in runs.columns else None,
        "reasons": sorted({reason for reasons in runs["reasons"] for reason in reasons})[:5]
        if "reasons" in runs.columns
        else None,
        "parse_s": parsed - began,
        "analysis_s": time.perf_counter() - parsed,
    }


def _slo(limit: Mapping[str, Any]) -> Slo:
    return parse_slo(f"{limit['metric']}_p{100 * limit['share']:.0f}={1000 * limit['seconds']:g}ms")


def main() -> None:
    folders = [argument for argument in sys.argv[1:] if argument != "--limits"]
    for folder in map(Path, folders):
        try:
            result = evaluate(folder, causes=len(folders) == len(sys.argv) - 1)
        except Exception as error:  # the next server may be well
            result = {"name": int(folder.name[1:]), "error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(result, default=str), flush=True)


if __name__ == "__main__":
    main()
