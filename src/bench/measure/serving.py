"""Which processes of this machine serve an address: those that listen there, and all that descend from them."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import psutil

# They listen for a server that runs elsewhere, or in a process that does not descend from them.
_PASSING_ON = frozenset(
    [
        "docker-proxy",
        "rootlessport",
        "slirp4netns",
        "pasta",
        "conmon",
        "gvproxy",
        "wslrelay",
        "ssh",
        "sshd",
        "autossh",
        "kubectl",
        "socat",
        "cloudflared",
        "ngrok",
        "tailscaled",
        "systemd",
        "xinetd",
    ]
)
_SHELLS = frozenset(
    ["sh", "bash", "dash", "zsh", "fish", "ksh", "tmux", "screen", "login", "sshd", "make", "sudo", "su", "nohup"]
)


def servers_at(address: str) -> list[psutil.Process] | None:
    """The processes that listen where `address` leads on this machine; None where it leads elsewhere, where the system does not show
    who listens (a container's port, another user's process), or where it is one that started this process.
    """
    url = urlsplit(address)
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    try:
        wanted = {str(info[4][0]) for info in socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)}
        own = {each.address.split("%")[0] for addresses in psutil.net_if_addrs().values() for each in addresses}
        if not wanted & own and not any(ip.startswith("127.") for ip in wanted):
            return None
        connections: list[Any] = psutil.net_connections("tcp")
        listening = {
            each.pid
            for each in connections
            if each.status == psutil.CONN_LISTEN and _port(each.laddr) == port and _meets(str(each.laddr[0]), wanted)
        }
        if not listening or None in listening:
            return None
        found = list(dict.fromkeys(first_listener(psutil.Process(pid), port) for pid in listening))
        # What descends from one that started us too cannot be divided into the server's and the rest.
        ours = {psutil.Process(), *psutil.Process().parents()}
        return None if any(process in ours or process.name() in _PASSING_ON for process in found) else found
    except (OSError, psutil.Error):
        return None


def family(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Processes and all that descend from them."""
    found: set[psutil.Process] = set()
    for process in processes:
        with suppress(psutil.Error):
            found |= {process, *process.children(recursive=True)}
    return found


def may_serve_through(process: psutil.Process, servers: Collection[psutil.Process]) -> bool:
    """Whether those that listen, `servers`, may pass requests on to this process, such as an engine behind a proxy: the program that
    started them started it too, or what it listens to has been asked by them, or by nobody knows whom, in the last minute.
    """
    mine = {psutil.Process(), *psutil.Process().parents()}
    try:
        parent = process.parent()
        if parent and parent not in mine and not _starts_anything(parent) and parent in {each.parent() for each in servers}:
            return True
        line = [process, *(each for each in process.parents() if each not in mine and not _starts_anything(each))]
        ports = {port for each in line for port in _listens(each)}
        return bool(ports) and _asked(ports, {each.pid for each in family(servers)})
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # another user's
        return True


def _starts_anything(process: psutil.Process) -> bool:
    return process.pid <= 1 or process.name() in _SHELLS | _PASSING_ON


def _listens(process: psutil.Process) -> set[int]:
    return {_port(each.laddr) for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}


def _asked(ports: set[int], askers: set[int]) -> bool:
    """Whether a connection to one of `ports` is of one of `askers`, or of a process that the system does not show. One that is closed
    is shown for a minute, without its process.
    """
    for each in psutil.net_connections("tcp"):
        closed = each.status == psutil.CONN_TIME_WAIT and _port(each.laddr) in ports
        if (closed or _port(each.raddr) in ports) and (each.pid is None or each.pid in askers):
            return True
    return False


def first_listener(process: psutil.Process, port: int) -> psutil.Process:
    """The process that opened the port, of those that share it: workers that were forked hold it as their parent does."""
    parent = process.parent()
    while parent is not None and _holds(parent, port):
        process, parent = parent, parent.parent()
    return process


def _holds(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        return port in _listens(process)
    return False


def _meets(listening: str, wanted: set[str]) -> bool:
    """Whether a socket at the address `listening` gets what is sent to one of `wanted`."""
    return listening in ("0.0.0.0", "::") or listening.removeprefix("::ffff:") in wanted  # noqa: S104 - is compared with, not bound


def _port(address: Sequence[Any]) -> int:
    """0 where the address is empty."""
    return int(address[1]) if len(address) > 1 else 0
