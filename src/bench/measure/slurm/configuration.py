"""Which cluster it is, for the jobs too."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path


def keep_configuration(folder: Path) -> None:
    """Let `srun` find the cluster inside jobs, where SLURM_CONF alone says which it is.

    Snakemake's jobs call srun without any variable of SLURM's. They inherit PATH, and find first the one in `folder`, which sets it.
    """
    configuration, srun = os.environ.get("SLURM_CONF"), shutil.which("srun")
    if configuration is None or srun is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "srun"
    script.write_text(f'#!/bin/sh\nSLURM_CONF={shlex.quote(configuration)} exec {shlex.quote(srun)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder.resolve()}{os.pathsep}{os.environ['PATH']}"
