"""Finished measurements, by digest: what a failed or killed workflow leaves for the next one.

Snakemake restores the state before a job that failed, new files included. So each run goes at once into a folder that is no
output, named by the digest of what it measured, and its place among the results is a link to it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.errors import BenchError
from bench.records.checksums import files_of, whole

__all__ = ["Store"]

_TRIES = 100


class Store:
    """Folders by digest below `root`.

    Sessions of several deployments may share it, at the same time: each unfinished folder carries its `owner`, and is locked by its
    process for as long as that lives.
    """

    def __init__(self, root: Path, *, owner: str = "") -> None:
        self.root = root
        self._unfinished = f".unfinished-{owner}"

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
        with self._temporary() as folder:
            yield folder
            while True:
                try:
                    folder.rename(self.folder(digest))
                    return
                except NotADirectoryError:  # no measurement is a file
                    self.folder(digest).unlink(missing_ok=True)
                    continue
                except OSError as error:  # an older one is there, or one that another session added meanwhile
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                self.discard(digest)

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
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):
                before = self.folder(digest).stat().st_ino
                for file in sorted(self.folder(digest).iterdir(), key=lambda file: file.name == last):
                    target = folder / file.name
                    target.unlink(missing_ok=True)
                    _link(file, target)
                    os.utime(target)  # younger than what the job was given, or the workflow would measure for ever
                if self.folder(digest).stat().st_ino == before:
                    return
            time.sleep(0.01)  # a session of another folder replaces it: files of two measurements must not lie together
        raise BenchError(
            f"{self.folder(digest)}: is gone, or replaced all the time. Run again when nothing else uses this store."
        )

    def discard(self, digest: str) -> None:
        """Forget a measurement; it is there whole, or not at all."""
        if self.holds(digest):
            with self._temporary() as folder, suppress(FileNotFoundError):  # another session may forget it, too
                self.folder(digest).rename(folder / digest)

    def sweep(self) -> None:
        """Remove what killed sessions of this owner left unfinished; never what a living process of this machine fills."""
        for folder in self.root.glob(".unfinished-*"):
            # What mkdtemp appends has no hyphen, an owner may: `a-b` is not an unfinished folder of `a`.
            if folder.name.rpartition("-")[0] == self._unfinished:
                with _locked(folder) as free:
                    if free:
                        shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _temporary(self) -> Iterator[Path]:
        """A new folder with a lock that ends with this process; it is removed afterwards, unless it was renamed."""
        while True:
            folder = Path(tempfile.mkdtemp(prefix=f"{self._unfinished}-", dir=self.root))
            with _locked(folder, wait=True):
                if not folder.is_dir():
                    continue  # swept in the instant before it was locked
                try:
                    yield folder
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                return


@contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of `folder` while the context lasts; whether it is ours, or the file system has no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            free = True
        except OSError as error:
            free = not isinstance(error, BlockingIOError)  # NFS locks no folder; a deployment has one session at a time anyway
        yield free
    finally:
        os.close(descriptor)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # another file system
        shutil.copy2(file, target)
