"""GPUs of one machine for sessions side by side: each has its own, whichever workflow it is of."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.errors import BenchError
from bench.measure.nvml import NvmlError, gpu_uuids
from bench.servers.gpus import gpu_names
from bench.servers.spec import DeploymentSpec

_FOLDER = Path(tempfile.gettempdir()) / "saturate-gpus"
_VARIABLE = "CUDA_VISIBLE_DEVICES"


@contextmanager
def own_gpus(
    spec: DeploymentSpec, environment: MutableMapping[str, str], say: Callable[[str], None], *, folder: Path = _FOLDER
) -> Iterator[None]:
    """Set CUDA_VISIBLE_DEVICES to GPUs that no other session of this machine has, and keep them until the end.

    It waits until as many as the server takes are free, among those that `environment` shows. A GPU is kept by a lock on a file named
    after its UUID, which the kernel releases however this process ends. Nothing is done where no server is started here, where SLURM
    gives jobs their GPUs, and where NVML cannot be used.

    Args:
        environment: of this process, which the server inherits. say: takes a line when it has to wait.
        folder: of the locks, shared by all users of the machine, so that each knows its name.

    Raises:
        BenchError: the folder or a lock is not what a session makes.
    """
    known = [] if spec.engine.source == "external" or "SLURM_JOB_ID" in environment else _known(spec, environment)
    if not known or not spec.gpus:
        yield
        return
    with ExitStack() as held:
        names = _take(known, spec.gpus, folder, held, lambda text: say(f"{spec.name}: {text}"))
        before = environment.get(_VARIABLE)
        environment[_VARIABLE] = ",".join(names)
        try:
            yield
        finally:
            del environment[_VARIABLE]
            if before is not None:
                environment[_VARIABLE] = before


def _known(spec: DeploymentSpec, environment: MutableMapping[str, str]) -> Sequence[tuple[str, str]]:
    """The GPUs to choose from, and their UUIDs: those that the deployment names itself, or that this process sees."""
    own = spec.deployment.environment
    try:
        if _VARIABLE in own:
            return gpu_uuids(gpu_names(spec, own))
        return gpu_uuids(gpu_names(spec, environment, every=True) if _VARIABLE in environment else None)
    except NvmlError:  # the preflight says why, where that matters
        return []


def _take(
    known: Sequence[tuple[str, str]], count: int, folder: Path, held: ExitStack, say: Callable[[str], None]
) -> Sequence[str]:
    """The names of `count` GPUs of `known` (name and UUID), locked until `held` closes; all of them where there are no more."""
    count = min(count, len(known))
    waiting = False
    while True:
        with ExitStack() as taken:
            names: list[str] = []
            for name, uuid in known:
                if len(names) < count and _locked(folder / f"{uuid}.lock", taken):
                    names.append(name)
            if len(names) == count:
                held.enter_context(taken.pop_all())
                return names
        if not waiting:
            say(f"waiting for {count} of GPUs {', '.join(name for name, _ in known)}; other sessions have them")
        waiting = True
        time.sleep(1)


def _locked(path: Path, taken: ExitStack) -> bool:
    """Whether the lock could be had; `taken` gives it back."""
    # Whoever was here first made what lies under this name: a pipe would be waited for, and a link lead elsewhere.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with ExitStack() as opened:
        try:
            if not path.parent.exists():
                with suppress(FileExistsError):
                    path.parent.mkdir(parents=True)
                    path.parent.chmod(0o1777)
            if path.parent.is_symlink():
                raise OSError(errno.ELOOP, "its folder is a link")
            try:
                file = os.open(path, flags)
            except FileNotFoundError:
                file = os.open(path, flags | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
            opened.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "no regular file")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise BenchError(
                f"{path}: cannot lock a GPU there: {error.strerror}. Remove {path.parent}, or export TMPDIR as another folder, the "
                "same for all sessions of this machine."
            ) from None
        taken.push(opened.pop_all())
    return True
