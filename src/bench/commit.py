"""Which state of the sources measured a run, or drew a page."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["commit_of"]


def commit_of(folder: Path | None = None) -> str | None:
    """The git commit that is checked out in `folder`, with a remark where tracked files were changed since.

    Args:
        folder: a checkout; by default, that of this package.

    Returns:
        Such as `4c1ebdf…, with changes that are not committed`; None where there is no git, `folder` is not a checkout, or this
        package is not part of the one that it lies in.
    """
    if folder is None:
        own = Path(__file__)
        folder = own.parent
        if not _git(folder, "ls-files", own.name):  # installed, maybe below somebody's own checkout, whose commit is not ours
            return None
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}, with changes that are not committed" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
