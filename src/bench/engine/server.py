"""A running server: started under a guard, waited for while its process is watched, stopped whatever happens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil
import requests

from bench.engine import guard
from bench.engine.left import end_left
from bench.engine.nodes import Nodes, allocated_nodes, on_node, step_environment
from bench.engine.variables import for_a_server, service_variables
from bench.engines import managed
from bench.errors import BenchError
from bench.http import api_root, get, get_models
from bench.records.environment import redacted_command, redacted_text
from bench.records.launch import Launch
from bench.statuses import UNAUTHORIZED

_TRIES = 10  # ports of another node; convention: one is nearly always free, so that ten are taken by something that takes all


class ServerDied(BenchError):
    """The server ended, or never became ready; the message holds its last words."""


class Server:
    """The server of one session, as a context: entered when it answers, left when nothing of it runs any more.

    Args:
        launch: what `resolve_launch` gave.
        cores: cores pinned to each worker of a CPU engine.
        workers: processes of a CPU engine that compute on one node, of all its engines together.
        first_worker: how many workers of other servers have the cores before theirs.
        node, host: of this SLURM job where it runs, and at which address it answers; None: here.
        log: file that takes the server's output.
        ready_timeout_s: longest wait for readiness.
        say: takes progress lines.
        headers: sent to an external one with each request.
        health: where it says whether it serves; None: where its engine does.

    Attributes:
        base_url: where it answers. workers: where the engines behind it do, if it is a router, by their names.
        argv, environment: as started.
        nodes: those of a server on several. router_version: of the router in front of it, where there is one that is known.
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
        node: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._headers, self._node = headers, node
        self._log, self._ready_timeout_s, self._say = log, ready_timeout_s, say
        self._guard: subprocess.Popen[bytes] | None = None
        self._followers: dict[str, subprocess.Popen[bytes]] = {}  # by their nodes
        self._further: list[list[str]] = []
        self._elsewhere: dict[str, str] = {}  # variables of `_further`, where they differ
        self.nodes = Nodes()
        self.router_version: str | None = None
        self.managed = launch.argv is not None
        self.workers: Mapping[str, str] = {address: address for address in launch.workers}
        self._engine = managed(launch.kind)
        self._health = health or self._engine.health
        self.ready_s = 0.0
        self.argv: list[str] = []
        self.environment: dict[str, str] = {}
        if launch.argv is not None:
            self._port = _free_at(node, host) if node else free_port()
            self.base_url = f"http://{host}:{self._port}"
            port = {"{port}": str(self._port), "{host}": host}
            if "{channel}" in launch.environment.values():
                port["{channel}"] = str(_free_at(node, host) if node else free_port(""))
            self.argv, self._afterwards = _filled(launch.argv, port), _filled(launch.afterwards or (), port)
            self._further = [_filled(argv, port) for argv in launch.further]
            given = {name: port.get(value, value) for name, value in launch.environment.items()}
            self.environment = given
            if launch.device == "cpu" and (groups := core_groups(cores, first_worker + workers)):
                places = [
                    [f"{{core {i}}}" for i in range(n * cores, (n + 1) * cores)] for n in range(first_worker, len(groups))
                ]
                here, there = (self._engine.pinned(each) for each in (groups[first_worker:], places))
                first, variables = there if node else here
                self.argv, self.environment = [*first, *self.argv], {**variables, **given}
                self._further = [[*there[0], *argv] for argv in self._further]
                self._elsewhere = {**there[1], **given}
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
        meeting: dict[str, str] = {}
        if self._further:
            self.nodes = allocated_nodes(1 + len(self._further))
            meeting = {"{head}": self.nodes.addresses[0], "{meet}": str(free_port(""))}
            self.argv = _filled(self.argv, meeting)
        variables = for_a_server(os.environ) | self.environment
        if dropped := service_variables(os.environ):
            more = f" and {len(dropped) - 1} more variables" if len(dropped) > 1 else ""
            self._say(f"not passed to the server: {dropped[0]}{more}, by which Kubernetes or Docker announces other services")
        if ended := end_left(self._log):
            self._say(f"ended what an earlier server had left: {', '.join(ended)}")
        with self._log.open("ab") as log:
            log.write(f"\n--- {time.strftime('%FT%TZ', time.gmtime())} {' '.join(redacted_command(self.argv))}\n".encode())
        there = on_node(self._node) if self._node else []
        self._guard = self._guarded(self.argv, there, step_environment(variables) if self._node else variables)
        for name, argv in zip(self.nodes.names[1:], self._further, strict=True):
            self._followers[name] = self._guarded(
                _filled(argv, meeting), on_node(name), step_environment(variables | self._elsewhere)
            )

    def _guarded(self, argv: Sequence[str], there: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """The guard of a command, started.

        Args:
            there: what runs it on another node, and passes on what it reads.
        """
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*there, sys.executable, str(guard.__file__), json.dumps(self._afterwards), *argv],
                stdin=subprocess.PIPE,  # the guard ends the server when this end closes
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
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
        if self._afterwards or self._guard is None or self._node:  # of a container or another node they are not ours to list
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
        """How its process ended, as a verb; of several, first that of another node, without which none goes on."""
        for name, follower in self._followers.items():
            if (status := follower.poll()) is not None:
                return f"lost its process on node {name}, which {_how(status).rstrip(',')},"
        return _how(self._guard.poll() if self._guard else None)

    def running(self) -> bool:
        """Whether the process is alive, and so are those on other nodes; an external server is taken to be."""
        return not self.managed or (
            self._guard is not None and all(each.poll() is None for each in (self._guard, *self._followers.values()))
        )

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
        """The end of its log, for an error message, and what to do about it where that is known."""
        content = redacted_text(self._log.read_bytes(), os.environ, self.environment) if self._log.exists() else b""
        lines = content.decode(errors="replace").splitlines()
        started = max((i for i, line in enumerate(lines) if line.startswith("--- ")), default=0)
        # argparse, and so vLLM, ends pages of usage with the one line that counts: `…: error: unrecognized arguments: --flag`.
        errors = [line for line in lines[started + 1 :] if "Error" in line or "error: " in line][-5:] or lines[-15:]
        words = f"Its last words ({self._log}):\n" + "\n".join(f"    {line[:400]}" for line in errors)
        remedy = self._engine.remedy("\n".join(lines[started:]))
        return f"{words}\n{remedy}" if remedy else words

    def _guards(self) -> list[subprocess.Popen[bytes]]:
        return [each for each in (self._guard, *self._followers.values()) if each is not None]

    def ask_to_stop(self) -> None:
        """Begin to end the server, and return at once: several end at the same time so."""
        for each in self._guards():
            assert each.stdin is not None
            each.stdin.close()

    def kill(self) -> None:
        """Kill the server and everything that it started at once, as a crash would; its guard ends by itself."""
        for each in self._guards():
            with suppress(psutil.NoSuchProcess):
                for inner in psutil.Process(each.pid).children():  # the half of the guard that holds the command
                    for process in inner.children(recursive=True):
                        with suppress(psutil.NoSuchProcess):
                            process.kill()

    def stop(self) -> None:
        """End the server and everything that it started; return when nothing of it runs. Does nothing to an external one."""
        guards = self._guards()
        if not guards:
            return
        self.ask_to_stop()
        for each in guards:
            try:
                each.wait(timeout=guard.GRACE_S + 20)
            except subprocess.TimeoutExpired:  # the guard kills by force after its grace; this cannot last
                each.kill()
                each.wait()
        self._guard, self._followers = None, {}
        if any(each.returncode < 0 for each in guards):  # killed: it may not have ended all that it held
            end_left(self._log, [each.pid for each in guards])
            if self._afterwards:  # a container that is gone is removed once more, in vain
                subprocess.run(self._afterwards, stdin=subprocess.DEVNULL, capture_output=True)
        self._hide_secrets()

    def _hide_secrets(self) -> None:
        """Take out of its log what it printed of the secrets that it was given."""
        content = self._log.read_bytes()
        if (clean := redacted_text(content, os.environ, self.environment)) != content:
            self._log.write_bytes(clean)


def free_port(address: str = "127.0.0.1") -> int:
    """A port that is free now at an address of this machine; at all of them, where it is empty."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _free_at(node: str, host: str) -> int:
    """A port of another node at which nobody answers: the session cannot look at its sockets.

    Raises:
        BenchError: somebody answers at each that was tried.
    """
    for _ in range(_TRIES):
        port = free_port("")
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError:
            return port
    raise BenchError(
        f"{node}: somebody answers at each of {_TRIES} ports of {host}, so that no replica can be started there. See what listens with "
        f"`srun --nodelist={node} ss -ltn`, and end it."
    )


def _filled(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command line with `values` in place of what stands for them."""
    filled = list(argv)
    for name, value in values.items():
        filled = [word.replace(name, value) for word in filled]
    return filled


def _how(status: int | None) -> str:
    """How a guard's command ended, by the guard's status, as a verb."""
    if status is not None and status < 0:
        return f"lost its guard, which was killed by signal {-status},"
    number = (status or 0) - guard.SIGNALLED
    if number in list(signal.Signals):
        return f"was killed by {signal.Signals(number).name}" + (", often for memory," if number == signal.SIGKILL else "")
    return "ended"


def core_groups(cores: int, workers: int) -> list[list[int]]:
    """The cores of each worker of a CPU engine: `cores` of those this process may use. With one core in all, and of no cores, there is
    nothing to pin.

    Raises:
        BenchError: the workers need more cores than there are.
    """
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if not cores or (len(allowed) == 1 and workers == 1):
        return []
    if cores * workers > len(allowed):
        raise BenchError(
            f"cores is {cores}"
            + (f" for each of {workers} workers, {cores * workers} together" if workers > 1 else "")
            + f", and this process may use {len(allowed)}. Lower cores"
            + (" or the deployment's parallelism" if workers > 1 else "")
            + "."
        )
    return [allowed[i * cores : (i + 1) * cores] for i in range(workers)]
