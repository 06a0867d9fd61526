"""The event loop: it sends each request at its moment and stamps every read.

What is not here is what makes it cheap: no framework between the socket and the stamp, no parsing, no garbage collection. A read
costs one system call, one look at the clock and two appends.
"""

from __future__ import annotations

import errno
import select
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from bench.load.answer import ends_in_error, follow
from bench.load.connection import READ_SIZE, UNREADABLE, Address, Connection, says_done
from bench.load.exchange import Assignment, Exchange, cut_off, oversized
from bench.load.overload import LOOKS_S, Overload
from bench.load.response import asked_wait
from bench.load.timer import Timer
from bench.workloads.pacer import Pacer

_TICK_S = 0.01  # period of the timer that shows how late the loop is (s); convention
_LOOK_AT_SIZES_S = 0.5  # time between two looks for answers that do not end (s); convention
_SILENT_S = 0.1  # silence after which what came last of an answer is looked at (s); convention: chunks come faster
_CHUNK_SIZE = 16384  # bytes of a read in the middle of a stream: what is longer comes in several; convention
_CARRIAGE_RETURN = 13  # byte that ends a line of HTTP; source: ASCII
_BRACKET = 93  # byte that ends `[DONE]`; source: ASCII
_NO_BYTE = 256  # number that is no byte; derived
# streams from which chunks come faster than a process can be woken for each; measured: docs/explanation/decisions.md, "The load
# generator"
_MANY = 256
_FEW = 16  # events of a wake below which it waits for more; measured: docs/explanation/decisions.md, "The load generator"
# time that such a wake waits for more events (s), by which stamps are late; measured: docs/explanation/decisions.md, CPU per chunk
# fell from 11.7 to 10.0 µs at 600 streams
_GATHER_S = 0.0001
_BATCH = 64  # reads after which requests that are due are looked for; convention: 64 take less than half a millisecond
_CONNECTING = 64  # connections that are opened at once, so that no listen queue overflows; convention
# idle time after which a connection is not given a request (s), as the server may be about to close it; convention: vLLM closes after
# 5 s
_IDLE_S = 3.0
_NEVER_USED = float("inf")  # a new connection is not idle in that sense
# time within which a server that closes a connection while a request is on its way is heard of (s), a round trip or until it gets to
# run: one that hangs up later has had the request; convention
_CROSSED_S = 1.0


class ParentGone(Exception):
    """The process that this one sends for has ended."""


class Loop:
    """Sends exchanges to one server.

    Args:
        watched: a descriptor whose end means that nobody waits for the result.

    Attributes:
        lags: how late each tick of a 10 ms timer was served (s): what a read's stamp can be late.
        stopped: when the exchanges that were not due yet were withdrawn, as requests piled up; None where all were sent.
    """

    def __init__(self, address: Address, assignment: Assignment, watched: int | None = None) -> None:
        self._address, self._assignment = address, assignment
        self._timeout_s, self._spare = assignment.timeout_s, assignment.spare
        self._honours, self._reuses = assignment.honour_retry_after, assignment.reuses
        self._epoll = select.epoll()
        self._table: dict[int, Connection] = {}
        # Of those connections the ones in the middle of a streamed answer, with all that a read needs.
        self._streams: dict[
            int, tuple[Callable[[int], bytes], Callable[[float], None], Callable[[bytes], None], Connection]
        ] = {}
        self._idle: list[Connection] = []
        self._opening: set[Connection] = set()
        self._homeless: deque[Exchange] = deque()  # due, and waiting for a connection
        self._send_timer, self._tick_timer = Timer(), Timer()
        self._watched = watched
        for fd in (self._send_timer.fd, self._tick_timer.fd, watched):
            if fd is not None:
                self._epoll.register(fd, select.EPOLLIN)
        self._running = False
        self.lags: list[float] = []
        self.stopped: float | None = None

    def open(self, within_s: float = 60.0) -> None:
        """Open the connections that are to be there before the run.

        Raises:
            OSError: the server does not accept them.
        """
        count, end = self._assignment.connections, time.monotonic() + within_s
        while (missing := count - len(self._idle)) > 0:
            for _ in range(min(missing, _CONNECTING) - len(self._opening)):
                self._connect()
            for fd, _ in self._epoll.poll(1.0):
                if fd in self._table:
                    self._proceed(self._table[fd])
                elif fd == self._watched:
                    raise ParentGone
            if time.monotonic() > end:
                raise TimeoutError(f"{count - len(self._idle)} of {count} connections were not open after {within_s:g} s")

    def run(self, start: float) -> None:
        """Send every exchange, and return when the last has ended. Args: start: the run's start on the monotonic clock.

        Raises:
            OSError: the system gives no more descriptors.
        """
        exchanges = self._assignment.exchanges
        self._running, self._left, self._asked = True, len(exchanges), len(exchanges)
        self._overload = Overload(exchanges, start) if self._assignment.stop_overloaded else None
        self._pacer = Pacer(exchanges, self._assignment.in_flight, start=start)
        self._to_send = len(exchanges)
        self._sent: deque[tuple[float, Exchange, Connection]] = deque()
        self._arm()
        self._next_tick = start + _TICK_S
        self._next_look = start + _LOOK_AT_SIZES_S
        self._looked = start  # the last arrival of each answer until then was looked at
        self._next_judgement = start + LOOKS_S
        self._tick_timer.set(self._next_tick, _TICK_S)
        self._drive()

    def _drive(self) -> None:
        """The loop itself. Names are local, and what a stream needs is bound beforehand: each look-up costs what a chunk may."""
        streams, poll, now, due = self._streams, self._epoll.poll, time.monotonic, self._pacer.due
        # Of `[DONE]`, an end of event and an end of chunk before the end of a read.
        done = _NO_BYTE if self._reuses else _BRACKET
        while self._left:
            late = bool(due) and due[0][0] <= now()
            if late:
                self._send_due()
            # More may be due, or due soon: the timer knows when.
            events = poll(0 if late else -1, _BATCH)
            if len(events) < _FEW and len(streams) >= _MANY:
                time.sleep(_GATHER_S)
                events = poll(0, _BATCH)
            for fd, event in events:
                stream = streams.get(fd)
                if stream is None:
                    self._happened(fd, event)
                    continue
                recv, stamp, keep, connection = stream
                try:
                    data = recv(_CHUNK_SIZE)
                except BlockingIOError:
                    continue
                except OSError as error:
                    data = self._lost(connection, error)
                arrival = now()
                # Most reads are one whole chunk in the middle of a stream; the last one ends with two ends of line.
                if len(data) > 6:
                    stamp(arrival)
                    keep(data)
                    if data[-4] != _CARRIAGE_RETURN and data[-5] != done:
                        continue
                elif data:
                    stamp(arrival)
                    keep(data)
                self._look(connection, data, arrival)

    def _happened(self, fd: int, event: int) -> None:
        """Something other than the middle of a stream: a timer, a connection that opens, the beginning of an answer."""
        connection = self._table.get(fd)
        if connection is None:
            if fd == self._tick_timer.fd:
                self._tick()
            elif fd == self._send_timer.fd:
                self._send_timer.rings()
            elif fd == self._watched:
                raise ParentGone
            return
        exchange = connection.exchange
        if exchange is None or event & select.EPOLLOUT:
            self._proceed(connection)
            # A server may answer before it has read the whole request.
            if exchange is None or not event & select.EPOLLIN:
                return
        try:
            data = connection.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            data = self._lost(connection, error)
        arrival = time.monotonic()
        if data:
            exchange.times.append(arrival)
            exchange.reads.append(data)
        self._look(connection, data, arrival)

    def _look(self, connection: Connection, data: bytes, arrival: float) -> None:
        """End the exchange where its answer is complete, or cannot be any more."""
        exchange = connection.exchange
        assert exchange is not None
        try:
            complete = connection.complete(data)
        except UNREADABLE as error:
            exchange.error = f"no HTTP response: {error}"
            self._end(connection, exchange, "disconnect", arrival)
            return
        if not self._reuses and not complete and says_done(data):
            complete = True
        if not data and self._crossed(connection, exchange, arrival):
            self._send_again(connection, exchange)
        elif complete or not data:
            self._end(connection, exchange, None if complete else "disconnect", arrival)
        elif connection.fast and not connection.unsent and connection.fd not in self._streams:
            self._streams[connection.fd] = (connection.recv, exchange.times.append, exchange.reads.append, connection)

    def _lost(self, connection: Connection, error: OSError) -> bytes:
        """Keep why a read failed; the stream has ended with it."""
        assert connection.exchange is not None
        connection.exchange.error = _reason(error)
        return b""

    # Sending.

    def _send_due(self) -> None:
        for _ in range(_BATCH):
            if self._pacer.at > time.monotonic():
                break
            moment, exchange = self._pacer.pop()
            if exchange.first_sent is None:
                exchange.scheduled = moment
            self._send(exchange)
        self._arm()

    def _arm(self) -> None:
        if self._pacer.due:
            self._send_timer.set(self._pacer.at)

    def _send(self, exchange: Exchange) -> None:
        if not self._sent_on_idle(exchange):
            self._homeless.append(exchange)
            self._connect()

    def _sent_on_idle(self, exchange: Exchange) -> bool:
        while self._idle:
            connection = self._idle.pop()
            if time.monotonic() - connection.since <= _IDLE_S and connection.quiet():
                with suppress(OSError):
                    self._start(connection, exchange)
                    return True
            self._drop(connection)
        return False

    def _crossed(self, connection: Connection, exchange: Exchange, lost: float) -> bool:
        """Whether the connection was closed from the answer before, while this request was on its way: none of its own has come."""
        return connection.used and not exchange.reads and exchange.sent is not None and lost - exchange.sent <= _CROSSED_S

    def _send_again(self, connection: Connection, exchange: Exchange) -> None:
        """Send an exchange on a new connection, and on no other: one that closes that too has had the request, so once is all."""
        connection.exchange = None
        self._drop(connection)
        exchange.error = None
        exchange.resent += 1
        self._to_send += 1
        self._homeless.append(exchange)
        self._connect()

    def _start(self, connection: Connection, exchange: Exchange) -> None:
        sent = time.monotonic()
        whole = connection.start(exchange)
        exchange.sent = sent
        if not whole:
            self._epoll.modify(connection.fd, select.EPOLLIN | select.EPOLLOUT)
        self._to_send -= 1
        self._sent.append((sent + self._timeout_s, exchange, connection))

    def _end(self, connection: Connection, exchange: Exchange, failure: str | None, arrival: float) -> None:
        if oversized(exchange):
            failure = "disconnect"
            cut_off(exchange)
        exchange.end, exchange.failure = arrival, failure
        connection.exchange = None
        self._streams.pop(connection.fd, None)
        if failure or connection.unsent or not (connection.reusable and self._reuses):
            self._drop(connection)
        else:
            connection.since, connection.used = arrival, True
            self._idle.append(connection)
            if self._homeless and not self._homeless[0].resent:
                if self._sent_on_idle(self._homeless[0]):
                    self._homeless.popleft()
                else:
                    self._connect()
        if not (self._honours and failure is None and self._put_off(exchange, arrival)):
            self._ended(exchange, arrival)

    def _put_off(self, exchange: Exchange, moment: float) -> bool:
        """Send a refused exchange again when its answer says; whether it is to be. To its user it is one request all the while."""
        wait = asked_wait(exchange)
        first = exchange.sent if exchange.first_sent is None else exchange.first_sent
        if wait is None or first is None or moment + wait > first + self._timeout_s:
            return False
        exchange.first_sent, exchange.end = first, None
        exchange.attempts += 1
        exchange.waited_s += wait
        exchange.times, exchange.reads = [], []
        self._to_send += 1
        self._pacer.put_off(exchange, moment + wait)
        self._arm()
        return True

    def _ended(self, exchange: Exchange, moment: float) -> None:
        """What an end lets go: all that follow it, such as the next turn of its conversation, or the next in the queue."""
        self._left -= 1
        due = self._pacer.at
        for following in self._pacer.finished(exchange, moment):
            following.let_go = exchange.index
            follow(exchange, following)
        if self._pacer.at != due:
            self._arm()

    # Connections.

    def _connect(self) -> None:
        try:
            connection = Connection(self._address)
        except OSError as error:
            self._unreachable(error)
            return
        self._opening.add(connection)
        self._table[connection.fd] = connection
        self._epoll.register(connection.fd, select.EPOLLOUT)

    def _proceed(self, connection: Connection) -> None:
        """Something happened on a connection that carries nothing, or that has more to write."""
        if connection in self._opening:
            try:
                self._epoll.modify(connection.fd, connection.proceed())
            except OSError as error:
                self._drop(connection)
                self._unreachable(error)
                return
            if connection.open:
                self._opened(connection)
        elif connection.exchange is not None:
            try:
                events = connection.proceed()
            except OSError as error:
                # The server takes no more of it; its answer may explain why.
                connection.exchange.error = _reason(error)
                events = select.EPOLLIN
            self._epoll.modify(connection.fd, events)
        elif not connection.quiet():
            self._idle.remove(connection)
            self._drop(connection)

    def _opened(self, connection: Connection) -> None:
        self._opening.discard(connection)
        connection.since = _NEVER_USED
        if not self._homeless:
            self._idle.append(connection)
            return
        exchange = self._homeless.popleft()
        try:
            self._start(connection, exchange)
        except OSError as error:
            self._drop(connection)
            self._fail(exchange, error)

    def _unreachable(self, error: OSError) -> None:
        """A connection could not be opened: who waits for it fails; before the run, everybody does."""
        if not self._running:
            raise error
        if len(self._homeless) <= len(self._opening):
            return  # it was a spare one: whoever waits has another under way
        if error.errno in (errno.EMFILE, errno.ENFILE):  # no fault of the server's
            raise OSError(error.errno, f"{error.strerror}: {len(self._table)} connections are open; raise `ulimit -n`")
        self._fail(self._homeless.popleft(), error)

    def _fail(self, exchange: Exchange, error: OSError) -> None:
        exchange.end, exchange.error = time.monotonic(), _reason(error)
        exchange.failure = "timeout" if isinstance(error, TimeoutError) else "disconnect"
        self._to_send -= 1
        self._ended(exchange, exchange.end)

    def _drop(self, connection: Connection) -> None:
        self._table.pop(connection.fd, None)
        self._streams.pop(connection.fd, None)
        self._opening.discard(connection)
        connection.close()

    # Every 10 ms.

    def _tick(self) -> None:
        rings = self._tick_timer.rings()
        if not rings:
            return
        moment = time.monotonic()
        # One sample each ring: a stall of a second weighs as the hundred ticks that it swallowed.
        self.lags.extend(moment - self._next_tick - i * _TICK_S for i in range(rings))
        self._next_tick += rings * _TICK_S
        while self._sent and (self._over(*self._sent[0]) or self._sent[0][0] < moment):
            deadline, exchange, connection = self._sent.popleft()
            if not self._over(deadline, exchange, connection):
                self._end(connection, exchange, "timeout", moment)
        while self._homeless and (self._homeless[0].scheduled or moment) + self._timeout_s < moment:
            self._fail(self._homeless.popleft(), TimeoutError(f"no connection within {self._timeout_s:g} s"))
        if self._spare:
            for connection in [c for c in self._idle if moment - c.since > _IDLE_S]:
                self._idle.remove(connection)
                self._drop(connection)
            wanted = min(self._spare, self._to_send) - len(self._idle) - len(self._opening)
            for _ in range(min(wanted, _CONNECTING - len(self._opening))):
                self._connect()
        if moment > self._next_look:
            self._next_look = moment + _LOOK_AT_SIZES_S
            self._cut_endless(moment)
        if self._overload is not None and moment > self._next_judgement:
            self._next_judgement = moment + LOOKS_S
            if self._overload.plain(moment, self._asked - self._left):
                self._withdraw(moment)

    def _withdraw(self, moment: float) -> None:
        """Send nothing more: what was due ends normally, the rest is left out."""
        withdrawn = self._pacer.withdraw(lambda exchange: exchange.scheduled is not None)  # which is sent again
        self._left -= withdrawn
        self._to_send -= withdrawn
        self.stopped, self._overload = moment, None
        self._arm()

    def _over(self, deadline: float, exchange: Exchange, connection: Connection) -> bool:
        """Whether that sending of an exchange has ended: its connection carries something else, or the same sent again."""
        return connection.exchange is not exchange or exchange.sent is None or exchange.sent + self._timeout_s != deadline

    def _cut_endless(self, moment: float) -> None:
        """End each exchange whose answer is far longer than what it asked for, or ended in an error, though its body stays open."""
        before, self._looked = self._looked, moment - _SILENT_S
        for connection in list(self._table.values()):
            exchange = connection.exchange
            if exchange is None:
                continue
            silent = exchange.times and before < exchange.times[-1] <= self._looked
            if oversized(exchange) or (silent and ends_in_error(exchange)):
                self._end(connection, exchange, "disconnect", moment)

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._table.values()):
            self._drop(connection)
        self._send_timer.close()
        self._tick_timer.close()
        self._epoll.close()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
