"""One request and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.runs.request import RequestRecord

if TYPE_CHECKING:
    from bench.load.answer import Continued

_BYTES = 2**20  # bytes that any answer may have, so that none fills the memory; convention
_BYTES_A_TOKEN = 4096  # bytes more for each token that was asked for; convention: a token's chunk has some 300
_READS = 64  # reads that any answer may come in before its bytes are counted; convention
_READS_A_TOKEN = 2  # reads more for each token; convention: a chunk comes in one or two


@dataclass(eq=False, slots=True)
class Exchange:
    """One request and what became of it. Times are seconds on CLOCK_MONOTONIC, which all processes of a machine share.

    Attributes:
        index: number of the request in its run.
        payload: the request's bytes, head and body. continued: of a conversation with the server's own answers, what they are made of.
        prompt_asked, output_asked: tokens of its prompt, and tokens that it asks for. natural: whether it may end before.
        due_s: when it is to leave, since the run's start; None where an end lets it go.
        after: indices of the requests that this one waits for (the turn before it in its conversation); none for a first turn. One end
            may let several go.
        let_go: of these, the one that ended last; None until it has.
        think_s: time between that end and this one's moment.
        streamed: whether the answer comes in chunks, each with its tokens. endpoint: its name in `bench.workloads.endpoints`.
        keeps: whether its record holds the answer's text, and which prompt of its source it had: place and digest.
        request_class: its class, which its record holds; None where the workload has none.
        scheduled: when it was due; sent: just before its bytes went to a connected socket, the last time that they did.
        resent: how often they went again, as the server was closing the connection that carried them before.
        first_sent: of a request that was refused and sent again, the first time. attempts: how often it was sent, but for `resent`.
        waited_s: for how long it was held back between them, together.
        end: when its last byte was in, or it failed.
        times, reads: arrival of each read and its bytes, in order; the response's head is in the first.
        failure: `disconnect` or `timeout`, where the exchange did not end by itself. error: the system's message about its connection.
    """

    index: int
    payload: bytes = b""
    continued: Continued | None = None
    prompt_asked: int | None = None
    output_asked: int | None = None
    natural: bool = False
    due_s: float | None = None
    after: tuple[int, ...] = ()
    let_go: int | None = None
    think_s: float = 0.0
    streamed: bool = True
    endpoint: str = "completions"
    keeps: bool = False
    place: str | None = None
    digest: str | None = None
    request_class: str | None = None
    scheduled: float | None = None
    sent: float | None = None
    end: float | None = None
    times: list[float] = field(default_factory=list)
    reads: list[bytes] = field(default_factory=list)
    failure: str | None = None
    error: str | None = None
    resent: int = 0
    first_sent: float | None = None
    attempts: int = 1
    waited_s: float = 0.0


def oversized(exchange: Exchange) -> bool:
    """Whether an answer is far longer than what was asked for. Bytes are counted only of one that came in unusually many reads."""
    reads = exchange.reads
    if len(reads) <= _READS + _READS_A_TOKEN * (exchange.output_asked or 0):
        return False
    # Reads of a byte each take a hundred times their size.
    return len(reads) > _most_bytes(exchange) // 256 or sum(map(len, reads)) > _most_bytes(exchange)


def cut_off(exchange: Exchange) -> None:
    """Keep only the beginning of an answer that is oversized, and the reason."""
    exchange.error = f"the answer grew beyond {_most_bytes(exchange) // 1024:,} KiB and was cut off"
    del exchange.reads[_READS:], exchange.times[_READS:]


def _most_bytes(exchange: Exchange) -> int:
    return _BYTES + _BYTES_A_TOKEN * (exchange.output_asked or 0)


@dataclass(frozen=True)
class Assignment:
    """One process's share of a run: `host`, `port` and `tls` name the server.

    Attributes:
        exchanges: those with `due_s` leave then; those with `after` follow the end of the last of these; of the rest, `in_flight` leave
            at once and each end lets the next go.
        timeout_s: an exchange without its end so long after it was sent (the last time) fails as `timeout`.
        connections: to open before the run. spare: to keep open and idle while requests remain to be sent, so that few wait for theirs.
        honour_retry_after: whether a request that is refused is sent again after the wait that the answer asks for, unless that would
            end later than `timeout_s` after it was sent first.
        reuses: whether a connection carries one request after another. One that carries a single one is closed at `[DONE]`, as the SDKs
            do: a proxy that reads on from its server may be about to lose that connection, and gives the next request to it.
        stop_overloaded: whether those that are not due yet are withdrawn once requests plainly pile up (`bench.load.overload`).
    """

    host: str
    port: int
    tls: bool
    exchanges: Sequence[Exchange]
    timeout_s: float
    connections: int = 1
    spare: int = 0
    in_flight: int = 0
    honour_retry_after: bool = False
    reuses: bool = True
    stop_overloaded: bool = False


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
