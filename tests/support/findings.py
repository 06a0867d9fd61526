"""A study whose server meets its SLOs up to a known load."""

import polars as pl

from bench.findings.report import write_report
from bench.findings.tables import Tables
from bench.study.decision import Decision
from tests.support.figures import without_libraries
from tests.support.summaries import FULL, frame

SLO = Decision(slo=["ttft_p99=1s"], peak_rps=100, price_per_hour=2, price_per_million_tokens=5)


# Two requests fit the KV cache; two of four wait.
SERVED = {
    "steady_running": [1.0, 2.0, 2.0], "steady_running_high": [1.0, 2.0, 2.0], "steady_waiting": [0.0, 0.0, 2.0],
    "steady_queued_share": [0.0, 0.0, 1.0], "steady_kv_usage": [0.3, 0.6, 0.97], "steady_kv_usage_queued": [None, None, 0.97],
}  # fmt: skip


def study(summary, decision=SLO, **curves):
    told = {"levels": (1, 2, 4), "ttft_p99_s": [0.1, 0.12, 3.0], "duration_s": [1.0] * 3, **FULL, **SERVED}
    runs = frame(summary, curves or {"a": told})
    return Tables(runs, pl.DataFrame(schema={"deployment": pl.String, "run": pl.String}), None, decision)


def reported(folder, results, **more):
    """The report's page and its Markdown."""
    without_libraries(folder)
    page, short = folder / "report.html", folder / "report.md"
    write_report(page, title="t", results=results, specs=[], facts=[], summary=short, **more)
    return page.read_text(), short.read_text()
