"""The process that tests/support/forked.py starts: Snakemake and the libraries of its jobs, imported once and forked for each call and each job.

No module of `bench` is among them: a copy of the project has its own.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from snakemake import cli
from snakemake.script import PythonScript
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from tests.support.forked import ask, received

_IMPORTED = ("altair", "jinja2", "openai", "polars", "pydantic", "scipy.optimize", "scipy.stats", "vl_convert")  # by jobs


def _execute(script: PythonScript, file: str, edit: bool = False) -> None:  # noqa: ARG001 - Snakemake's own signature
    """Run a job's script in a fork, in place of `python FILE`; with the variables that Snakemake's shell would give it."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(script.threads))
    if status := ask(Path(os.environ["FORKING"]), (1, 2), script=file, environment={**os.environ, **threads}):
        raise subprocess.CalledProcessError(status, [sys.executable, file])


def _become(asked: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if file := asked.get("script"):
        sys.argv = [file]
        runpy.run_path(file, run_name="__main__")
    else:
        sys.argv = ["snakemake", *asked["arguments"]]
        cli.main()
    sys.exit()


def _serve(place: Path) -> None:
    """Fork for each that asks, and answer with the exit status; until standard input ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    ExecutorPluginRegistry()
    PythonScript.execute_script = _execute
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(place))
        listening.listen()
        gc.freeze()
        print(flush=True)  # ready
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            asking, _ = listening.accept()
            if os.fork():
                asking.close()
                while _reap(os.WNOHANG):
                    pass
                continue
            asked, descriptors = received(asking)
            if child := os.fork():
                _, status = os.waitpid(child, 0)
                asking.send(str(os.waitstatus_to_exitcode(status)).encode())
                os._exit(0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            asking.close()
            listening.close()
            _become(asked)
    while _reap():
        pass


def _reap(how: int = 0) -> bool:
    """Whether a child ended; what it used counts as this process's."""
    try:
        return os.waitpid(-1, how)[0] != 0
    except ChildProcessError:
        return False


if __name__ == "__main__":
    _serve(Path(os.environ["FORKING"]))
