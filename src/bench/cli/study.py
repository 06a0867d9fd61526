"""The study that a command is about."""

from __future__ import annotations

from pathlib import Path

from bench.errors import BenchError
from bench.study import Plan, load_file

__all__ = ["load_plan", "study_file"]

_DEFAULT = Path("config/config.yaml")


def study_file(configfile: Path | None) -> Path:
    """The study's file: the one that is given, else the default."""
    return configfile or _DEFAULT


def load_plan(configfile: Path | None, select: str | None) -> Plan:
    """The plan that the options name.

    Raises:
        BenchError: there is no such file, or its configuration is refused.
    """
    file = study_file(configfile)
    if not file.exists():
        raise BenchError(
            f"{file}: no such file in {Path.cwd()}, and this command is about a study. Run it in a clone of the project, "
            "or name the study's file with --configfile."
        )
    return Plan.of(load_file(file, **({"select": select} if select else {})))
