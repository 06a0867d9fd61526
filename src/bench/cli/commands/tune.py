"""`bench tune`: which of a study's servers is best, and what its settings gain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.cli.entry import command
from bench.cli.options import Configfile, Json
from bench.cli.output import print_json
from bench.errors import BenchError


@command(
    "bench tune --configfile tune.yaml",
    "bench tune --json",
    after="Exit status: 0 if settings that are better than the default are shown, or that the default is the best; 3 if a gain could "
    "not be shown; 1 if the workflow failed; 2 for what you can fix.",
)
def tune(
    configfile: Configfile = None,
    json: Json = False,
) -> None:
    """Starts the servers that `tune` of a study names, races them under its workload, confirms the best against the default in starts
    of their own, and prints the gain with its interval. What is measured is kept: the same command goes on from there, and with more
    `tune.minutes` from what fewer measured.
    """
    from dataclasses import asdict

    from bench.cli.study import load_plan
    from bench.runs.files import read
    from bench.runs.paths import Paths
    from bench.runs.searches import TuningRecord
    from bench.search.tuning_words import tuning_lines
    from bench.shipped import SNAKEFILE
    from bench.workflow import lock_folder

    file, plan = load_plan(configfile, json=json)
    if plan.tuned is None:
        raise BenchError(
            f"{file} has no `tune`. Give it the servers that compete, and the load: "
            "tune: { deployments: NAME, workload: NAME }; docs/how-to/tune.md has an example."
        )
    command = [sys.executable, "-m", "snakemake", "--nolock", "--rerun-incomplete", "--snakefile", SNAKEFILE]
    command += ["--cores", str(os.cpu_count() or 1), "--configfile", str(file)]
    command += ["--config", f"scale={plan.config.scale}"] if plan.config.scale else []
    lock_folder().close()  # the workflow takes it; held by another one, it is refused here
    # A cluster's profile would make it another workflow.
    environment = {name: value for name, value in os.environ.items() if name != "SNAKEMAKE_PROFILE"}
    done = subprocess.run([*command, "--", Paths.TUNING], stdout=sys.stderr, env=environment)
    if done.returncode:
        raise SystemExit(1)
    found = read(TuningRecord, Path(Paths.TUNING))
    if json:
        print_json(asdict(found))
    else:
        print("\n".join(tuning_lines(found)))
    if found.winner is None or found.winner != found.leader or (found.leader == found.default and not found.settled):
        raise SystemExit(3)
