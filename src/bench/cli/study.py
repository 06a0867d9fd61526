"""The study that a command is about."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.errors import BenchError
from bench.study import Paths, Plan, load_file
from bench.study.last import last_study

__all__ = ["load_plan", "study_file"]

_DEFAULT = Path("config/config.yaml")


def study_file(configfile: Path | None) -> tuple[Path, str]:
    """The study's file, and why it is that one: it was given, the workflow ran it last in this folder, or it is the default.

    Raises:
        BenchError: there is no such file.
    """
    if configfile is not None:
        file, why = configfile, ""
    elif (last := last_study()) is not None:
        file, why = last, "the study measured last here"
    else:
        file, why = _DEFAULT, "the default"
    if file.exists():
        return file, why
    if configfile is None and file != _DEFAULT:
        raise BenchError(f"{file}: no such file; it is {why} ({Paths.STUDY}). Name the study's file with --configfile.")
    raise BenchError(
        f"{file}: no such file in {Path.cwd()}, and this command is about a study. Run it in a study's folder (`bench init` begins "
        "one), or name the study's file with --configfile."
    )


def load_plan(configfile: Path | None, select: str | None, *, json: bool = False) -> tuple[Path, Plan]:
    """The study's file and its plan; which one it is goes to the output's first line, or beside JSON to standard error.

    Raises:
        BenchError: there is no such file, or its configuration is refused.
    """
    file, why = study_file(configfile)
    plan = Plan.of(load_file(file, **({"select": select} if select else {})))
    print(f"Study: {file}" + (f" ({why})" if why else ""), file=sys.stderr if json else sys.stdout)
    return file, plan
