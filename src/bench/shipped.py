"""The files that go with the library (the workflow, its configurations and its profiles), and which state of the sources measured a
run or drew a page.

One copy is in the repository, at its root; the build puts it into the wheel (setup.py).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import bench

_PACKAGE = Path(__file__).parent
_IN_WHEEL = _PACKAGE / "_shipped"

#: The folder of workflow/, config/ and profiles/: the checkout, or the wheel's copy.
ROOT = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parents[1]

#: How a reader in the working directory calls `bench`: in a clone it is in the environment that `make` sets up.
BENCH = ".venv/bin/bench" if ROOT.samefile(Path.cwd()) and not _IN_WHEEL.is_dir() else "bench"

#: What `module saturate: snakefile: …` takes.
SNAKEFILE = str(ROOT / "workflow/Snakefile")


def located(file: str | Path) -> Path:
    """A file by its path from the working directory; where there is none, the shipped file of that path, if there is one.

    So `workflow/envs/llama-cpp-2026.10.11549.lock` means the same lock in a clone and in a study's own folder.
    """
    own, shipped = Path(file), ROOT / file
    return shipped if not own.exists() and shipped.is_file() else own


def installed_from() -> str:
    """What this package was installed from: a folder, the file of a wheel, an address, or its name in an index."""
    from importlib.metadata import distribution  # noqa: PLC0415 - 50 ms

    recorded = json.loads(distribution("saturate-bench").read_text("direct_url.json") or "{}")
    return str(recorded.get("url", "saturate-bench")).removeprefix("file://")


_SOURCES = "sources "


def commit_of(folder: Path | None = None) -> str | None:
    """The git commit that is checked out in `folder`, with a remark where tracked files were changed since.

    Args:
        folder: a checkout; by default, that of this package.

    Returns:
        Such as `4c1ebdf…, with changes that are not committed`. For an installed package, whose commit is not known, the digest of its
        files: `sources 0a1b2c3d4e5f, version 0.1.0`. None where there is no git, `folder` is not a checkout, or this package
        is not part of the one that it lies in.
    """
    if folder is None:
        own = Path(__file__)
        folder = own.parent
        if not _git(folder, "ls-files", own.name):  # installed, maybe below somebody's own checkout, whose commit is not ours
            return f"{_SOURCES}{_digest(folder)}, version {bench.__version__}"
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}, with changes that are not committed" if changed else commit


def labelled(commit: str, length: int | None = None) -> str:
    """What `commit_of` returns, in a sentence: `commit 4c1ebdf…` or `sources 0a1b2c3d4e5f…`. Args: length: of the digest as shown."""
    digest = commit.removeprefix(_SOURCES)
    return (_SOURCES if digest != commit else "commit ") + digest[:length]


def _digest(folder: Path) -> str:
    """Digest of all files below `folder`, without what Python compiled of them."""
    found = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        found.update(f"{file.relative_to(folder).as_posix()}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:12]


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, encoding="utf-8", errors="replace")
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
