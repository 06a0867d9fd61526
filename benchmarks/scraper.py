"""How punctual the scraper is and what it costs: against local servers that expose what a vLLM does, and one that says nothing.

Each case is the scraper's own process, as a run starts it. Servers run in a process of their own.
"""

from __future__ import annotations

import argparse
import gzip
import http.server
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from bench.statistics.percentiles import percentile
from benchmarks.exposition import first_series


def serve(pipe: Connection, series: int) -> None:
    """Answer every GET: /busy with `series` series, anything else with one."""
    lines = first_series(series)
    busy = ("\n".join(lines) + "\n").encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = busy if self.path == "/busy" else b"up 1\n"
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            self.wfile.write(head + body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_port)
    server.serve_forever()


def measure(urls: list[str], interval_s: float, duration_s: float) -> dict[str, Any]:
    """Jitter (sent − due; s) and time to answer of all regular scrapes, and the scraper's CPU share of one core."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telemetry.jsonl.gz"
        command = [sys.executable, "-m", "bench.measure.scraper", str(interval_s), str(path), *urls]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin  # noqa: S101
            assert process.stdout  # noqa: S101
            process.stdout.readline()
            scraper = psutil.Process(process.pid)
            before, begin = sum(scraper.cpu_times()[:2]), time.monotonic()  # what it took to start is left out
            time.sleep(duration_s)
            share = (sum(scraper.cpu_times()[:2]) - before) / (time.monotonic() - begin)
            process.stdin.close()
            process.wait()
        with gzip.open(path, "rt") as file:
            lines = [line for line in map(json.loads, file) if line["slot"] and "last" not in line]
        size = path.stat().st_size
    import polars as pl  # noqa: PLC0415 - its threads are no business of the measurement

    jitter = pl.Series([line["sent"] - line["due"] for line in lines])
    answer = pl.Series([line["received"] - line["sent"] for line in lines])

    def percentiles(values: pl.Series) -> dict[str, float]:
        points = {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": values.max()}
        return {name: round(1000 * float(value), 3) for name, value in points.items()}

    return {
        "endpoints": len(urls),
        "scrapes": len(lines),
        "slots_missed": len(urls) * max(line["slot"] for line in lines) - len(lines),
        "failed": sum("error" in line for line in lines),
        "jitter_ms": percentiles(jitter),
        "answer_ms": percentiles(answer),
        "cpu_share": round(share, 4),
        "bytes_per_scrape": round(size / len(lines)),
    }


def main() -> None:
    """One endpoint of many series, three of them at once, and one that says next to nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=350, help="series in a scrape, 425 at most (default: %(default)s)")
    parser.add_argument("--interval", type=float, default=0.2, help="seconds between scrapes (default: %(default)s)")
    parser.add_argument("--duration", type=float, default=30.0, help="seconds of each case (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, options.series), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    cases = {
        "busy": [f"{url}/busy"],
        "three endpoints": [f"{url}/busy", f"{url}/idle", f"{url}/idle?again"],
        "idle": [f"{url}/idle"],
    }
    result = {name: measure(urls, options.interval, options.duration) for name, urls in cases.items()}
    server.terminate()
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, one in result.items():
        jitter, answer = one["jitter_ms"], one["answer_ms"]
        print(
            f"{name:>15}: jitter P50 {jitter['p50']} P99 {jitter['p99']} max {jitter['max']} ms; answer P50 {answer['p50']} ms; "
            f"{one['cpu_share']:.1%} of a core; {one['scrapes']} scrapes, {one['slots_missed']} slots missed, {one['failed']} failed"
        )


if __name__ == "__main__":
    main()
