"""What a workflow shows: what is being done, in plain words, with the time so far. Snakemake finds it by its name.

Jobs print their own lines in between. Snakemake's listing of jobs goes to its log file alone; `--dry-run` and `--verbose` show it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

__all__ = ["LogHandler"]

_IDLE = "Nothing to be done"
_LAST_LINES = 15  # of a failed job's log
_ENDED = "ending on SIG"  # what a job's log has that Ctrl-C or SIGTERM ended; see `bench.workflow.job`
_STAGES = {
    "engine": "Preparing the engine {engine}",
    "weights": "Preparing the model {model}",
    "deploy": "Planning the launch of {deployment}",
    "parse": "Parsing the runs of {deployment}",
    "aggregate": "Making the summary table",
    "analyse": "Analysing the runs",
    "grade": "Grading the answers",
    "findings": "Concluding what they show",
    "calibrate": "Calibrating a model of each server, and replaying its limits",
    "report": "Writing the report",
}
_TARGETS = {"all", "default", "measured"}  # rules that do nothing themselves
_REPORT = Path("results/report.html")
_MANIFEST = Path("results/figures/all")  # the report's rule keeps the lines with which a workflow ends
# What Snakemake reports of itself. Anything else is shown, and every warning and error but these two.
_EXPECTED = ("Cannot restore", "Exiting because a job")
_REFUSAL = re.compile(
    r'\w+ in (?:rule \w+ in )?file "[^"]+", line \d+:\n.*?'
    r"((?:nothing was (?:started|submitted):|The configuration is refused:|the pack lacks ).*?)"
    r'(?=\n(?:  File "|Wildcards:|Traceback:)|$(?!\n))',
    re.DOTALL,
)
_ITS_OWN = tuple(
    """Assuming |Building DAG|DAG of jobs|Complete log|Conda env|Config file|Creating|Elapsed|Group jobs|
host: |Job rate limit|Provided |Removing output|Rules claiming|Rules with |Select jobs|Singularity |Storing|Updating|Using |
Waiting at most""".replace("\n", "").split("|")
)


class LogHandler(LogHandlerBase):
    """Writes the lines to standard error."""

    def __post_init__(self) -> None:
        settings = self.common_settings
        self._stream = sys.stdout if settings.stdout else sys.stderr
        # Why each job would run is what a dry run is for.
        quiet = {each for each in settings.quiet or () if not (settings.dryrun and each == Quietness.REASON)}
        formatter = DefaultFormatter(quiet, settings.show_failed_logs)
        self._snakemake = ColorizingTextHandler(nocolor=settings.nocolor, stream=self._stream, formatter=formatter)
        self._as_snakemake = settings.dryrun or settings.verbose or settings.printshellcmds
        self._begin = time.monotonic()
        self._totals: Counter[str] = Counter()
        self._begun: defaultdict[str, set[Any]] = defaultdict(set)  # jobs by their kind; one that is tried again counts once
        self._names: dict[Any, str] = {}  # of jobs: rule and wildcards
        self._draws = False  # whether what is asked for is drawn: only then is the report here the one that it leads to
        self._failed: dict[Any, tuple[str, str | None]] = {}  # rules with their logs
        self._stopped = False  # whether Ctrl-C or SIGTERM ended a job in order

    @property
    def writes_to_stream(self) -> bool:
        return True

    @property
    def writes_to_file(self) -> bool:
        return False

    @property
    def has_filter(self) -> bool:
        return False

    @property
    def has_formatter(self) -> bool:
        return True

    @property
    def needs_rulegraph(self) -> bool:
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, if a user has to see it."""
        event = getattr(record, "event", None)
        if event == LogEvent.RULEGRAPH:
            self._draws = any(node["rule"] == "report" for node in vars(record)["rulegraph"]["nodes"])
            return
        if self._as_snakemake:
            record.msg = _without_frames(record.msg) if isinstance(record.msg, str) else record.msg
            self._snakemake.emit(record)
            if record.getMessage().startswith(_IDLE):
                self._repeat_closing()
            return
        try:
            if event == LogEvent.RUN_INFO:
                self._totals = Counter(getattr(record, "stats", {}))
            elif event == LogEvent.JOB_INFO:
                self._begins(vars(record))
            elif event == LogEvent.JOB_FINISHED:
                self._failed.pop(vars(record)["job_id"], None)  # it succeeded when it was tried again
            elif event == LogEvent.JOB_ERROR:
                self._fails(vars(record))
            elif event in (None, LogEvent.ERROR):
                self._remarks(record)
        except BrokenPipeError:
            raise
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Repeat what failed, with the end of its log: it may stand far above."""
        failed, self._failed = self._failed, {}
        for rule, log in failed.values():
            lines = _lines_of(log)
            self._say(f"Failed: {rule}" + (f", {log} ends with" if lines else ""), "31")
            for line in lines[-_LAST_LINES:]:
                print(f"        | {line}", file=self._stream, flush=True)
        super().close()

    def _begins(self, job: dict[str, Any]) -> None:
        kind, wildcards = job["rule_name"], dict(job["wildcards"] or {})
        self._begun[kind].add(job["jobid"])
        self._names[job["jobid"]] = " ".join([kind, *wildcards.values()])
        if kind not in _TARGETS and (kind != "figure" or len(self._begun[kind]) == 1):
            self._say(self._stage(kind, wildcards), "1")

    def _stage(self, kind: str, wildcards: dict[str, Any]) -> str:
        """What a job does."""
        total = self._totals[kind]
        if kind == "measure":
            of = f"; {len(self._begun[kind])} of {total} sessions" if total > 1 else ""
            return f"Measuring {wildcards['deployment']}{of}"
        if kind == "figure":
            return f"Drawing {total} figures" if total > 1 else "Drawing a figure"
        return _STAGES[kind].format(**wildcards) if kind in _STAGES else kind

    def _fails(self, job: dict[str, Any]) -> None:
        log = next(iter(job.get("log") or ()), None)
        name = self._names.get(job["jobid"], job["rule_name"])
        reason = (job.get("rule_msg") or "").strip()  # a cluster's, such as its time limit, which sends SIGTERM too
        if log and not reason and _ENDED in "".join(_lines_of(log)[-_LAST_LINES:]):
            self._stopped = True
            self._say(f"Stopped: {name}. The same command goes on from what is finished.")
            return
        self._failed[job["jobid"]] = name, log
        self._say(f"Failed: {name}" + (f", see {log}" if log else ""), "31")
        if reason:  # a job that a cluster killed wrote nothing itself
            self._say(reason, "31")

    def _remarks(self, record: logging.LogRecord) -> None:
        text = _without_frames(record.getMessage().strip()) if record.msg else ""
        ours = "CalledProcessError" in text and ".snakemake/scripts/" in text and not _killed(text)  # its own words stand above
        ours = ours or (
            bool(self._failed or self._stopped) and text.endswith("At least one job did not complete successfully.")
        )
        hidden = text.startswith(_EXPECTED) or (record.levelno <= logging.INFO and text.startswith(_ITS_OWN))
        hidden = hidden and not (self._failed and text.startswith("Complete log"))
        if text and text != "None" and not ours and not hidden:
            self._say(text, {"WARNING": "33", "ERROR": "31", "CRITICAL": "31"}.get(record.levelname))
        if text.startswith(_IDLE):
            self._repeat_closing()

    def _repeat_closing(self) -> None:
        """Say again with which lines the workflow ended that made what is asked for."""
        if self.common_settings.dryrun or not self._draws or not _REPORT.exists():
            return
        with suppress(OSError, ValueError, KeyError, TypeError):
            for line in json.loads(_MANIFEST.read_text(encoding="utf-8"))["closing"]:
                print(line, file=self._stream, flush=True)

    def _say(self, text: str, style: str | None = None) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._begin), 60)
        line = f"[{minutes:2}:{seconds:02}] {text}"
        clear = "\r\033[K" if self._stream.isatty() else ""  # a session's live line may stand there
        coloured = style and not self._snakemake.nocolor
        print(clear + (f"\033[{style}m{line}\033[0m" if coloured else line), file=self._stream, flush=True)


def _lines_of(log: str | None) -> list[str]:
    return Path(log).read_text(encoding="utf-8", errors="replace").splitlines() if log and Path(log).is_file() else []


def _without_frames(text: str) -> str:
    """A refusal of this workflow's own without the places in its rules that Snakemake names with it: they are no fault of theirs."""
    found = _REFUSAL.match(text)
    return found[1] if found else text


def _killed(text: str) -> bool:
    """Whether a job ended without words of its own: by a signal, as when memory runs out. On SIGINT and SIGTERM it ends in order."""
    status = re.search(r"non-zero exit status (\d+)", text)
    return "died with" in text or (status is not None and int(status[1]) >= 128 and int(status[1]) not in (130, 143))
