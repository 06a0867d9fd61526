"""What a session sends to a load process, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from bench.load.exchange import Exchange
from bench.runs.request import RequestRecord


@dataclass(frozen=True)
class Assignment:
    """One process's share of a run.

    Attributes:
        host, port, tls: the server. connections: to open before the run. spare: to keep open beyond those in use.
        in_flight: of the exchanges without a moment of their own, how many are held in flight.
        honour_retry_after: whether a refused request is sent again when its answer says.
        reuses: whether a connection carries one request after another.
        stop_overloaded: whether a run that is plainly overloaded ends early (`bench.load.overload`).
    """

    host: str
    port: int
    tls: bool
    exchanges: list[Exchange]
    connections: int
    spare: int
    in_flight: int
    timeout_s: float
    honour_retry_after: bool = False
    stop_overloaded: bool = False
    reuses: bool = True


@dataclass(frozen=True)
class Report:
    """What became of it. Times are seconds on CLOCK_MONOTONIC.

    Attributes:
        records: one a request, but for those that were withdrawn. end: when the last exchange had ended.
        lags: how late each tick of a 10 ms timer was served (s). cpu_s: CPU time between start and end.
        reads: pieces of answers that were stamped. realtime: whether it was sent at real-time priority.
        clock_skew_s: by how much the process's clock lies outside what the session's allows (s); 0 on one machine.
        stopped: when the rest was withdrawn; None where everything was sent.
    """

    records: list[RequestRecord]
    end: float
    lags: list[float]
    cpu_s: float
    reads: int
    realtime: bool
    stopped: float | None = None
    clock_skew_s: float = 0.0
