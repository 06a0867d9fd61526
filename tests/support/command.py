"""`bench` in this process: a start of its own takes a second of a core."""

import io
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from bench.cli import main
from tests.support.study import ROOT


def bench(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What a command does, prints, and returns in `cwd`."""
    words = [str(each) for each in arguments]
    with chdir(cwd), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            status = main(words)
        except SystemExit as ended:
            status = ended.code or 0
    return subprocess.CompletedProcess(["bench", *words], status, out.getvalue(), err.getvalue())
