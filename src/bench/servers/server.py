"""A running server: started under a guard, waited for while its process is watched, stopped whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import psutil
import requests

from bench.bounds import LOOK_S, SOON_S
from bench.errors import BenchError, count_text
from bench.headers import UNAUTHORIZED
from bench.http import api_root, get, get_models
from bench.runs.environment import for_a_server, redacted_command, service_variables, without_secrets
from bench.runs.launch import Launch
from bench.servers import guard
from bench.servers.engines import managed

_OUTPUTS = (1, 2)


class ServerDied(BenchError):
    """The server ended, or never became ready; the message holds its last words."""


class Server:
    """The server of one session, as a context: entered when it answers, left when nothing of it runs any more.

    Args:
        launch: what `resolve_launch` gave.
        cores: cores pinned to each worker of a CPU engine.
        workers: processes of a CPU engine that compute, of all its engines together.
        first_worker: how many workers of other servers have the cores before theirs.
        log: file that takes the server's output.
        ready_timeout_s: longest wait for readiness.
        say: takes progress lines.
        headers: sent to an external one with each request.
        health: where it says whether it serves; None: where its engine does.

    Attributes:
        base_url: where it answers. workers: where the engines behind it do, if it is a router, by their names.
        argv, environment: as started.
        router_version: of the router in front of it, where there is one that is known.
        ready_s: seconds from start to readiness.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        cores: int,
        workers: int,
        log: Path,
        ready_timeout_s: float,
        say: Callable[[str], None],
        headers: Mapping[str, str] | None = None,
        first_worker: int = 0,
        health: str | None = None,
    ) -> None:
        self._headers = headers
        self._log, self._ready_timeout_s, self._say = log, ready_timeout_s, say
        self._guard: subprocess.Popen[bytes] | None = None
        self.router_version: str | None = None
        self.managed = launch.argv is not None
        self.workers: Mapping[str, str] = {address: address for address in launch.workers}
        self._engine = managed(launch.kind)
        self._health = health or self._engine.health
        self.ready_s = 0.0
        self.argv: list[str] = []
        self.environment: dict[str, str] = {}
        if launch.argv is not None:
            self._port = free_port()
            self.base_url = f"http://127.0.0.1:{self._port}"
            self.argv = [word.replace("{port}", str(self._port)) for word in launch.argv]
            self.environment = dict(launch.environment)
            if launch.device == "cpu" and (groups := core_groups(cores, first_worker + workers)):
                first, variables = self._engine.pinned(groups[first_worker:])
                self.argv, self.environment = [*first, *self.argv], {**variables, **launch.environment}
        elif launch.base_url is None:
            raise BenchError(
                f"{launch.deployment}: its launch names neither a command nor an address. Resolve the deployment again."
            )
        else:
            self.base_url = api_root(launch.base_url)

    def __enter__(self) -> Server:
        try:
            if self.managed:
                self.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start its process; what an earlier server left is ended first."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._begun = time.monotonic()
        variables = for_a_server(os.environ) | self.environment
        if dropped := service_variables(os.environ):
            self._say(f"not passed to the server: {', '.join(dropped)}, by which Kubernetes or Docker announces other services")
        if ended := end_left(self._log):
            self._say(f"ended what an earlier server had left: {', '.join(ended)}")
        with self._log.open("ab") as log:
            log.write(f"\n--- {time.strftime('%FT%TZ', time.gmtime())} {' '.join(redacted_command(self.argv))}\n".encode())
            log.flush()
            self._guard = subprocess.Popen(
                [sys.executable, str(guard.__file__), *self.argv],
                stdin=subprocess.PIPE,  # the guard ends the server when this end closes
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,  # Ctrl-C reaches the session alone, which ends the server in order
            )

    def wait(self) -> None:
        """Return when the server answers.

        Raises:
            ServerDied: its process ended, or the time is over.
        """
        begin = time.monotonic()
        logged = begin
        while not self.answers():
            waited = time.monotonic() - begin
            if self.managed and not self.running():
                raise ServerDied(f"The server {self.ending()} {waited:.0f} s after its start. {self.last_words()}")
            if waited > (self._ready_timeout_s if self.managed else 10):
                hint = self.last_words() if self.managed else "Check the address; it is not ours to start."
                raise ServerDied(f"{self.base_url} did not answer within {waited:.0f} s. {hint}")
            if time.monotonic() - logged > 15:
                logged = time.monotonic()
                self._say(f"waiting for the server, {waited:.0f} s so far; its log: {self._log}")
            time.sleep(0.25)
        if self.managed and (others := self._others()):
            raise ServerDied(f"Port {self._port} was taken meanwhile, by {', '.join(others)}.")
        self.ready_s = time.monotonic() - (self._begun if self.managed else begin)

    def _others(self) -> list[str]:
        """Who else listens on the server's port: it would get the requests, or a share of them (vLLM listens with SO_REUSEPORT)."""
        if self._guard is None:
            return []
        try:
            ours = {self._guard.pid, *(process.pid for process in psutil.Process(self._guard.pid).children(recursive=True))}
            listening = {
                each.pid
                for each in psutil.net_connections("tcp")
                if each.status == psutil.CONN_LISTEN and each.laddr[1:2] == (self._port,)
            }
            return [f"{psutil.Process(pid).name()} (process {pid})" for pid in listening if pid is not None and pid not in ours]
        except psutil.Error:  # the system does not say, or a process ended meanwhile
            return []

    def ending(self) -> str:
        """How its process ended, as a verb, by its guard's status."""
        status = (self._guard.poll() if self._guard else None) or 0
        if status < 0:
            return f"lost its guard, which was killed by signal {-status},"
        number = status - guard.SIGNALLED
        if number in list(signal.Signals):
            return f"was killed by {signal.Signals(number).name}" + (", often for memory," if number == signal.SIGKILL else "")
        return "ended"

    def running(self) -> bool:
        """Whether the process is alive; an external server is taken to be."""
        return not self.managed or (self._guard is not None and self._guard.poll() is None)

    def answers(self) -> bool:
        """Whether the server is ready to serve."""
        try:
            if self.managed:
                return get(self.base_url + self._health).status_code < 400
            status = get_models(self.base_url, key=os.environ.get("OPENAI_API_KEY"), headers=self._headers).status_code
        except requests.RequestException:
            return False
        # A gateway may have no list of models, or limit how often it is asked; what it does not forgive is a wrong key.
        return status < 500 and status not in UNAUTHORIZED

    def last_words(self) -> str:
        """The end of its log, for an error message."""
        content = without_secrets(self._log.read_bytes(), os.environ, self.environment) if self._log.exists() else b""
        lines = content.decode(errors="replace").splitlines()
        started = max((i for i, line in enumerate(lines) if line.startswith("--- ")), default=0)
        # argparse, and so vLLM, ends pages of usage with the one line that counts: `…: error: unrecognized arguments: --flag`.
        errors = [line for line in lines[started + 1 :] if "Error" in line or "error: " in line][-5:] or lines[-15:]
        return f"Its last words ({self._log}):\n" + "\n".join(f"    {line[:400]}" for line in errors)

    def ask_to_stop(self) -> None:
        """Begin to end the server, and return at once: several end at the same time so."""
        if self._guard:
            assert self._guard.stdin is not None
            self._guard.stdin.close()

    def stop(self) -> None:
        """End the server and everything that it started; return when nothing of it runs. Does nothing to an external one."""
        if self._guard is None:
            return
        self.ask_to_stop()
        try:
            self._guard.wait(timeout=guard.GRACE_S + 20)
        except subprocess.TimeoutExpired:  # the guard kills by force after its grace; this cannot last
            self._guard.kill()
            self._guard.wait()
        held, self._guard = self._guard, None
        if held.returncode < 0:  # killed: it may not have ended all that it held
            end_left(self._log, [held.pid])
        content = self._log.read_bytes()
        if (clean := without_secrets(content, os.environ, self.environment)) != content:
            self._log.write_bytes(clean)


@contextmanager
def blaming(server: Server) -> Iterator[None]:
    """Where something fails because the server is dead, say that instead."""
    try:
        yield
    except BenchError:
        refuse_dead(server)
        raise


def refuse_dead(server: Server) -> None:
    """Raise ServerDied where the process is gone or no longer answers; a server that is dying is given the time to."""
    for _ in range(int(SOON_S / LOOK_S)):
        if not server.running():
            break
        if server.answers():
            return
        time.sleep(LOOK_S)
    how = server.ending() if not server.running() else "no longer answered"
    raise ServerDied(f"The server {how} while it was measured. {server.last_words()}")


def refuse_ended(server: Server) -> None:
    """Raise ServerDied where the process is gone; asks nothing of the server, so that it may be called during a load."""
    if not server.running():
        refuse_dead(server)


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def core_groups(cores: int, workers: int) -> list[list[int]]:
    """The cores of each worker of a CPU engine: `cores` of those this process may use. With one core in all, and of no cores, there is
    nothing to pin.

    Raises:
        BenchError: the workers need more cores than there are.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if not cores or (len(allowed) == 1 and workers == 1):
        return []
    if cores * workers > len(allowed):
        raise BenchError(
            f"cores is {cores} ({count_text(workers, 'worker')}: {cores * workers} together), but this process may use {len(allowed)}. "
            "Lower cores or the deployment's parallelism."
        )
    return [allowed[i * cores : (i + 1) * cores] for i in range(workers)]


def end_left(log: Path, sessions: Collection[int] = ()) -> list[str]:
    """End what a server left, and return when nothing of it runs; of a server that a guard holds for good, nothing.

    A process belongs to the server if it is in one of its `sessions`, or if it writes to its log. Both survive what programs do to
    themselves: vLLM's processes overwrite their names and variables, and one that calls setsid still has its output.

    Args:
        log: takes the output of the server and all that it starts. sessions: ids of its guards' sessions; the guards are dead.

    Returns:
        The names of the processes that were ended.
    """
    ended: dict[int, str] = {}
    ending = time.monotonic() + guard.GRACE_S + 2
    while (found := list(_left(log, sessions))) and time.monotonic() < ending:
        # One that lives is another session's, or that of a session that was killed, and about to end its server.
        if not any(map(_is_guard, found)):
            for process in found:
                with suppress(psutil.Error):
                    ended.setdefault(process.pid, process.name())
                    process.kill()
        time.sleep(0.05)
    return list(ended.values())


def _left(log: Path, sessions: Collection[int]) -> Iterator[psutil.Process]:
    # The kernel reuses a session's number once nobody is in the session: whoever leads it then is a stranger.
    sessions = [each for each in sessions if not psutil.pid_exists(each)]
    with suppress(FileNotFoundError):
        file = log.stat()
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if os.getsid(process.pid) in sessions or _writes_to(process.pid, file):
                    yield process


def _writes_to(pid: int, file: os.stat_result) -> bool:
    """Another user's process cannot be asked, and is not ours."""
    for output in _OUTPUTS:
        with suppress(OSError):
            if os.path.samestat(Path(f"/proc/{pid}/fd/{output}").stat(), file):
                return True
    return False


def _is_guard(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return str(guard.__file__) in process.cmdline()
    return False
