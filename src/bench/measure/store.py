"""Finished measurements, by digest: what a failed or killed workflow leaves for the next one.

Snakemake restores the state before a job that failed, new files included. So each run goes at once into a folder that is no
output, named by the digest of what it measured, and its place among the results is a link to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Store", "files_of", "whole"]


class Store:
    """Folders by digest below `root`.

    Sessions of several deployments may share it; `owner` tells their unfinished folders apart.
    """

    def __init__(self, root: Path, *, owner: str = "") -> None:
        self.root = root
        self._prefix = f".unfinished-{owner}-"

    def holds(self, digest: str) -> bool:
        """Whether a finished measurement has this digest."""
        return self.folder(digest).is_dir()

    def folder(self, digest: str) -> Path:
        """Where the measurement of `digest` lies, if it is held."""
        return self.root / digest

    @contextmanager
    def adding(self, digest: str) -> Iterator[Path]:
        """A temporary folder to fill; it takes its name when the context ends without an error, and is gone otherwise."""
        self.root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self.root))
        try:
            yield folder
            self.discard(digest)
            folder.rename(self.folder(digest))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def adopt(self, digest: str, folder: Path, last: str) -> None:
        """Take a measurement that lies in `folder` but not here (results copied from elsewhere); one that is not whole is left.

        Args:
            last: the record, which names the others.
        """
        if not whole(folder, last):
            return
        with self.adding(digest) as target:
            for name in (*files_of(folder / last), last):
                _link(folder / name, target / name)

    def place(self, digest: str, folder: Path, last: str) -> None:
        """Put the files of `digest` into `folder`, as links where the file system has them; `last` follows the others."""
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(self.folder(digest).iterdir(), key=lambda file: file.name == last)
        for file in files:
            target = folder / file.name
            target.unlink(missing_ok=True)
            _link(file, target)
            os.utime(target)  # younger than what the job was given, or the workflow would measure for ever

    def discard(self, digest: str) -> None:
        """Forget a measurement."""
        shutil.rmtree(self.folder(digest), ignore_errors=True)

    def sweep(self) -> None:
        """Remove what killed sessions of this owner left unfinished."""
        for folder in self.root.glob(f"{self._prefix}*"):
            shutil.rmtree(folder, ignore_errors=True)


def files_of(record: Path) -> dict[str, str]:
    """The files that a run's record names, each with its SHA-256."""
    files: dict[str, str] = json.loads(record.read_text()).get("files", {})
    return files


def whole(folder: Path, last: str) -> bool:
    """Whether each file that the record `last` in `folder` names is there, as it was measured."""
    return all(
        (folder / name).is_file() and hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected
        for name, expected in files_of(folder / last).items()
    )


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # another file system
        shutil.copy2(file, target)
