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
from bisect import bisect_left
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
        arrived, ended = struct.unpack(STATE_FORMAT, self.state[:])
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
        command = ["taskset", "-c", core, sys.executable, "-m", "benchmarks.client.server", str(state)]
        process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        try:
            port = int(process.stdout.readline()) if process.stdout else 0
            with state.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as counters:
                yield Server(f"http://127.0.0.1:{port}", port, counters)
        finally:
            process.kill()
            process.wait()


def run_trial(client: Client, scenario: Scenario, server: Server, *, core: str, timeout_s: float) -> dict[str, Any]:
    """Measure; see `_split` and `server_figures` for what comes back.

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
            watched = _watch(process, server, scenario, timeout_s)
        dump = server.get("/dump")
        words = (folder / "output").read_text(errors="replace").strip()[-1500:]
        if watched["status"] != 0 or not dump["requests"]:
            raise RuntimeError(f"it ended with status {watched['status']} after {len(dump['requests'])} requests: {words}")
        try:
            reported = client.reported(folder)
        except (OSError, KeyError, ValueError) as error:
            raise RuntimeError(f"it left no numbers ({error!r}): {words}") from error
    seen = server_figures(dump, scenario.rate)
    chunks = seen["chunks"] or 1
    cpu = _split(watched, dump, reported.wall_s)
    run_s = cpu["connecting_s"] + cpu["streaming_s"]
    return {
        "requests": scenario.requests,
        "ideal_ms": 1e3 * scenario.ideal_s,
        "cpu": cpu,
        "us_a_request": 1e6 * run_s / len(dump["requests"]),
        "us_a_chunk": 1e6 * run_s / chunks,
        "us_a_chunk_connecting": 1e6 * cpu["connecting_s"] / chunks,
        "us_a_chunk_in_all": 1e6 * (run_s + cpu["after_s"]) / chunks,
        "reported": {
            "wall_ms": 1e3 * reported.wall_s,
            "completed": reported.completed,
            "ttft_ms": reported.ttft_ms,
            "e2e_ms": reported.e2e_ms,
        },
        "server": seen,
        "stamp_delay_ms": stamp_delays_ms(dump, reported.token_times_s) if reported.token_times_s else None,
        "sent_late_ms": summary(reported.sent_late_ms) or None,
    }


def _watch(process: subprocess.Popen[bytes], server: Server, scenario: Scenario, timeout_s: float) -> dict[str, Any]:
    """Let the client run to its end, and keep its CPU time as it grows.

    Returns:
        `status` of the process; `history`: (time, CPU seconds of it and its descendants), every 2 ms until the first arrival and
        every 20 ms after it; `drained`: when every stream had ended and no socket held unread bytes, or None; `total_s`: the
        kernel's own sum at the end.
    """
    tree = TreeCpu(process.pid)
    begin = refreshed = time.monotonic()
    history: list[tuple[float, float]] = [(begin, 0.0)]
    arrived: float = 0
    drained: float | None = None
    while True:
        time.sleep(_LOOK_LATER_S if arrived else _LOOK_S)
        if time.monotonic() - refreshed > (_REFRESH_LATER_S if arrived else _REFRESH_S):
            tree.refresh()
            refreshed = time.monotonic()
        now = time.monotonic()
        history.append((now, tree.seconds()))
        arrived, ended = server.counters()
        if drained is None and ended >= scenario.requests and not server.unread():
            drained = now
            tree.refresh()
        pid, state, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(state)
            total = usage.ru_utime + usage.ru_stime
            history.append((time.monotonic(), max(total, history[-1][1])))
            return {"status": process.returncode, "history": history, "drained": drained, "total_s": total}
        if now - begin > timeout_s:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return {"status": f"killed after {timeout_s:.0f} s", "history": history, "drained": drained, "total_s": 0.0}


def _split(watched: dict[str, Any], dump: dict[str, Any], wall_s: float) -> dict[str, float]:
    """CPU seconds, user and system, of the client and its descendants.

    `start_s` until the first connection that carried a request; `connecting_s` from there to the first request's arrival;
    `streaming_s` from there until all bytes were read and the client's own clock had stopped (some read at once and understand
    later); `after_s` from there to the exit: reports, files. `total_s` is the kernel's own sum, a check.
    """
    history, requests = watched["history"], dump["requests"]

    def spent(at: float) -> float:
        after = bisect_left(history, (at, 0.0))
        if after == 0 or after == len(history):
            return history[min(after, len(history) - 1)][1]
        (t0, c0), (t1, c1) = history[after - 1], history[after]
        return c0 + (c1 - c0) * (at - t0) / (t1 - t0)

    first_connection = min(request["accepted"] for request in requests)
    first_arrival = min(request["arrived"] for request in requests)
    end = max(watched["drained"] or history[-1][0], first_connection + wall_s)
    marks = [spent(at) for at in (first_connection, first_arrival, end)]
    return {
        "start_s": marks[0],
        "connecting_s": marks[1] - marks[0],
        "streaming_s": marks[2] - marks[1],
        "after_s": history[-1][1] - marks[2],
        "total_s": watched["total_s"],
    }
