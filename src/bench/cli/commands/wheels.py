"""`bench wheels`: the packages that a study needs on a machine without network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli.entry import command
from bench.cli.options import Configfile, Json, Select, option
from bench.cli.output import print_json, status
from bench.errors import BenchError, shown_gib

_OLDEST = 11  # as pyproject.toml has it
_OWN_LOCK = Path(__file__).parents[4] / "requirements.lock"
_SLURM_LOCK = _OWN_LOCK.with_name("requirements-slurm.lock")


def _minor(text: str) -> str:
    if not re.fullmatch(r"3\.\d+", text) or int(text[2:]) < _OLDEST:
        raise typer.BadParameter(f"{text!r} is not a version such as 3.12, from 3.{_OLDEST} on.")
    return text


@command(
    "bench wheels --configfile config/studies/h100.yaml --python-version 3.12",
    "bench wheels --machine aarch64 --output-dir arm",
)
def wheels(
    configfile: Configfile = None,
    select: Select = None,
    output_dir: Annotated[Path, option("DIR", "Where to put them; created if missing.")] = Path("wheels"),
    python_version: Annotated[
        str, option("X.Y", "Python of that machine; by default this one's.", parser=_minor)
    ] = f"{sys.version_info.major}.{sys.version_info.minor}",
    machine: Annotated[Literal["x86_64", "aarch64"], option(None, "Processor of that machine.")] = "x86_64",
    json: Json = False,
) -> None:
    """The wheels of Saturate's own environment and of the engines that the study builds from locks, checked against the
    locks' hashes, for Linux. `make pack WHEELS=DIR` installs them there.
    """
    from bench.cli.study import load_plan
    from bench.servers.environment import indexed_locks
    from bench.servers.wheels import fetch_wheels

    if not _OWN_LOCK.is_file():
        raise BenchError(
            f"{_OWN_LOCK.name}: an installed package has none. `bench wheels` fetches what `make pack WHEELS=DIR` installs in a clone "
            "of the project: run it in one."
        )
    _, plan = load_plan(configfile, select, json=json)
    engines = {spec.deployment.engine: spec.engine for spec in plan.deployments.values()}
    locks: dict[Path, str | None] = {_OWN_LOCK: None, _SLURM_LOCK: None}
    for engine in engines.values():
        locks |= dict(indexed_locks(engine))
    with status() as say:
        files = fetch_wheels(list(locks.items()), output_dir, python=python_version, machine=machine, say=say)
    sources = [file.name for file in files if file.suffix != ".whl"]
    size = sum(file.stat().st_size for file in files)
    there = {name: engine.source for name, engine in engines.items() if engine.source != "lock"}
    if json:
        print_json(
            {
                "folder": str(output_dir),
                "packages": [file.name for file in files],
                "bytes": size,
                "built_there": sources,
                "engines_to_have": there,
            }
        )
        return
    print(f"{output_dir}: {len(files)} packages, {shown_gib(size)} GiB")
    if sources:
        print(f"Built there, as they have no wheel for it: {', '.join(sources)}")
    for name, source in there.items():
        print(f"Engine {name} is a {source}: that machine has to have it.")
