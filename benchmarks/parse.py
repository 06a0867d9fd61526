"""How fast telemetry is parsed: ours against prometheus_client's parser, on the same file into the same frame.

The file is what a vLLM exposes, scraped on a schedule: half of the series move with every scrape, the rest stand still.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal
from prometheus_client.parser import text_string_to_metric_families

from bench.parse.scrapes import TELEMETRY_SCHEMA, read_scrapes, telemetry_table, wide_table
from benchmarks.exposition import first_series


def write_scrapes(path: Path, series: int, scrapes: int, moving: float) -> None:
    """A file of `scrapes` scrapes of `series` series, a share `moving` of which change from each to the next."""
    lines = first_series(series)
    generator = random.Random(0)  # noqa: S311 - no secret
    with gzip.open(path, "wt", compresslevel=1) as file:
        for slot in range(scrapes):
            for i, line in enumerate(lines):
                if not line.startswith("#") and generator.random() < moving:
                    head, _, value = line.rpartition(" ")
                    lines[i] = f"{head} {float(value) + generator.random()!r}"
            scrape = {"slot": slot, "endpoint": "http://127.0.0.1:8000/metrics", "sent": slot / 5, "received": slot / 5 + 0.01}
            file.write(json.dumps({**scrape, "text": "\n".join(lines) + "\n"}) + "\n")


def reference_table(path: Path) -> pl.DataFrame:
    """The same table by prometheus_client."""
    columns: dict[str, list[Any]] = {name: [] for name in TELEMETRY_SCHEMA}
    for scrape in read_scrapes(path):
        elapsed = round((scrape["sent"] + scrape["received"]) / 2, 6)
        for family in text_string_to_metric_families(scrape["text"]):
            for sample in family.samples:
                columns["scrape"].append(scrape["slot"])
                columns["elapsed_s"].append(elapsed)
                columns["endpoint"].append(scrape["endpoint"])
                columns["name"].append(sample.name)
                pairs = sorted(sample.labels.items())
                columns["labels"].append(",".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in pairs))
                columns["value"].append(sample.value)
    return pl.DataFrame(columns, schema=TELEMETRY_SCHEMA)


def measure(who: str, path: Path, table: Path) -> dict[str, float]:
    """Parse in this process: seconds to parse, seconds to make the wide form, peak of resident memory."""
    begin = time.perf_counter()
    frame = telemetry_table(path, 0.0) if who == "ours" else reference_table(path)
    parse_s = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin = time.perf_counter()
    wide_table(frame)
    wide_s = time.perf_counter() - begin
    frame.write_parquet(table)
    return {"samples": len(frame), "parse_s": parse_s, "wide_s": wide_s, "peak_rss_mib": peak}


def main() -> None:
    """Alternate both parsers in child processes, and compare what they made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=350, help="series in a scrape, 425 at most (default: %(default)s)")
    parser.add_argument("--scrapes", type=int, default=3000, help="scrapes: 5 a second (default: %(default)s, ten minutes)")
    parser.add_argument(
        "--moving", type=float, default=0.5, help="share of series that change each time (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each parser (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        who, path, table = options.child
        print(json.dumps(measure(who, Path(path), Path(table))))
        return
    measured: dict[str, list[dict[str, float]]] = {"ours": [], "reference": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telemetry.jsonl.gz"
        write_scrapes(path, options.series, options.scrapes, options.moving)
        for _ in range(options.repeats):
            for who, runs in measured.items():
                command = [sys.executable, "-m", "benchmarks.parse", "--child", who, str(path), f"{folder}/{who}.parquet"]
                runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        assert_frame_equal(
            pl.read_parquet(f"{folder}/ours.parquet"), pl.read_parquet(f"{folder}/reference.parquet"), check_exact=True
        )
        size = path.stat().st_size
    result: dict[str, Any] = {"file_mib": round(size / 2**20, 1), "samples": int(measured["ours"][0]["samples"])}
    for who, runs in measured.items():
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        result[who] = {
            "samples_per_s": round(median["samples"] / median["parse_s"]),
            **{key: round(median[key], 2) for key in ("parse_s", "wide_s", "peak_rss_mib")},
            "parse_s_range": [round(f(run["parse_s"] for run in runs), 2) for f in (min, max)],
        }
    result["speedup"] = round(result["ours"]["samples_per_s"] / result["reference"]["samples_per_s"], 1)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['samples']:,} samples in {result['file_mib']} MiB; both tables are equal")
    for who in measured:
        one = result[who]
        print(
            f"{who:>9}: {one['samples_per_s']:>9,} samples/s ({one['parse_s']} s), peak {one['peak_rss_mib']:.0f} MiB, "
            f"wide table {one['wide_s']} s"
        )
    print(f"  speedup: {result['speedup']}")


if __name__ == "__main__":
    main()
