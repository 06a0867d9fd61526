"""How the records of a pack or of a folder of results are checked against their checksums and digests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError, shown
from bench.runs.environment import counted
from bench.runs.files import UNREADABLE, checksum, digest, read_object
from bench.runs.run import RECORD, read_record

_CLOSE = 1e-9  # by which results of other processors may differ, relative to themselves


@dataclass
class Check:
    """One kind of thing that is checked.

    Attributes:
        what: it is. checked: how many were compared, those that differ too.
        differs: each with its file and what is wrong. unchecked: what could not be checked, and why.
    """

    what: str
    checked: int = 0
    differs: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def compare(self, difference: str | None) -> None:
        """Count a comparison, and keep what it found."""
        self.checked += 1
        self.differs += filter(None, [difference])

    def compare_numbers(self, stored: Path, again: Path) -> None:
        """Compare a table or a summary with the same made again, by what both have: another version's may have other columns."""
        try:
            old, new = _content(stored), _content(again)
        except (*UNREADABLE, pl.exceptions.PolarsError) as error:
            return self.compare(f"{stored}: not readable: {str(error).partition(chr(10))[0][:200]}")
        if others := sorted(old.keys() ^ new.keys()):
            self.unchecked.append(f"{stored}: {shown(', '.join(others), 400)}, which only one of the two has")
        key = next((key for key in old if key in new and not same_numbers(old[key], new[key])), None)
        return self.compare(key and f"{stored}: {key} is {shown(old[key])}, and the raw records give {shown(new[key])}")


def _content(path: Path) -> Mapping[str, Any]:
    return pl.read_parquet(path).to_dict(as_series=False) if path.suffix == ".parquet" else read_object(path)


def same_numbers(one: Any, other: Any) -> bool:
    """Whether two structures are the same, numbers to 1 in 10⁹."""
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and (math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_numbers(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_numbers, one, other))
    return type(one) is type(other) and bool(one == other)


def check_runs(folder: Path) -> tuple[Check, dict[str, str]]:
    """Each run below `folder`: its files against the checksums in its record, its definition and its place against its digest.

    Returns:
        The check; by the name of each run in which nothing differs, as `deployment/run`, its digest.
    """
    check, intact = Check("runs as measured"), {}
    for path in sorted(folder.glob(f"runs/*/*/{RECORD}")):
        run = path.parent
        try:
            record = read_record(path)
        except BenchError as error:
            check.compare(str(error))
            continue
        load = {key: value for key, value in record.definition.items() if key != "run"}  # whose name ends with the digest
        whole = {"protocol": record.protocol, "deployment": record.deployment_digest, "run": load}
        own = (record.definition.get("deployment"), record.definition.get("run")) == (run.parent.name, run.name)
        differing = [f"{path}: its definition does not match its digest"] * (digest(whole) != record.digest)
        differing += [f"{path}: it belongs to another run"] * (not own)
        if record.environment_digest not in (None, digest(counted(record.environment))):
            differing.append(f"{path}: its environment does not match its digest")
        for name, sha in record.files.items():
            if not (run / name).is_file():
                differing.append(f"{run / name}: missing")
            elif checksum(run / name) != sha:
                differing.append(f"{run / name}: not what was measured (SHA-256)")
        check.checked += 1
        check.differs += differing
        if not differing:
            intact[f"{run.parent.name}/{run.name}"] = record.digest
    return check, intact
