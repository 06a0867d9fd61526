"""The router in front of replicas: HAProxy with a configuration of ours, or a command with the replicas' addresses filled in.

Source: HAProxy's configuration manual.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HAPROXY = "haproxy"

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


def haproxys(balance: str) -> str:
    """HAProxy's own name of a `balance`."""
    kind, _, header = balance.partition(":")
    return f"hdr({header})" if kind == "header" else balance


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
    file.write_text(_CONFIGURATION.format(port=port, balance=haproxys(balance), workers="\n".join(lines)), encoding="utf-8")
    return [program, "-db", "-f", str(file)]
