"""`make wheels`: fetch the packages that a study needs on a machine without network, for its Python and not for the one that runs here.

Saturate's own and those of the engines that the study builds from locks, checked against the locks' hashes; what lies there is kept.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

from bench.servers.environment import index_of, installer_environment, requirements
from bench.shipped import located
from bench.study.plan import Plan
from bench.study.read import load_file

_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 39  # of manylinux tags, 2.x


def pins(lock: Path, python: str, machine: str) -> str:
    """A lock's requirements with their hashes, without markers: pip would evaluate them for the Python that runs here."""
    system = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": machine}
    system |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    target = {**system, "python_version": python, "python_full_version": f"{python}.0"}
    kept = ""
    for entry in requirements(lock):
        first, *hashes = entry.splitlines()
        wanted = Requirement(first.rstrip("\\ "))
        if wanted.marker is None or wanted.marker.evaluate(target):
            kept += "\n".join([f"{first.rstrip(chr(92) + ' ').partition(';')[0].rstrip()} \\", *hashes]) + "\n"
    return kept


def main() -> None:
    """Fill a folder. Arguments: the study, the folder, the version and machine of the Python there, and the study's scale, if any."""
    study, folder, python, machine, *scale = sys.argv[1:]
    plan = Plan.of(load_file(Path(study), **({"scale": scale[0]} if scale else {})))
    own = [Path(__file__).parents[2] / name for name in ("requirements.lock", "requirements-slurm.lock")]
    locks: dict[Path, str | None] = dict.fromkeys(own)
    for name, engine in {spec.deployment.engine: spec.engine for spec in plan.started.values()}.items():
        locks |= {lock: index_of(lock) for lock in map(located, engine.locks)}
        if engine.source != "lock":
            print(f"Engine {name} is a {engine.source}: that machine has to have it.")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    command += ["--implementation", "cp", "--python-version", python, "--dest", folder, "--find-links", folder]
    # The first platform that has a wheel is taken: the oldest glibc, which runs on the most machines. pip matches each name alone.
    tags = [*("1", "2010", "2014"), *(f"_2_{minor}" for minor in range(_OLDEST_GLIBC, _NEWEST_GLIBC + 1))]
    command += [word for tag in tags for word in ("--platform", f"manylinux{tag}_{machine}")]
    for lock, index in locks.items():
        print(lock, file=sys.stderr, flush=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            Path(file.name).write_text(pins(lock, python, machine))
            if subprocess.run([*command, "--requirement", file.name], env=installer_environment(index)).returncode:
                sys.exit(
                    f"{lock}: a package cannot be had for Python {python} on {machine}. What was fetched is kept; run again."
                )


if __name__ == "__main__":
    main()
