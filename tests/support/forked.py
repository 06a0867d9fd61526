"""Snakemake and its jobs, forked from a process that has imported their libraries: a second and a half of a core less for each start.

Whole starts, by `make figures`, `Project.start` and beside SLURM, are those of tests/measure/test_secrets.py, test_study_grows.py,
test_killed.py, test_workflow.py and test_slurm.py.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_ROOT = Path(__file__).parents[2]
_MOST = 2**17  # bytes of a request, most of them the environment


def ask(place: Path, descriptors: Sequence[int], **asked: object) -> int:
    """The exit status of what is asked for: in this folder, with these as its output and errors."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(str(place))
        socket.send_fds(asking, [json.dumps({"folder": os.getcwd(), **asked}).encode()], descriptors)
        return int(asking.recv(64))


def received(asking: socket.socket) -> tuple[dict[str, Any], Sequence[int]]:
    """What was asked for, and the descriptors of its output and errors."""
    content, descriptors, *_ = socket.recv_fds(asking, _MOST, 2)
    return json.loads(content), descriptors


@cache
def _server() -> Path:
    """Where the process listens that forks, until this one ends."""
    folder = tempfile.TemporaryDirectory()
    place = Path(folder.name) / "forking"
    # One thread for each library of linear algebra, as Snakemake gives a job: they read it when they are imported.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "FORKING": str(place), "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-P", "-m", "tests.support.forking"]
    server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)
    server.stdout.readline()
    return place


def snakemake(
    *arguments: str | Path, folder: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """What `snakemake` does with these arguments in `folder`."""
    place = _server()
    words = [str(each) for each in arguments]
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        with Path(out.name).open("w") as to, Path(err.name).open("w") as errors:
            descriptors = to.fileno(), errors.fileno()
            asked = {"folder": str(folder.absolute()), "environment": {**environment, "FORKING": str(place)}}
            status = ask(place, descriptors, arguments=words, **asked)
        return subprocess.CompletedProcess(["snakemake", *words], status, out.read(), err.read())


@contextmanager
def _started(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], **_: object) -> Iterator[SimpleNamespace]:
    done = snakemake(*command[command.index("snakemake") + 1 :], folder=cwd, environment=env)
    yield SimpleNamespace(stderr=done.stderr.splitlines(keepends=True), returncode=done.returncode)


# What stands in for the module `subprocess` where `bench verify` starts Snakemake, so that it is forked.
FORKING = SimpleNamespace(Popen=_started, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
