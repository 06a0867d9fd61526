"""What the machine does while a run is measured, and how much of that is neither the server nor its load."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import psutil

from bench.runs.run import Host

_ASLEEP = ("idle", "iowait")
_TWICE = ("guest", "guest_nice")  # counted in user and nice already
# They listen for a server that runs elsewhere, or in a process that does not descend from them.
_PASSING_ON = (
    "docker-proxy rootlessport slirp4netns pasta conmon gvproxy wslrelay ssh sshd autossh kubectl socat cloudflared ngrok "
)
_PASSING_ON += "tailscaled systemd xinetd nginx haproxy envoy traefik caddy"
_SHELLS = "sh bash dash zsh fish ksh tmux screen login sshd make sudo su nohup systemd"  # they start anything


class HostWatch:
    """Watches the cores that this process may use, from construction.

    Args:
        whole: whether the server's processes descend from this one, so that what they use is known.
        address: else where the server answers; the program that listens there on this machine is the server.
    """

    def __init__(self, *, whole: bool, address: str | None = None) -> None:
        self._servers = [] if whole else servers_at(address) if address else None
        self._begin, self._own = core_times(), own_s()
        self._before = process_times() if self._servers else {}
        self._ahead = wall_ahead_s()

    def seen(self) -> Host:
        """Shares of those cores' time since construction."""
        now, own = core_times(), own_s() - self._own
        spent = {key: now[key] - self._begin[key] for key in now}
        total = sum(spent.values()) or 1.0
        busy = total - sum(spent.get(key, 0.0) for key in _ASLEEP)
        others = self._others_s(busy - spent.get("steal", 0.0) - own)
        return Host(
            busy_share=round(busy / total, 4),
            steal_share=round(spent.get("steal", 0.0) / total, 4),
            other_share=None if others is None else round(others / total, 4),
            clock_step_s=round(wall_ahead_s() - self._ahead, 3),
        )

    def _others_s(self, rest: float) -> float | None:
        """CPU time of what is neither the server nor its load (s); None where it is not known.

        Args:
            rest: CPU time that this process and its descendants do not explain (s).
        """
        if self._servers is None or not all(process.is_running() for process in self._servers):
            return None
        now = process_times() if self._servers else {}
        served = sum(now.get(each, 0.0) - self._before.get(each, 0.0) for each in family(self._servers))
        return max(0.0, rest - served)


def servers_at(address: str) -> list[psutil.Process] | None:
    """The programs that listen where `address` leads on this machine; None where it leads elsewhere, where the system does not show
    who listens (a container's port, another user's process), where the listener passes on to a process that is not known, or where it
    started this process too.

    A program is the topmost process above a listener that is no shell: forked workers share their parent's socket, and a launcher's
    other processes compute for the one that listens.
    """
    url = urlsplit(address)
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    try:
        wanted = {str(info[4][0]) for info in socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)}
        own = {each.address.split("%")[0] for addresses in psutil.net_if_addrs().values() for each in addresses}
        if not wanted & own and not any(ip.startswith("127.") for ip in wanted):
            return None
        connections: list[Any] = psutil.net_connections("tcp")
        listening = {each.pid for each in connections if each.status == psutil.CONN_LISTEN and _meets(each.laddr, wanted, port)}
        if not listening or None in listening:
            return None
        found = list(dict.fromkeys(_program(psutil.Process(pid)) for pid in listening))
        ours = {psutil.Process(), *psutil.Process().parents()}
        return None if any(process in ours or process.name() in _PASSING_ON.split() for process in found) else found
    except (OSError, psutil.Error):
        return None


def _program(process: psutil.Process) -> psutil.Process:
    ours = {psutil.Process(), *psutil.Process().parents()}
    while process not in ours and (parent := process.parent()):
        # What started this process too is the server's and its load's alike; only a worker that it forked is known by it.
        if parent.pid <= 1 or parent.name() in _SHELLS.split() or (parent in ours and parent != psutil.Process()):
            break
        process = parent
    return process


def _meets(listening: Sequence[Any], wanted: set[str], port: int) -> bool:
    """Whether a socket that listens there gets what is sent to a port of one of `wanted`."""
    host = str(listening[0]) if len(listening) > 1 and listening[1] == port else ""
    return host in ("0.0.0.0", "::") or host.removeprefix("::ffff:") in wanted  # noqa: S104 - is compared with, not bound


def family(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Processes and all that descend from them."""
    found: set[psutil.Process] = set()
    for process in processes:
        with suppress(psutil.Error):
            found |= {process, *process.children(recursive=True)}
    return found


def wall_ahead_s() -> float:
    """By how much the wall clock is ahead of the clock of every stamp, which stands still while the machine is suspended (s)."""
    return time.time() - time.monotonic()


def core_times() -> dict[str, float]:
    """Time of the cores that this process may use, by what they did (s)."""
    cores: list[Any] = psutil.cpu_times(percpu=True)
    mine = [cores[i] for i in os.sched_getaffinity(0) if i < len(cores)] or cores
    return {key: sum(getattr(core, key) for core in mine) for key in mine[0]._fields if key not in _TWICE}


def own_s() -> float:
    """CPU time of this process and of all that descend from it, ended ones included (s)."""
    return sum(_times(process) for process in family([psutil.Process()]))


def process_times() -> dict[psutil.Process, float]:
    """CPU time of every process (s); children that ended are left out, since the first process gets those of all others."""
    return {process: _times(process, ended=False) for process in psutil.process_iter()}


def _times(process: psutil.Process, *, ended: bool = True) -> float:
    """CPU time of a process, and of its children that ended (s)."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + ended * (times.children_user + times.children_system))
    return 0.0
