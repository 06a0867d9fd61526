"""Where everything lies: the one place that spells a result's path.

Each is a pattern with Snakemake's wildcards; `.format(...)` fills them outside it.
"""

from __future__ import annotations

from pathlib import Path

# The files of an analysis: its tables, and what the report alone reads.
TABLES = ("capacity.parquet", "saturation.parquet", "comparisons.parquet", "comparisons.json")


class Paths:
    """Paths below the working directory."""

    ENGINE = "results/engines/{engine}/engine.json"
    CHECKPOINT = "results/checkpoints/{model}/checkpoint.json"
    LAUNCH = "results/deployments/{deployment}/launch.json"
    FACTS = "results/deployments/{deployment}/deployment.json"
    SESSION_FACTS = "results/deployments/{deployment}/session-{session}/deployment.json"
    SEARCHES = "results/deployments/{deployment}/search.json"
    PROBED = "results/deployments/{deployment}/probed-{load}.json"
    SESSION = "results/sessions/{deployment}/{session}.json"
    PARSED = "results/sessions/{deployment}/{session}-parsed.json"
    FORGOTTEN = "results/sessions/{deployment}/{session}-forgotten.txt"
    PROGRESS = "results/deployments/{deployment}/progress.json"
    SESSION_PROGRESS = "results/deployments/{deployment}/session-{session}/progress.json"
    RUNS = "results/runs"
    RECORD = "results/runs/{deployment}/{run}/run.json"
    REQUESTS = "results/runs/{deployment}/{run}/requests.parquet"
    TELEMETRY = "results/runs/{deployment}/{run}/telemetry.parquet"
    WIDE = "results/runs/{deployment}/{run}/metrics.csv"
    RUN_SUMMARY = "results/runs/{deployment}/{run}/summary.json"
    RESULTS = "results/"
    STUDY = "results/study.json"
    SUMMARY = "results/summary.parquet"
    SUMMARY_CSV = "results/summary.csv"
    TIMESERIES = "results/timeseries.parquet"
    CALIBRATION = "results/calibration.json"
    ANALYSIS = "results/analysis"
    ANALYSED = "results/analysis/{table}"
    RELIEFS = "results/reliefs.json"
    CAUSES = "results/analysis/causes.parquet"
    FINDINGS = "results/analysis/findings.json"
    TUNING = "results/tuning/tuning.json"
    VISITS = "results/tuning/visits.json"
    GRADES = "results/analysis/grades.parquet"
    FIGURE_SVG = "results/figures/{figure}.svg"
    FIGURE_PNG = "results/figures/{figure}.png"
    FIGURE_SPEC = "results/figures/{figure}.json"
    MANIFEST = "results/figures/all"
    REPORT = "results/report.html"
    REPORT_MARKDOWN = "results/report.md"

    @classmethod
    def facts(cls, deployment: str, session: int = 1) -> Path:
        """Where a session's facts lie; those of the first one stand for the deployment."""
        return Path((cls.FACTS if session == 1 else cls.SESSION_FACTS).format(deployment=deployment, session=session))

    @classmethod
    def session(cls, deployment: str, session: int = 1) -> Path:
        """Where a session's index lies."""
        return Path(cls.SESSION.format(deployment=deployment, session=session))
