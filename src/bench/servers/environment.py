"""Build the environment that an engine runs in, from its locks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.errors import BenchError
from bench.runs.files import checksum, read, write_record
from bench.runs.launch import EngineRecord
from bench.servers import guard
from bench.servers.deployment import Engine
from bench.servers.engines import managed
from bench.shipped import located

_TORCH = re.compile(r"^torch==[\w.]+\+(\w+)", re.MULTILINE)  # a build that PyTorch's own index has, by its label


def prepare_engine(name: str, engine: Engine, record: Path, say: Callable[[str], None]) -> None:
    """Make `engine` ready and write `record`: the server's command and what it is made of.

    Args:
        record: `engine.json`; an environment is built in `env/` beside it.
        say: takes progress lines.

    Raises:
        BenchError: a command or an interpreter is missing, or an installer failed; its last lines are in the message.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    program = refuse_unready(name, engine)
    ready = EngineRecord(engine=name, source=engine.source, device=engine.backend)
    if engine.source == "lock":
        ready = _built(ready, program, engine.locks, record, say)
    elif engine.source == "command":
        ready = replace(ready, command=(program, *(engine.command or ())[1:]))
    write_record(ready, record)


def refuse_unready(name: str, engine: Engine, record: Path | None = None) -> str:
    """Look for what `engine` needs of this machine, before anything is installed or started; where its program is.

    Args:
        record: its `engine.json`, where the engine is ready: its programs count then, not those on PATH.

    Raises:
        BenchError: its command, interpreter, compiler or library is missing.
    """
    if engine.source == "external":
        return ""
    key, program = ("python", engine.python) if engine.source == "lock" else ("command", (engine.command or [""])[0])
    if record:
        program = (read(EngineRecord, record).command or ("",))[0]
    if (found := shutil.which(program)) is None:
        raise BenchError(
            f"engines.{name}: {record} names {program!r}, which is not there. Remove that file, and the next workflow makes the "
            "engine ready again."
            if record
            else f"engines.{name}.{key}: {program!r} is not on PATH. Install it, or name another one."
        )
    if engine.source == "lock":
        where = [found, "-c", "import sysconfig; print(sysconfig.get_path('include'))"]
        if lacking := managed(engine.kind).lacks(engine.backend, lambda: Path(_run(where, f"engine {name}").strip())):
            raise BenchError(f"engines.{name}: {lacking}")
    return found


def _built(
    ready: EngineRecord, interpreter: str, locks: Sequence[str], record: Path, say: Callable[[str], None]
) -> EngineRecord:
    """`ready`, with the interpreter of the finished environment, made from `interpreter`; as a path from the working directory, as a
    project may be moved.
    """
    folder, what = record.parent / "env", f"engine {ready.engine}"
    python, made = folder / "bin" / "python", folder / "made-from"
    files = [located(lock) for lock in locks]
    made_from = f"{interpreter}\n" + "".join(file.read_text(encoding="utf-8") for file in files)
    if not made.exists() or made.read_text(encoding="utf-8") != made_from:
        _refuse_to_empty(what, folder)
        begin = time.monotonic()
        say(f"{what}: a new environment in {folder}")
        _run_guarded([interpreter, "-m", "venv", "--clear", str(folder)], what)
        for file in files:
            say(f"{what}: installing the {len(requirements(file))} packages of {file}")
            install(what, python, file)
        # Last: a build that was interrupted begins again, from the installers' caches.
        made.write_text(made_from, encoding="utf-8")
        say(f"{what}: ready in {folder}, {time.monotonic() - begin:.0f} s")
    return replace(
        ready,
        command=(str(python),),
        locks={lock: checksum(file) for lock, file in zip(locks, files, strict=True)},
        freeze=tuple(_run([str(python), "-m", "pip", "list", "--format=freeze"], what).split()),
    )


def _refuse_to_empty(what: str, folder: Path) -> None:
    """Raise if an environment is somebody else's: it is reached through a link from this project's engines."""
    here = (folder, folder.parent, folder.parent.parent)
    if folder.exists() and (link := next((each for each in here if each.is_symlink()), None)):
        raise BenchError(
            f"{what}: {link} links to {folder.resolve()}, an environment with other packages or another interpreter. Others may use "
            "it, so nothing was changed. Remove the link; or, if nobody else uses it, that environment."
        )


def requirements(lock: Path) -> list[str]:
    """Requirements of a lock file, each with its hashes."""
    entries: list[str] = []
    for line in lock.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith((" ", "\t")) and entries:
            entries[-1] += line
        elif line.strip() and not line.startswith("#"):
            entries.append(line)
    return entries


def index_of(lock: Path) -> str | None:
    """PyTorch's own package index, where a lock pins a build that PyPI has not; else None."""
    build = _TORCH.search(lock.read_text(encoding="utf-8"))
    return f"https://download.pytorch.org/whl/{build[1]}" if build else None


def install(what: str, python: Path, lock: Path) -> None:
    """Install a lock: with uv, which is ten times faster; with pip, which knows the machine's own settings, where that fails.

    A lock with a build that PyPI has not, such as `torch==2.13.0+cpu`, is for pip alone. PyTorch's own index is asked second: each
    package asked of an index that cannot be reached costs seconds of retries.

    Args:
        what: it belongs to, for messages.
    """
    pinned = ["--no-deps", "--require-hashes", "-r", str(lock)]
    # Neither compiles: a first start compiles what it imports, a sixth of what there is.
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python), *pinned]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *pinned]
    index = index_of(lock)
    if _guarded(pip if index else uv, installer_environment())[0]:
        _run_guarded(pip, what, installer_environment(index))


def installer_environment(index: str | None = None) -> dict[str, str]:
    """This environment without what would lead an installer elsewhere; uv learns of pip's mirrors.

    Args:
        index: a further package index.
    """
    kept = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    for pip, uv in (("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), ("PIP_EXTRA_INDEX_URL", "UV_INDEX")):
        if pip in kept:
            kept.setdefault(uv, kept[pip])
    if index:
        kept["PIP_EXTRA_INDEX_URL"] = " ".join(filter(None, [kept.get("PIP_EXTRA_INDEX_URL"), index]))
    return kept


def _run(command: Sequence[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    _refuse_failed(command, what, done.returncode, done.stdout + done.stderr)
    return done.stdout


def _run_guarded(command: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> None:
    _refuse_failed(command, what, *_guarded(command, environment))


def _guarded(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a command that takes a while, so that nothing of it outlives this process; its status and what it printed."""
    guarded = [sys.executable, str(guard.__file__), *command]
    with subprocess.Popen(
        guarded,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=environment,
    ) as process:
        assert process.stdout
        output = process.stdout.read()
        return process.wait(), output


def _refuse_failed(command: Sequence[str], what: str, status: int, output: str) -> None:
    if status:
        last = "\n".join(output.strip().splitlines()[-15:])
        raise BenchError(
            f"{what}: `{' '.join(command)}` failed with {status}:\n{last}\n"
            "Run again: what was downloaded is kept. On Debian, python3-venv may be missing."
        )
