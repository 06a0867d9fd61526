"""What speaks against a finished run before it is parsed: what its record shows of the client, the load and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.analysis import verdict
from bench.errors import BenchError
from bench.records.progress import FinishedRun
from bench.records.run import read_record
from bench.study.config import Thresholds
from bench.words.verdicts import reason_text


def judged(path: Path, run: FinishedRun, thresholds: Mapping[str, float]) -> tuple[str, ...]:
    """The reasons for which a run will be invalid, as far as its record in `path` shows them.

    What its requests and the server's counts show is judged when the run is parsed.

    Raises:
        BenchError: there is no such record.
    """
    record = read_record(path)
    known = {
        "arrival": record.definition.get("arrival"),
        "axis": run.axis,
        "requests": run.requests,
        "failed": run.failed,
        **{f"client_{name}": value for name, value in vars(record.client).items()},
        "host_other_share": record.host.other_share,
        "host_clock_step_s": record.host.clock_step_s,
        "wrong_prompt_tokens": 0,
        "wrong_output_tokens": 0,
        "metrics_missing": [],
    }
    try:
        limits = Thresholds(**thresholds)
    except ValueError as error:
        raise BenchError(f"{path}: {error}") from None
    return tuple(reason_text(reason) for reason in verdict(known, limits).found)
