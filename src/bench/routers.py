"""The routers that are started in front of replicas, as one table: a further one is a further entry.

Sources: HAProxy's configuration manual; `--help` of vllm-router 0.1.17 and sglang-router 0.3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_HEADER = "header:NAME"  # in `balances`: any header
CHECK_S = 1.0  # time between checks of a replica (s); convention: half of HAProxy's default, a sixtieth of the others'
_FALLEN, _RISEN = 2, 1  # checks in a row after which a replica gets no requests, and some again; convention

# Without http-no-delay HAProxy holds back the first chunk of an answer for up to 0.2 s, and with reuse a connection that a server
# closes takes a request along. Answers may take as long as the client waits for them. A request that a replica refuses goes to another.
_HAPROXY = """\
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

# Their own commands import a debugging server too, with thirty packages. Both are one program, renamed and taken further.
_START = """\
import argparse, importlib, sys
name = sys.argv.pop(1)
kind = importlib.import_module(name + ".router_args").RouterArgs
parser = argparse.ArgumentParser(allow_abbrev=False)
kind.add_cli_args(parser, use_router_prefix=False)
importlib.import_module(name + ".router").Router.from_args(kind.from_cli_args(parser.parse_args())).start()
"""
# A breaker would keep a replica that was restored out of the next run. They keep connections, and send again what met one that the
# server had just closed: without that, 3 of 48 requests to llama.cpp failed.
_FLAGS = (
    *("--host", "127.0.0.1", "--port", "{port}", "--prometheus-host", "127.0.0.1", "--prometheus-port", "{metrics}"),
    *("--policy", "{balance}", "--disable-circuit-breaker"),
)
_CHECKS = (
    *("--health-check-interval-secs", f"{CHECK_S:g}"),
    *("--health-failure-threshold", str(_FALLEN), "--health-success-threshold", str(_RISEN)),
)
_POLICIES = {"roundrobin": "round_robin", "power-of-two": "power_of_two", "cache-aware": "cache_aware"}


@dataclass(frozen=True, kw_only=True)
class Router:
    """A router: what runs it, and with what.

    In `arguments` and `file`, `{port}` is where it answers, `{metrics}` a free port, `{balance}` its own name of how it deals requests
    out, and `{file}` the path of its file. The replicas' addresses follow its arguments, or are the lines `{workers}` of its file.

    Attributes:
        program: what the Python of its environment is given to run it; without a lock, a program of the machine.
        lock: the package that its environment is built of; None: it has none. missing: how a program that is not here is installed,
            and asks_version: the argument with which one that is here says `version` and its number.
        balances: its own name of each `balance` that it has; of `header:NAME`, any header, that stands for `{header}`.
        arguments: of the program. addresses: the argument ahead of the replicas' addresses.
        disaggregated: in its place where some replicas only prefill: what makes it send each request to one that prefills and then to
            one that decodes, and the arguments ahead of the address of the one and of the other; empty: it cannot.
        file: what its file holds; empty: it reads none. worker: a line of `{workers}` there.
        checks: what makes it check each replica every second, take it out after two failures, and in again after one success: further
            arguments, or words of those lines.
        health: where it says whether it serves.
    """

    program: tuple[str, ...]
    lock: str | None = None
    missing: str = ""
    asks_version: tuple[str, ...] = ()
    balances: Mapping[str, str]
    arguments: tuple[str, ...]
    addresses: str = ""
    disaggregated: tuple[str, ...] = ()
    file: str = ""
    worker: str = ""
    checks: tuple[str, ...]
    health: str = "/health"

    def own(self, balance: str) -> str | None:
        """Its own name of a `balance`; None where it does not have it."""
        kind, _, header = balance.partition(":")
        name = self.balances.get(balance) or (self.balances.get(_HEADER) if kind == "header" else None)
        return name and name.format(header=header)

    def invocation(
        self, balance: str, workers: Sequence[str], *, prefill: int = 0, port: str, metrics: int, file: Path, checked: bool
    ) -> tuple[list[str], str]:
        """The arguments of its program, and what its file holds.

        Args:
            balance: as a deployment has it. workers: addresses of the replicas. prefill: how many of them, the first ones, only
            prefill. port: where it answers. metrics: a free port. file: the path of its file. checked: whether it gets `checks`.
        """
        checks = self.checks if checked else ()
        values = {"port": port, "metrics": str(metrics), "balance": self.own(balance) or "", "file": str(file)}
        hosts = [url.removeprefix("http://") for url in workers]
        lines = [self.worker.format(number=i, host=host, checks=" ".join(checks)).rstrip() for i, host in enumerate(hosts, 1)]
        words = [word.format(**values) for word in self.arguments]
        if self.file:
            return words, self.file.format(**values, workers="\n".join(lines))
        if prefill:
            mode, of_prefill, of_decode = self.disaggregated
            placed = [word for i, url in enumerate(workers) for word in (of_prefill if i < prefill else of_decode, url)]
            return [*words, mode, *placed, *checks], ""
        return [*words, self.addresses, *workers, *checks], ""


#: By the names that `router` of a deployment takes.
ROUTERS: Mapping[str, Router] = {
    "haproxy": Router(
        program=("haproxy",),
        missing="on Debian with `apt-get install haproxy`",
        asks_version=("-v",),
        balances={"leastconn": "leastconn", "roundrobin": "roundrobin", _HEADER: "hdr({header})"},
        arguments=("-db", "-f", "{file}"),
        file=_HAPROXY,
        worker="  server replica{number} {host} {checks}",
        checks=("check", "inter", f"{CHECK_S:g}s", "fall", str(_FALLEN), "rise", str(_RISEN)),
    ),
    "vllm-router": Router(
        program=("-c", _START, "vllm_router"),
        lock="workflow/envs/vllm-router-0.1.17.lock",
        balances={**_POLICIES, "header:X-Session-ID": "consistent_hash"},
        arguments=_FLAGS,
        addresses="--worker-urls",
        disaggregated=("--vllm-pd-disaggregation", "--prefill", "--decode"),
        checks=_CHECKS,
    ),
    "sglang-router": Router(
        program=("-c", _START, "sglang_router"),
        lock="workflow/envs/sglang-router-0.3.2.lock",
        balances={**_POLICIES, "header:X-SMG-Routing-Key": "manual"},
        # By itself it writes two lines a request, and waits three minutes for answers once it is asked to end.
        arguments=(*_FLAGS, "--log-level", "warn", "--shutdown-grace-period-secs", "1"),
        addresses="--worker-urls",
        checks=_CHECKS,
        health="/readiness",  # before it knows its workers, /health says that all is well
    ),
}


def dealing_problem(router: str, balance: str) -> str | None:
    """Why a router cannot deal requests out so; None where it can. Args: as a deployment has them."""
    if ROUTERS[router].own(balance):
        return None
    return f"balance is {balance}, and {router} has {', '.join(ROUTERS[router].balances)}; give one of them"


def disaggregating_problem(router: str) -> str | None:
    """Why a router cannot send requests to a replica that prefills and then to one that decodes; None where it can."""
    if ROUTERS[router].disaggregated:
        return None
    able = [name for name, each in ROUTERS.items() if each.disaggregated]
    return f"{router} sends no request to one replica for its prefill and to another for its decode; give `router: {able[0]}`"
