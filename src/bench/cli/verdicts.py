"""What the last aggregate says of a study's runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from bench.errors import BenchError
from bench.runs.paths import Paths
from bench.study.specs import RunSpec


class Verdict(TypedDict):
    """What the summary table says of a run: parts at fault, the reasons' codes, failed requests, and an early end (None if none)."""

    faults: list[str]
    reasons: list[str]
    failures: str | None
    stopped: str | None


def judged_runs() -> dict[str, Verdict]:
    """The verdict on each run, by digest, from the last aggregate; none where there was none."""
    path = Path(Paths.SUMMARY)
    if not path.exists():
        return {}
    import polars as pl  # half a second, which a list of runs without a table must not cost

    from bench.parse.validity import failures, stopped

    columns, further = ["faults", "reasons"], ["stopped_at_s", "num_requests", "failure_said"]
    with _readable(path):
        table = pl.scan_parquet(path)
        counts = [name for name in table.collect_schema().names() if name in further or name.startswith("outcome_")]
        rows = table.select("digest", *columns, "failed", "requests", *counts).collect().to_dicts()
    return {
        row["digest"]: {
            "faults": row["faults"],
            "reasons": row["reasons"],
            "failures": failures(row),
            "stopped": stopped(row),
        }
        for row in rows
    }


def durations() -> dict[str, float]:
    """How long each run of the last aggregate took (s), by digest."""
    path = Path(Paths.SUMMARY)
    if not path.exists():
        return {}
    import polars as pl  # as above

    with _readable(path):
        return dict(pl.scan_parquet(path).select("digest", "duration_s").drop_nulls().collect().iter_rows())


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    import polars as pl  # as above

    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise BenchError(
            f"{path}: damaged ({str(error).splitlines()[0]}). Remove it and {Paths.MANIFEST}; the study's command makes both again."
        ) from None


def in_words(verdict: Verdict) -> Verdict:
    """The verdict with its reasons in words."""
    if not verdict["reasons"]:
        return verdict
    from bench.parse.validity import reason_texts

    return {**verdict, "reasons": reason_texts(verdict["reasons"])}


def verdict_text(verdict: Verdict) -> str:
    """The parts at fault with the reasons, the requests that failed, and that it ended early; empty where there is nothing to say."""
    faults = [f"{', '.join(verdict['faults'])}: {'; '.join(in_words(verdict)['reasons'])}"] if verdict["faults"] else []
    return "  ".join((*faults, *filter(None, (verdict["failures"], verdict["stopped"]))))


def unjudged_text(states: Sequence[tuple[RunSpec, str]], judged: Mapping[str, Verdict]) -> str:
    """That measured runs have no verdict here, and what gives them one; empty where all have."""
    count = sum(state in ("measured", "invalid") and run.digest not in judged for run, state in states)
    return (
        f"{count} of the measured runs {'has' if count == 1 else 'have'} no verdict: {Paths.SUMMARY} is of another study, or is "
        "not there. The command that measured this study judges them, and measures none of them again."
        if count
        else ""
    )
