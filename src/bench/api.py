"""The library's public names; all others may change without notice.

from bench.api import Results

results = Results.open("results")
results.capacity(["ttft_p99=2s"])
"""

from bench.errors import BenchError
from bench.findings.comparison.compare import Comparison, compare
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.parse.foreign import ForeignRun, foreign_run, request_table, write_run
from bench.parse.run import parse_run
from bench.results import Results
from bench.study.plan import Plan
from bench.study.read import load_file, load_workload
from bench.study.slo import parse_slo
from bench.workloads.schedule import schedule
from bench.workloads.workload import Workload

__all__ = [
    "BenchError",
    "Comparison",
    "ForeignRun",
    "Load",
    "Plan",
    "Results",
    "Target",
    "Workload",
    "compare",
    "foreign_run",
    "load_file",
    "load_workload",
    "parse_run",
    "parse_slo",
    "record_run",
    "request_table",
    "run_load",
    "schedule",
    "write_run",
]
