"""`bench wheels`: the packages that a study needs on a machine without network."""

from __future__ import annotations

from pathlib import Path

from bench.cli.output import print_json, status
from bench.cli.study import load_plan
from bench.engine.environment import indexed_locks
from bench.engine.wheels import fetch_wheels
from bench.errors import BenchError

__all__ = ["run"]

_OWN_LOCK = Path(__file__).parents[3] / "requirements.lock"
_SLURM_LOCK = _OWN_LOCK.with_name("requirements-slurm.lock")


def run(
    configfile: Path | None, select: str | None, output_dir: Path, python_version: str, machine: str, *, json: bool
) -> None:
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
    print(f"{output_dir}: {len(files)} packages, {size / 2**30:.2f} GiB")
    if sources:
        print(f"Built there, as they have no wheel for it: {', '.join(sources)}")
    for name, source in there.items():
        print(f"Engine {name} is a {source}: that machine has to have it.")
