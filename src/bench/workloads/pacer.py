"""When each request of a run leaves: bursts, closed and open loops, sessions and traces are values of one pacer.

It knows neither a clock nor a socket: the load generator asks it in real time, replays of a server in replayed time.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar


class Paced(Protocol):
    """A request to be sent.

    Attributes:
        index: its number. due_s: its moment (s since the run's start); None where an end lets it go. after, think_s: indices of the
            requests that it waits for, and the time between the last one's end and this one (s).
    """

    @property
    def index(self) -> int: ...

    @property
    def due_s(self) -> float | None: ...

    @property
    def after(self) -> tuple[int, ...]: ...

    @property
    def think_s(self) -> float: ...


Request = TypeVar("Request", bound=Paced)


class Pacer(Generic[Request]):
    """Requests that wait to leave. Those with a moment leave then, those that follow others after these, and of the rest each end lets
    the next go.

    Args:
        held: of the requests that have no moment and follow none, how many leave at the start; None: all.
        turnaround_s: time between an end and the request that it lets go, of those that follow none (s). start: the run's start, in s.

    Attributes:
        due: a heap of (moment, index, request), in s.
    """

    def __init__(
        self, requests: Sequence[Request], held: int | None = None, *, turnaround_s: float = 0.0, start: float = 0.0
    ) -> None:
        self._turnaround_s = turnaround_s
        self._followers: dict[int, list[Request]] = defaultdict(list)
        for request in requests:
            for before in request.after:
                self._followers[before].append(request)
        self._awaited = {request.index: len(request.after) for request in requests if request.after}
        self._ended = dict.fromkeys(self._awaited, 0.0)  # when the last one before it ended, of those that have
        rest = [x for x in requests if x.due_s is None and not x.after]
        count = len(rest) if held is None else held
        self._next = deque(rest[count:])
        timed = [x for x in requests if x.due_s is not None]
        self.due = [(start + (x.due_s or 0.0), x.index, x) for x in (*timed, *rest[:count])]
        heapq.heapify(self.due)

    @property
    def at(self) -> float:
        """When the next request leaves (s); infinite where an end decides, or there is none."""
        return self.due[0][0] if self.due else math.inf

    def pop(self) -> tuple[float, Request]:
        """The next request, and when it leaves (s)."""
        at, _, request = heapq.heappop(self.due)
        return at, request

    def put_off(self, request: Request, until: float) -> None:
        """Let a request leave again, later."""
        heapq.heappush(self.due, (until, request.index, request))

    def finished(self, request: Request, moment: float) -> list[Request]:
        """Enter what the end of a request lets go. Returns: those of them that follow it."""
        followers = self._followers.pop(request.index, [])
        following = []
        for each in followers:
            self._awaited[each.index] -= 1
            self._ended[each.index] = max(self._ended[each.index], moment)
            if not self._awaited[each.index]:
                self.put_off(each, self._ended[each.index] + each.think_s)
                following.append(each)
        if not followers and self._next:
            self.put_off(self._next.popleft(), moment + self._turnaround_s)
        return following

    def withdraw(self, kept: Callable[[Request], bool]) -> int:
        """Leave out what has not left, but for those that are `kept`. Returns: how many."""
        before = len(self.due)
        self.due[:] = [entry for entry in self.due if kept(entry[2])]  # in place: a loop has it by another name
        heapq.heapify(self.due)
        return before - len(self.due)
