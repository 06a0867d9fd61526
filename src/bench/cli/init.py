"""`bench init`: begin a study in a folder of its own."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

from bench.study import begin

__all__ = ["begin_study", "snakemake"]


def begin_study(folder: Path, template: str) -> None:
    written, kept = begin(folder, template)
    for name in written:
        print(f"wrote {folder / name}")
    for name in kept:
        print(f"kept  {folder / name}")
    print(f"\nNext:\n  cd {shlex.quote(str(folder))}\n  {snakemake()} --cores 1 results/figures/all")


def snakemake() -> str:
    """The command that runs the Snakemake of this environment in the user's shell."""
    own = Path(sys.executable).parent / "snakemake"
    if Path(sys.prefix).parent.name.startswith("archive-v"):  # uvx: its environment is on PATH only while this command runs
        return f"uvx --from {_origin()} snakemake"
    found = shutil.which("snakemake")
    return "snakemake" if found and Path(found).resolve() == own.resolve() else shlex.quote(str(own))


def _origin() -> str:
    """What this package was installed from: the file of a wheel, or its name in an index."""
    recorded = json.loads(distribution("saturate-bench").read_text("direct_url.json") or "{}")
    return shlex.quote(recorded.get("url", "saturate-bench").removeprefix("file://"))
