"""`bench find` on servers of 0.2 to 500 requests/s: minutes, whether the interval holds the planted limit, and exit status.

    python -m benchmarks.find_scale                             # 40 searches on a simulated clock
    python -m benchmarks.find_scale --http --capacity 6.1 100   # `bench find` itself over HTTP, in real time

A server reads one prompt after the other, each in the same time, and writes answers side by side. Its limits are known: of a closed
loop by arithmetic, of random arrivals by two million of them. TTFT decides. The simulated clock counts the probe, reference loads and
runs.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.support.fake_server import fake_server

from bench.cli.commands.find.searching import status
from bench.search.placing import ROUND, Aim
from bench.search.probe import Probed, Reply, Send, probe
from bench.search.search import Budget, Measured, search
from bench.study.slo import parse_slo
from benchmarks.capacity.ladder import row_of
from benchmarks.harness import Referee, print_table
from benchmarks.search import FAILED, PRECISION

_TOKENS = 4
_ARRIVALS = 2_000_000
_MOST = 4096.0
_REFERENCE = 32, 4  # requests before each round, and how many of them at once
_NOISE = 0.01  # by which runs of one server differ
# of each capacity, the answers that are written at once
_WRITTEN = {0.2: 1, 0.5: 4, 1.0: 2, 2.0: 8, 6.1: 1, 15.0: 4, 40.0: 16, 100.0: 8, 250.0: 32, 500.0: 64}


@dataclass(frozen=True)
class Planted:
    """A server that reads one prompt after the other, and writes answers side by side.

    Attributes:
        capacity: prompts that it reads a second. written: answers that it writes at once when it is busy.
    """

    capacity: float
    written: float

    @property
    def read_s(self) -> float:
        """A prompt's time, without those before it."""
        return 1 / self.capacity

    @property
    def write_s(self) -> float:
        """From the first token to the last."""
        return self.written / self.capacity

    @property
    def limit_s(self) -> float:
        """TTFT's: a quarter of a second, or six prompts and a half."""
        return float(f"{max(0.25, 6.5 * self.read_s):.4g}")

    def most(self) -> int:
        """The most in flight of which each meets the limit: of a busy server, all are in line or being written."""
        return math.floor((self.limit_s + self.write_s) / self.read_s)

    def highest(self, share: float) -> float:
        """The highest rate at which that share meets the limit."""
        moments = np.cumsum(np.random.default_rng(7).exponential(1.0, _ARRIVALS))
        low, high = 0.0, self.capacity
        for _ in range(20):
            rate = (low + high) / 2
            met = np.mean(self.firsts(moments / rate) - moments / rate <= self.limit_s) >= share
            low, high = (rate, high) if met else (low, rate)
        return low

    def firsts(self, moments: np.ndarray, speed: float = 1.0) -> np.ndarray:
        """When each request's first token comes."""
        ahead = self.read_s / speed * np.arange(len(moments))
        firsts: np.ndarray = np.maximum.accumulate(moments - ahead) + ahead + self.read_s / speed
        return firsts

    def held(self, in_flight: int, count: int, speed: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """When each request of a closed loop is sent, and its first token comes."""
        sent, firsts = np.zeros(count), np.empty(count)
        for i in range(count):
            firsts[i] = max(sent[i], firsts[i - 1] if i else 0.0) + self.read_s / speed
            if i + in_flight < count:
                sent[i + in_flight] = firsts[i] + self.write_s / speed
        return sent, firsts


def closed_loop(server: Planted) -> Send:
    """The steps of a probe."""

    def send(in_flight: int, count: int, timeout_s: float) -> Sequence[Reply]:
        sent, firsts = server.held(in_flight, count)
        ends = np.minimum(firsts + server.write_s, sent + timeout_s)
        return [
            Reply(a, end, "ok" if end - a < timeout_s else "cut", {"ttft": first - a}, (first + server.write_s,))
            for a, first, end in zip(sent.tolist(), firsts.tolist(), ends.tolist(), strict=True)
        ]

    return send


@dataclass(frozen=True)
class Job:
    """A search. percentile: of TTFT, such as 99. minutes: it may take under load."""

    server: Planted
    held: bool
    percentile: int
    minutes: float

    @property
    def truth(self) -> float:
        """The planted limit."""
        return float(self.server.most()) if self.held else self.server.highest(self.percentile / 100)

    def told(self, low: float, high: float | None, seconds: float, code: int, runs: int) -> dict[str, Any]:
        """A row of the result."""
        truth, ends = self.truth, math.inf if high is None else high
        return {
            "capacity": self.server.capacity,
            "axis": "concurrency" if self.held else "request_rate",
            "percentile": self.percentile,
            "truth": truth,
            "low": low,
            "high": high,
            "holds": low <= truth * 1.005 and truth * 0.995 <= ends,
            "minutes": seconds / 60,
            "runs": runs,
            "exit": code,
        }


def simulated(job: Job) -> dict[str, Any]:
    """The search on a clock of its own."""
    server = job.server
    slo = parse_slo(f"ttft_p{job.percentile}={server.limit_s}s")
    aim = Aim([slo], FAILED, job.held, PRECISION, None, _MOST)
    draws = np.random.default_rng([job.percentile, round(10 * server.capacity)])
    clock, runs = 0.0, 0

    def begin(aim: Aim) -> Probed:
        nonlocal clock
        probed = probe(aim, closed_loop(server))
        clock += probed.seconds
        return probed

    def measure(load: float, count: int, _: int) -> Measured:
        nonlocal clock, runs
        speed = math.exp(draws.normal(0, _NOISE))
        if job.held:
            sent, firsts = server.held(int(load), count, speed)
        else:
            sent = np.cumsum(draws.exponential(1 / load, count))
            firsts = server.firsts(sent, speed)
        ends = firsts + server.write_s / speed
        frame = pl.DataFrame(
            {
                "index": range(count),
                "outcome": "ok",
                "sent_s": sent,
                "end_s": ends,
                "first_token_s": firsts,
                "last_token_s": ends,
                "ttft_s": firsts - sent,
                "tpot_s": server.write_s / (_TOKENS - 1),
                "e2e_s": ends - sent,
                "completion_tokens": _TOKENS,
                "token_times_s": [np.linspace(*each, _TOKENS).tolist() for each in zip(firsts, ends, strict=True)],
                "prompt_asked": 16,
                "output_asked": _TOKENS,
            }
        )
        if runs % ROUND == 0:
            clock += _REFERENCE[0] / min(server.capacity, _REFERENCE[1] / (server.read_s + server.write_s))
        runs += 1
        row = row_of(frame, "closed" if job.held else "poisson", load, count)
        clock += row["duration_s"]
        return Measured(row, (), speed * math.exp(draws.normal(0, 0.03)), round=str((runs - 1) // ROUND))

    found = search(aim, Budget(30, 60 * job.minutes), measure, begin=begin)
    answer = found.answer
    return job.told(answer.low, answer.high if math.isfinite(answer.high) else None, clock, status(found, None), runs)


def over_http(job: Job) -> dict[str, Any]:
    """`bench find` itself."""
    server, axis = job.server, "--concurrency" if job.held else "--request-rate"
    gap_s = server.write_s / (_TOKENS - 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        fake_server(first_s=server.read_s, gap_s=gap_s, pages={"/v1/models": '{"data": [{"id": "m"}]}'}) as running,
    ):
        running.line = asyncio.Lock()
        began = time.monotonic()
        load = ["--prompt-length", "16", "--output-length", str(_TOKENS), "--slo", f"ttft_p{job.percentile}={server.limit_s}s"]
        asked = [axis, *load, "--max-minutes", f"{job.minutes:g}", "--output-dir", folder, "--json"]
        command = [Path(sys.executable).with_name("bench"), "find", "--base-url", running.base_url, "--model", "m", *asked]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - began
    result = json.loads(done.stdout)
    return job.told(result["low"], result["high"], seconds, done.returncode, len(result["runs"]))


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print the result."""
    cells = [
        (f"{row['capacity']:g}", row["axis"], f"P{row['percentile']}", f"{row['truth']:.3g}",
         f"{row['low']:.3g} to {'–' if row['high'] is None else format(row['high'], '.3g')}", "yes" if row["holds"] else "no",
         f"{row['minutes']:.1f}", row["runs"], row["exit"])
        for row in rows
    ]  # fmt: skip
    print_table(["capacity", "load", "SLO", "limit", "interval", "holds", "minutes", "runs", "exit"], cells)
    held = sum(row["holds"] for row in rows)
    print(f"\n{held} of {len(rows)} intervals hold; {sum(row['exit'] == 0 for row in rows)} are as narrow as asked, "
          f"{sum(row['exit'] == 0 and row['minutes'] <= 5 for row in rows)} of them within 5 minutes")  # fmt: skip


def main() -> None:
    referee = Referee(__doc__)
    referee.option("--capacity", type=float, nargs="+", default=list(_WRITTEN), choices=_WRITTEN)
    referee.option("--percentile", type=int, nargs="+", default=(90, 99))
    referee.option("--axis", nargs="+", default=("request_rate", "concurrency"), choices=("request_rate", "concurrency"))
    referee.option("--minutes", type=float, default=30.0, help="under load, at most (default: %(default)s)")
    referee.option("--http", action="store_true", help="`bench find` itself, in real time, one after the other")
    options = referee.options()
    jobs = [
        Job(Planted(capacity, _WRITTEN[capacity]), axis == "concurrency", percentile, options.minutes)
        for axis in options.axis
        for percentile in options.percentile
        for capacity in options.capacity
    ]
    report([over_http(job) for job in jobs] if options.http else referee.spread(simulated, jobs))


if __name__ == "__main__":
    main()
