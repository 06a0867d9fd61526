"""Fetch every package that a machine without network will need: for its Python, not for the one that runs here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from bench.errors import BenchError
from bench.servers.environment import installer_environment, requirements

_BATCH = 20  # packages a call of pip: a progress line every few seconds
_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 39  # of manylinux tags, 2.x


def fetch_wheels(
    locks: Sequence[tuple[Path, str | None]], folder: Path, *, python: str, machine: str, say: Callable[[str], None]
) -> list[Path]:
    """Download what `locks` name into `folder`, checked against the hashes there; what lies there already is kept.

    Args:
        locks: requirement files with hashes, each with a further package index or None.
        python: the target's version, such as `3.12`. machine: its architecture, such as `x86_64`; its system is Linux.
        say: takes progress lines.

    Returns:
        What lies in `folder`: wheels, and the sources of packages that have none for the target, which are built there.

    Raises:
        BenchError: a package cannot be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for lock, index in locks:
        wanted = [entry for entry in requirements(lock) if _applies(entry, python, machine)]
        for done in range(0, len(wanted), _BATCH):
            _download([_unconditional(entry) for entry in wanted[done : done + _BATCH]], index, folder, python, machine)
            say(f"{lock}: {min(done + _BATCH, len(wanted))} of {len(wanted)} packages")
    return sorted(file for file in folder.iterdir() if file.is_file())


def _applies(entry: str, python: str, machine: str) -> bool:
    """pip would evaluate the marker for the Python that runs here, not for the target."""
    marker = Requirement(_named(entry)).marker
    target = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
    }
    return marker is None or marker.evaluate(target)


def _named(entry: str) -> str:
    return entry.splitlines()[0].rstrip("\\ \n")


def _unconditional(entry: str) -> str:
    """A requirement with its hashes and without its marker, which was looked at."""
    first, *hashes = entry.splitlines()
    pin = _named(first).partition(";")[0].rstrip()
    return "\n".join([f"{pin} \\" if hashes else pin, *hashes]) + "\n"


def _download(entries: Sequence[str], index: str | None, folder: Path, python: str, machine: str) -> None:
    # The first platform that has a wheel is taken: the oldest glibc, which runs on the most machines. pip matches each name alone.
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(_OLDEST_GLIBC, _NEWEST_GLIBC + 1)]
    old = [f"manylinux{name}_{machine}" for name in ("1", "2010", "2014")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(entries))
        file.flush()
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
        ]
        command += ["--implementation", "cp", "--python-version", python, "--dest", str(folder)]
        command += [word for platform in (*old, *platforms) for word in ("--platform", platform)]
        command += ["--find-links", str(folder), "--requirement", file.name]
        # The default indexes alone first: a further one that cannot be reached costs seconds of retries for each package.
        for further in dict.fromkeys((None, index)):
            done = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", env=installer_environment(further)
            )
            if done.returncode == 0:
                return
    last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
    raise BenchError(
        f"pip download failed for Python {python} on {machine}:\n{last}\nWhat was fetched is kept; run again to go on."
    )
