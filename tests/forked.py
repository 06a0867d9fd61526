"""Snakemake, imported once and forked for each call: a start of its own takes two seconds of a core before it reads the Snakefile.

Whole starts, by `make figures` and beside SLURM, are those of tests/test_study_grows.py, test_tutorial.py, test_workflow.py and test_slurm.py.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_SERVE = """
import json, os, sys
from snakemake.cli import main
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry
ExecutorPluginRegistry()
for line in sys.stdin:
    asked = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[name], os.O_WRONLY), number)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[:0] = filter(None, asked["environment"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["snakemake", *asked["arguments"]]
    main()
    sys.exit()
"""


@cache
def _server() -> subprocess.Popen:
    """What forks, until this process ends."""
    server = subprocess.Popen([sys.executable, "-P", "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def snakemake(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `snakemake` does with these arguments in `folder`."""
    server = _server()
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        asked = {
            "arguments": [str(each) for each in arguments],
            "folder": str(folder.absolute()),
            "environment": dict(os.environ),
        }
        server.stdin.write(json.dumps({**asked, "out": out.name, "err": err.name}) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess(["snakemake", *asked["arguments"]], status, out.read(), err.read())
