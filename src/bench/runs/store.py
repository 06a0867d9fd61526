"""Finished runs: a folder each, written whole under its final name; and of a session, the list of its files.

They are no outputs of the workflow's jobs: what a failed or killed session finished stays, and the next one goes on after it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from bench.runs.paths import Paths
from bench.runs.run import RECORD


@dataclass(frozen=True, kw_only=True)
class SessionIndex:
    """The files of a session, each with its SHA-256.

    Attributes:
        digest: of the deployment. facts: of `deployment.json`. searches: of `search.json`; None for a session that searches nothing.
        runs: of the record of each run that is measured, by the run's name; those that searches chose among them.
    """

    deployment: str
    session: int
    digest: str
    facts: str
    searches: str | None
    runs: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ParsedSession:
    """`results/sessions/DEPLOYMENT/SESSION-parsed.json`: which records of a session are parsed.

    Attributes:
        code: digest of the code that parsed them. runs: as of the index.
    """

    code: str
    runs: Mapping[str, str]


class Run(Protocol):
    """A run as the store knows it: `key`, its deployment's name and its own, `deployment/run`."""

    @property
    def key(self) -> str: ...


class Store:
    """The folders of runs below `root`.

    A run's name ends with the digest of all that it measures, so its folder holds that measurement or none. Sessions of several
    deployments may write at the same time: each unfinished folder carries its `owner`, and is locked by its process while that lives.
    """

    def __init__(self, root: Path = Path(Paths.RUNS), *, owner: str = "") -> None:
        self.root = root
        self._unfinished = f".unfinished-{owner}"

    def folder(self, run: Run) -> Path:
        """Where a run's files lie, if it is measured."""
        return self.root / run.key

    def record(self, run: Run) -> Path:
        """Where a run's record lies."""
        return self.folder(run) / RECORD

    def holds(self, run: Run) -> bool:
        """Whether a run is measured."""
        return self.record(run).is_file()

    @contextmanager
    def adding(self, run: Run) -> Iterator[Path]:
        """A temporary folder to fill; it takes the run's name when the context ends without an error, and is gone otherwise."""
        with self._temporary() as folder:
            yield folder
            self.folder(run).parent.mkdir(parents=True, exist_ok=True)
            # What is there goes aside, and is removed only when this one stands in its place.
            with self._temporary() as aside:
                for time in count():
                    try:
                        folder.rename(self.folder(run))
                        return
                    except NotADirectoryError:  # no measurement is a file
                        self.folder(run).unlink(missing_ok=True)
                    except OSError as error:  # an older one is there, or one that another session added meanwhile
                        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                            raise
                        with suppress(FileNotFoundError):
                            self.folder(run).rename(aside / str(time))

    def discard(self, run: Run) -> None:
        """Forget a run; it is there whole, or not at all."""
        if self.folder(run).is_dir():
            with self._temporary() as folder, suppress(FileNotFoundError):  # another session may forget it, too
                self.folder(run).rename(folder / self.folder(run).name)

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
        self.root.mkdir(parents=True, exist_ok=True)
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
