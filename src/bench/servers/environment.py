"""Build the environment that an engine runs in, from its locks; interrupted, it goes on where it stopped."""

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
_BATCH = 25  # packages an installer call: small enough for a progress line every few seconds


def prepare_engine(name: str, engine: Engine, record: Path, say: Callable[[str], None]) -> None:
    """Make `engine` ready and write `record`: the server's command and what it is made of.

    Args:
        record: `engine.json`; an environment is built in `env/` beside it.
        say: takes progress lines.

    Raises:
        BenchError: a command or an interpreter is missing, or an installer failed; its last lines are in the message.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    refuse_unready(name, engine)
    ready = EngineRecord(engine=name, source=engine.source, device=engine.backend)
    if engine.source == "lock":
        python = _found(name, "python", engine.python)
        ready = _built(ready, f"engine {name}", python, engine.locks, indexed_locks(engine), record, say)
    elif engine.source == "command":
        assert engine.command is not None
        ready = replace(ready, command=(_found(name, "command", engine.command[0]), *engine.command[1:]))
    elif engine.source == "container":
        ready = replace(ready, command=("python3",))  # in the image; `deploy` puts the runtime before it
    write_record(ready, record)


def refuse_unready(name: str, engine: Engine, record: Path | None = None) -> None:
    """Look for what `engine` needs of this machine, before anything is installed or started.

    Args:
        record: its `engine.json`, where the engine is ready: its programs count then, not those on PATH.

    Raises:
        BenchError: its command, interpreter, compiler, library or container runtime is missing.
    """
    if engine.source == "lock":
        interpreter = _ready(name, record) if record else _found(name, "python", engine.python)
        if lacking := managed(engine.kind).lacks(engine.backend, lambda: _headers(name, interpreter)):
            raise BenchError(f"engines.{name}: {lacking}")
    elif engine.source == "command":
        _ready(name, record) if record else _found(name, "command", (engine.command or [""])[0])
    elif engine.source == "container":
        runtime = container_runtime()
        if runtime is None:
            raise BenchError(f"engines.{name}.image: neither docker nor podman is on PATH. Install one of them.")
        if why := _silent(runtime):
            raise BenchError(f"engines.{name}.image: {why}")


def _found(name: str, key: str, program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise BenchError(f"engines.{name}.{key}: {program!r} is not on PATH. Install it, or name another one.")
    return found


def _ready(name: str, record: Path) -> str:
    program = (read(EngineRecord, record).command or ("",))[0]
    if shutil.which(program) is None:
        raise BenchError(
            f"engines.{name}: {record} names {program!r}, which is not there. Remove that file, and the next workflow makes the "
            "engine ready again."
        )
    return program


def container_runtime() -> str | None:
    """What runs images here: docker, or podman where docker does not answer; None where neither is on PATH."""
    there = [name for name in ("docker", "podman") if shutil.which(name)]
    return next((name for name in there[:-1] if not _silent(name)), there[-1] if there else None)


def _silent(runtime: str) -> str | None:
    """Why a container runtime does not answer: its daemon is down, or this user may not use it. None where it does."""
    try:
        done = subprocess.run([runtime, "info"], capture_output=True, encoding="utf-8", errors="replace", timeout=30)
    except subprocess.TimeoutExpired:
        return f"`{runtime} info` did not end within 30 s. Restart {runtime}."
    if not done.returncode:
        return None
    reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1][:300].rstrip(".")
    return f"`{runtime} info` failed ({reason}). Start {runtime}, and check that you may use it."


def _built(
    ready: EngineRecord,
    what: str,
    interpreter: str,
    locks: Sequence[str],
    indexed: Sequence[tuple[Path, str | None]],
    record: Path,
    say: Callable[[str], None],
) -> EngineRecord:
    """`ready`, with the interpreter of the finished environment as a path from the working directory: a project may be moved.

    Args:
        what: is built, for messages. interpreter: that it is made from. indexed: the files of `locks`, as of `indexed_locks`.
    """
    folder = record.parent / "env"
    python, made = folder / "bin" / "python", folder / "made-from"
    made_from = f"{interpreter}\n" + "".join(file.read_text(encoding="utf-8") for file, _ in indexed)
    if not made.exists() or made.read_text(encoding="utf-8") != made_from:
        _refuse_to_empty(what, folder)
        say(f"{what}: a new environment in {folder}")
        _run_guarded([interpreter, "-m", "venv", "--clear", str(folder)], what)
        made.write_text(made_from, encoding="utf-8")  # an interrupted build resumes from here
    begin, done = time.monotonic(), 0
    wanted = [(index, requirements(lock)) for lock, index in indexed]
    batches = [(index, entries[i : i + _BATCH]) for index, entries in wanted for i in range(0, len(entries), _BATCH)]
    total = sum(len(batch) for _, batch in batches)
    part = folder / "batch.txt"
    interrupted = part.read_text(encoding="utf-8") if part.exists() else None
    for index, batch in batches:
        content = "".join(batch)
        part.write_text(content, encoding="utf-8")
        # Of a package that was interrupted its metadata may be there, and half of its files: an installer takes it for installed.
        install_batch(what, python, part, index, anew=content == interrupted)
        part.unlink()
        done += len(batch)
        say(f"{what}: {done} of {total} packages, {time.monotonic() - begin:.0f} s")
    say(f"{what}: ready in {folder}, {time.monotonic() - begin:.0f} s")
    return replace(
        ready,
        command=(str(python),),
        locks={lock: checksum(file) for lock, (file, _) in zip(locks, indexed, strict=True)},
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


def _headers(name: str, interpreter: str) -> Path:
    return Path(_run([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('include'))"], f"engine {name}").strip())


def indexed_locks(engine: Engine) -> list[tuple[Path, str | None]]:
    """The engine's lock files, each with a further package index or None: PyTorch's own, where it pins a build that PyPI has not.

    Each package asked of an index that cannot be reached costs seconds of retries: the default ones are tried alone first.
    """
    files = [located(lock) for lock in engine.locks]
    found = [(file, _TORCH.search(file.read_text(encoding="utf-8"))) for file in files]
    return [(file, f"https://download.pytorch.org/whl/{build[1]}" if build else None) for file, build in found]


def requirements(lock: Path) -> list[str]:
    """Requirements of a lock file, each with its hashes."""
    entries: list[str] = []
    for line in lock.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith((" ", "\t")) and entries:
            entries[-1] += line
        elif line.strip() and not line.startswith("#"):
            entries.append(line)
    return entries


def install_batch(what: str, python: Path, part: Path, index: str | None, *, anew: bool = False) -> None:
    """Install one batch: with uv, which is ten times faster; with pip, which knows the machine's own settings, where that fails.

    Args:
        what: it belongs to, for messages. anew: whether to install also what seems to be installed.
    """
    pinned = ["--no-deps", "--require-hashes", "-r", str(part)]
    # Neither compiles: a first start compiles what it imports, a sixth of what there is.
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python), *pinned]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *pinned]
    if anew:
        uv.append("--reinstall")
        pip.append("--ignore-installed")
    attempts = [(uv, None), (pip, None)] if index is None else [(pip, None), (pip, index)]
    for command, further in attempts[:-1]:
        if _guarded(command, installer_environment(further))[0] == 0:
            return
    command, further = attempts[-1]
    _run_guarded(command, what, installer_environment(further))


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
    guarded = [sys.executable, str(guard.__file__), "[]", *command]
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
            "What was installed is kept; run again to go on. On Debian, python3-venv may be missing."
        )
