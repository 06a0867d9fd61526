"""The study that a command is about, and the command that runs it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from bench.errors import BenchError
from bench.runs.paths import Paths
from bench.shipped import SNAKEFILE, installed_from
from bench.study.plan import Plan
from bench.study.read import load_file
from bench.study.state import last_study

_DEFAULT = Path("config/config.yaml")


def _study_file(configfile: Path | None, scale: str | None) -> tuple[Path, str | None, str]:
    """The study's file, its scale, and why it is that one: given, measured last in this folder, or the default."""
    if configfile is not None:
        file, why = configfile, ""
    elif (last := last_study()) is not None:
        file, why = last[0], "the study measured last here"
        scale = scale or last[1]
    else:
        file, why = _DEFAULT, "the default"
    if file.exists():
        return file, scale, why
    if configfile is None and file != _DEFAULT:
        raise BenchError(f"{file}: no such file; it is {why} ({Paths.STUDY}). Name the study's file with --configfile.")
    raise BenchError(
        f"{file}: no such file in {Path.cwd()}, and this command needs one. Run it in a study's folder (`bench init` begins "
        "one), or name the study's file with --configfile."
    )


def load_plan(
    configfile: Path | None, select: str | None = None, scale: str | None = None, *, json: bool = False
) -> tuple[Path, Plan]:
    """The study's file and its plan; which one it is goes to the output's first line, or beside JSON to standard error."""
    file, scale, why = _study_file(configfile, scale)
    given = {"select": select, "scale": scale}
    plan = Plan.of(load_file(file, **{key: value for key, value in given.items() if value}), source=str(file))
    of = [f"scale {scale}"] * bool(scale) + [why] * bool(why)
    print(f"Study: {file}" + (f" ({', '.join(of)})" if of else ""), file=sys.stderr if json else sys.stdout)
    return file, plan


def installed(name: str) -> str:
    """The command that runs `name` of this environment in the user's shell, such as `snakemake`."""
    own = Path(sys.executable).parent / name
    if Path(sys.prefix).parent.name.startswith("archive-v"):  # uvx: its environment is on PATH only while this command runs
        return f"uvx --from {shlex.quote(installed_from())} {name}"
    found = shutil.which(name)
    return name if found and Path(found).resolve() == own.resolve() else shlex.quote(str(own))


def draws(study: Path) -> str:
    """The command that measures and draws a study: in a clone, in a study's own folder, or in one that holds nothing else."""
    own = any(map(Path.exists, map(Path, ("Snakefile", "workflow/Snakefile"))))
    if own and Path("Makefile").exists():
        return f"make figures CONFIG={shlex.quote(str(study))}"
    snakefile = "" if own else f" --snakefile {shlex.quote(SNAKEFILE)}"
    return f"{installed('snakemake')}{snakefile} --cores 1 results/figures/all --configfile {shlex.quote(str(study))}"
