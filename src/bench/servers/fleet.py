"""A fleet that is started here: replicas of one server on cores or GPUs of their own, and a router in front of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests

from bench.errors import BenchError
from bench.http import get_models
from bench.runs.launch import Launch
from bench.servers.gpus import shown_gpus
from bench.servers.server import Server

HAPROXY = "haproxy"

# Source: HAProxy's configuration manual.
# Without http-no-delay HAProxy holds back the first chunk of an answer for up to 0.2 s, and with reuse a connection that a server
# closes takes a request along. Answers may take as long as the client waits for them. A request that a replica refuses goes to another.
_CONFIGURATION = """\
defaults
  mode http
  option http-no-delay
  option redispatch 1
  http-reuse never
  timeout connect 10s
  timeout client 1d
  timeout server 1d
frontend all
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
  balance {balance}
  hash-type consistent
{workers}
"""
_GPUS = "CUDA_VISIBLE_DEVICES"
# Debian puts HAProxy where users without root do not look.
_PLACES = (os.defpath, "/usr/sbin", "/usr/local/sbin")


def router_program(command: Sequence[str]) -> str:
    """Where a router's program is. Args: command: of a router that is not HAProxy; empty: of HAProxy.

    Raises:
        BenchError: it is not here.
    """
    name = command[0] if command else HAPROXY
    found = shutil.which(name) or (None if command else shutil.which(name, path=os.pathsep.join(_PLACES)))
    if found is None:
        raise BenchError(
            f"router is {name}, which is not on this machine. "
            + ("Install it, or give its path." if command else "Install it, on Debian with `apt-get install haproxy`.")
        )
    return found


def command_of(
    command: Sequence[str], balance: str, program: str, workers: Sequence[str], *, port: str, file: Path
) -> list[str]:
    """The command of a router, whose file is written where it has one.

    Args:
        command: of a router that is not HAProxy; empty: of HAProxy. balance, program: HAProxy's.
        workers: addresses of the replicas. port: where it answers. file: for HAProxy.
    """
    if command:
        words = [word.replace("{port}", port) for word in command]
        return [each for word in words for each in (workers if word == "{workers}" else (word,))]
    hosts = [url.removeprefix("http://") for url in workers]
    lines = [f"  server replica{number} {host}" for number, host in enumerate(hosts, 1)]
    kind, _, header = balance.partition(":")
    by = f"hdr({header})" if kind == "header" else balance
    file.write_text(_CONFIGURATION.format(port=port, balance=by, workers="\n".join(lines)), encoding="utf-8")
    return [program, "-db", "-f", str(file)]


def _version(program: str) -> str | None:
    try:
        done = subprocess.run([program, "-v"], capture_output=True, encoding="utf-8", errors="replace", timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"version (\S+)", done.stdout)
    return found and found[1]


def server_of(launch: Launch, **options: Any) -> Server:
    """The server of a launch, or its replicas with their router. Args: options: as `Server` takes them.

    Raises:
        BenchError: the router is not on this machine.
    """
    return Fleet(launch, **options) if launch.router else Server(launch, **options)


class _Router(Server):
    """A router, ready once it has replicas, too: SGLang's says that it is well before it knows them."""

    def answers(self) -> bool:
        if not super().answers():
            return False
        try:
            return get_models(self.base_url, key=os.environ.get("OPENAI_API_KEY"), headers=self._headers).status_code < 500
        except requests.RequestException:
            return False


class Fleet(Server):
    """Replicas of one server behind a router, as one server: ready when each of them is, ended when one of them ends.

    Its `argv` and `environment` are those of one replica; the GPUs in it are those of all.
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
    ) -> None:
        options: dict[str, Any] = {"ready_timeout_s": ready_timeout_s, "say": say, "headers": headers}
        self._replicas = [
            Server(
                _on_gpus(replace(launch, router=None), i),
                cores=cores,
                workers=workers,
                first_worker=i * workers,
                log=log if i == 0 else log.with_name(f"{log.stem}-{i + 1}{log.suffix}"),
                **options,
            )
            for i in range(launch.replicas)
        ]
        assert launch.router is not None
        self._kind, self._file = launch.router, log.with_name("router.cfg")
        self._program = router_program(launch.router.command)
        self.router_version = None if launch.router.command else _version(self._program)
        # Ports are others at each start; a replica is the same one.
        self.workers = {f"replica {i}": each.base_url for i, each in enumerate(self._replicas, 1)}
        self._router = _Router(
            # On no device: nothing is pinned.
            replace(launch, router=None, argv=(self._program,), device="none", environment={}),
            cores=cores,
            workers=workers,
            log=log.with_name("router.log"),
            health="/health",
            **options,
        )
        first = self._replicas[0]
        self.managed, self.ready_s = True, 0.0
        self.base_url = self._router.base_url
        self.argv = first.argv
        whole = {name: value for name, value in launch.environment.items() if name == _GPUS}
        self.environment = {name: value for name, value in first.environment.items() if name != _GPUS} | whole

    def __enter__(self) -> Fleet:
        try:
            for each in self._replicas:
                each.start()
            for each in self._replicas:
                each.wait()
            workers, port = list(self.workers.values()), self.base_url.rpartition(":")[2]
            self._router.argv = command_of(
                self._kind.command, self._kind.balance, self._program, workers, port=port, file=self._file
            )
            self._router.start()
            self._router.wait()
        except BaseException:
            self.stop()
            raise
        self.ready_s = max(each.ready_s for each in self._replicas)
        return self

    @property
    def _parts(self) -> list[Server]:
        return [*self._replicas, self._router]

    def running(self) -> bool:
        """Whether the router and every replica are alive."""
        return all(each.running() for each in self._parts)

    def answers(self) -> bool:
        """Whether the router and every replica are ready to serve."""
        return all(each.answers() for each in self._parts)

    def ending(self) -> str:
        """How the first of its processes that is gone ended, as a verb."""
        for each in self._parts:
            if not each.running():
                number = "" if each is self._router else self._replicas.index(each) + 1
                name = f"replica {number} of {len(self._replicas)}" if number else "router"
                return f"lost its {name}, which {each.ending().rstrip(',')},"
        return self._replicas[0].ending()

    def last_words(self) -> str:
        """The end of the log of the first process that is gone, or that does not answer."""
        gone = [each for each in self._parts if not each.running()] or [each for each in self._parts if not each.answers()]
        return (gone or self._parts)[0].last_words()

    def stop(self) -> None:
        """End the router and every replica, and return when nothing of them runs, whatever ending one of them raises."""
        errors: list[BaseException] = []
        parts = [self._router, *reversed(self._replicas)]
        for each in parts:
            each.ask_to_stop()
        for each in parts:
            try:
                each.stop()
            except BaseException as error:  # the others must end all the same
                errors.append(error)
        if errors:
            raise errors[0]


def _on_gpus(launch: Launch, replica: int) -> Launch:
    """The launch of a replica that sees its own GPUs alone: as many as each takes, in the order of the machine's."""
    each = (launch.gpus or 0) // launch.replicas
    if not each:
        return launch
    shown = shown_gpus({**os.environ, **launch.environment}) or [str(index) for index in range(each * launch.replicas)]
    own = ",".join(shown[replica * each : (replica + 1) * each])
    return replace(launch, environment={**launch.environment, _GPUS: own})
