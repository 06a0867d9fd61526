"""One client, one scenario, once."""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.client.clients import Client
from benchmarks.client.cpu import TreeCpu
from benchmarks.client.figures import server_figures, stamp_delays_ms, summary
from benchmarks.client.scenario import Scenario
from benchmarks.client.server import STATE_FORMAT

__all__ = ["Server", "run_trial", "serving"]

_ROOT = Path(__file__).resolve().parent.parent.parent
# Looking takes time from the server, whose core it shares. Before the first arrival often, for that ends the start-up; then less.
_LOOK_S, _LOOK_LATER_S = 0.002, 0.02
_REFRESH_S, _REFRESH_LATER_S = 0.25, 1.0  # how often new processes are looked for


@dataclass(frozen=True)
class Server:
    """A running server: its URL, its port, and its counters' memory."""

    url: str
    port: int
    state: mmap.mmap

    def counters(self) -> tuple[float, float]:
        """(requests arrived, requests ended), read from memory."""
        arrived, ended, _, _ = struct.unpack(STATE_FORMAT, self.state[:])
        return arrived, ended

    def get(self, page: str) -> Any:
        """A control page's JSON."""
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{self.url}{page}", timeout=60) as answer:
            return json.load(answer)

    def unread(self) -> bool:
        """Whether a client's socket still holds bytes of this server's that its process has not read."""
        remote = f":{self.port:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split(None, 5)
            if fields[2].endswith(remote) and not fields[4].endswith(":00000000"):
                return True
        return False


@contextmanager
def serving(core: str) -> Iterator[Server]:
    """A server of known truth, pinned to `core`."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:  # noqa: S108 - memory
        state = Path(folder) / "state"
        command = ["taskset", "-c", core, sys.executable, "-m", "benchmarks.client.server", "--state", str(state)]
        process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        try:
            port = int(process.stdout.readline()) if process.stdout else 0
            with state.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as counters:
                yield Server(f"http://127.0.0.1:{port}", port, counters)
        finally:
            process.kill()
            process.wait()


def run_trial(client: Client, scenario: Scenario, server: Server, *, core: str, timeout_s: float) -> dict[str, Any]:
    """Measure; see `_cpu` and `server_figures` for what comes back.

    Raises:
        RuntimeError: the client failed or took longer than `timeout_s`; its last words.
    """
    server.get("/reset")
    with tempfile.TemporaryDirectory(prefix="client-benchmark-") as name:
        folder = Path(name)
        # Absent proxies: they would stand between the client and the server.
        inherited = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        command = ["taskset", "-c", core, *client.command(scenario, server.url, folder)]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env=inherited | client.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            cpu = _watch(process, server, scenario, timeout_s)
        dump = server.get("/dump")
        words = (folder / "output").read_text(errors="replace").strip()[-1500:]
        if cpu["status"] != 0:
            raise RuntimeError(
                f"{client.name} ended with status {cpu['status']} after {len(dump['requests'])} requests: {words}"
            )
        try:
            told = client.told(folder)
        except (OSError, KeyError, ValueError) as error:
            raise RuntimeError(f"{client.name} left no figures ({error!r}): {words}") from error
    seen = server_figures(dump, scenario.rate)
    chunks = seen["chunks"] or 1
    return {
        "client": client.name,
        "scenario": scenario.name,
        "requests": scenario.requests,
        "ideal_ms": 1e3 * scenario.ideal_s,
        "cpu": cpu,
        "us_a_chunk": 1e6 * cpu["streaming_s"] / chunks,
        "us_a_chunk_in_all": 1e6 * (cpu["streaming_s"] + cpu["after_s"]) / chunks,
        "told": {
            "wall_ms": 1e3 * told.wall_s,
            "completed": told.completed,
            "ttft_ms": told.ttft_ms,
            "e2e_ms": told.e2e_ms,
        },
        "server": seen,
        "stamp_delay_ms": stamp_delays_ms(dump, told.token_times_s) if told.token_times_s else None,
        "sent_late_ms": summary(told.sent_late_ms) or None,
    }


def _watch(process: subprocess.Popen[bytes], server: Server, scenario: Scenario, timeout_s: float) -> dict[str, Any]:
    """Let the client run to its end, and split its CPU time.

    Returns:
        `status` of the process, and CPU seconds, user and system, of it and its descendants: `start_s` until the first request's
        arrival; `streaming_s` from there until every stream had ended and no socket held unread bytes; `after_s` from there to
        the exit (reports, files). `total_s` is the kernel's own sum, a check.
    """
    tree = TreeCpu(process.pid)
    begin = refreshed = time.monotonic()
    at_first = at_last = None
    status: int | None = None
    spent = 0.0
    while status is None:
        time.sleep(_LOOK_S if at_first is None else _LOOK_LATER_S)
        now = time.monotonic()
        if now - refreshed > (_REFRESH_S if at_first is None else _REFRESH_LATER_S):
            tree.refresh()
            refreshed = now
        spent = tree.seconds()
        arrived, ended = server.counters()
        if at_first is None and arrived:
            at_first = spent
        if at_last is None and ended >= scenario.requests and not server.unread():
            tree.refresh()
            at_last = tree.seconds()
        pid, state, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            status = process.returncode = os.waitstatus_to_exitcode(state)
            total = usage.ru_utime + usage.ru_stime
        elif now - begin > timeout_s:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return {"status": f"killed after {timeout_s:.0f} s"}
    at_first = at_first or 0.0
    at_last = spent if at_last is None else at_last
    spent = max(spent, total, at_last)
    return {
        "status": status,
        "start_s": at_first,
        "streaming_s": at_last - at_first,
        "after_s": spent - at_last,
        "total_s": total,
    }
