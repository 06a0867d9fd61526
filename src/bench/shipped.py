"""The files that go with the library: the workflow, its configurations and its profiles.

One copy is in the repository, at its root; the build puts it into the wheel (setup.py).
"""

from __future__ import annotations

from pathlib import Path

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
