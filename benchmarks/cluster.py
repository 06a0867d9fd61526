"""What a SLURM cluster adds to a study's wall time: the same study on this machine and on a cluster of two nodes that it simulates.

    python -m benchmarks.cluster --pairs 3

The cluster is the tests' (tests/support/cluster.py): real SLURM daemons, both nodes on this machine. Each pair measures two runs of one
deployment of config/studies/quick.yaml, from nothing but the engine's environment to the records: with `snakemake --cores all`, then
with `--profile profiles/slurm-no-accounting`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from tests.support.cluster import Cluster, missing
from tests.support.project import BIN, Project
from tests.support.slurm import command
from tests.support.study import ROOT

_STUDY, _DEPLOYMENT = ROOT / "config/studies/quick.yaml", "tiny-mqa"


def seconds(project: Project, words: list[str], environment: dict[str, str]) -> float:
    """How long a workflow takes (s)."""
    begin = time.monotonic()
    done = subprocess.run(words, cwd=project.folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return time.monotonic() - begin


def measured(project: Project) -> float:
    """How long its sessions had a ready server (s): what no cluster can change."""
    logs = (path.read_text() for path in project.folder.glob("logs/measure/*/*.log"))
    return sum(float(log.rpartition(" s since the server was ready")[0].split()[-1]) for log in logs)


def main() -> int:
    """Measure the pairs, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="(default: %(default)s)")
    options = parser.parse_args()
    if absent := missing():
        print(f"SLURM is not installed ({', '.join(absent)})", file=sys.stderr)
        return 2
    study = yaml.safe_load(_STUDY.read_text())
    study["study"]["ladders"] = [{"deployment": _DEPLOYMENT, "workload": "short", "concurrency": [1, 8]}]
    study["deployments"] = {_DEPLOYMENT: study["deployments"][_DEPLOYMENT]}
    with tempfile.TemporaryDirectory(prefix="saturate-cluster-") as name:
        folder, rows = Path(name), []
        cluster = Cluster(folder / "cluster")
        try:
            cluster.start()
            for pair in range(options.pairs):
                for where in ("local", "slurm"):
                    (folder / f"{pair}-{where}").mkdir()
                    project = Project(folder / f"{pair}-{where}", study)
                    local = [str(BIN / "snakemake"), "--cores", "all", "measured"]
                    words = local if project.command() and where == "local" else command(project, target="measured")
                    took = seconds(project, words, dict(os.environ) if where == "local" else cluster.environment)
                    rows.append((where, took, measured(project)))
                    print(
                        f"pair {pair + 1}, {where}: {took:.0f} s, {rows[-1][2]:.0f} s of them with a server ready", flush=True
                    )
        finally:
            cluster.stop()
    print("\n| | wall time, s | with a server ready, s | the rest, s |\n|---|--:|--:|--:|")
    for where in ("local", "slurm"):
        mine = [(took, ready) for each, took, ready in rows if each == where]
        times = (statistics.median(values) for values in ([t for t, _ in mine], [r for _, r in mine], [t - r for t, r in mine]))
        print(f"| {where} | {' | '.join(f'{value:.0f}' for value in times)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
