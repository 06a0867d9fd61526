"""When requests leave: each kind of load as requests, how long each answer takes, and the moments that follow."""

from dataclasses import dataclass

from bench.workloads.pacer import Pacer
from tests.support.cases import cases


@dataclass
class Sent:
    """A request, and how long its answer takes (s)."""

    index: int
    due_s: float | None = None
    after: tuple[int, ...] = ()
    think_s: float = 0.0
    takes_s: float = 1.0


def left(requests, **how):
    """When each request left, by its index: answers end in the order of their moments."""
    pacer, flying, moments = Pacer(requests, **how), [], {}
    while pacer.due or flying:
        ends = min((end for end, _ in flying), default=float("inf"))
        if pacer.at <= ends:
            at, request = pacer.pop()
            moments[request.index] = at
            flying.append((at + request.takes_s, request))
        else:
            ended = min(flying, key=lambda each: each[0])
            flying.remove(ended)
            pacer.finished(ended[1], ended[0])
    return moments


CLOSED = [Sent(i, takes_s=takes) for i, takes in enumerate((1.0, 3.0, 1.0, 1.0))]
SESSIONS = [Sent(0), Sent(1, after=(0,), think_s=0.5), Sent(2, takes_s=4.0), Sent(3, after=(2,), think_s=1.0)]
TREE = [Sent(0, 0.0), Sent(1, None, (0,)), Sent(2, None, (0,), takes_s=5.0), Sent(3, None, (1, 2), 0.25), Sent(4, 2.0)]


@cases(
    ("requests", "how", "moments"),
    [
        ([Sent(i, 0.0) for i in range(3)], {}, {0: 0.0, 1: 0.0, 2: 0.0}),  # a burst
        (CLOSED, {"held": 2}, {0: 0.0, 1: 0.0, 2: 1.0, 3: 2.0}),
        (CLOSED, {"held": 2, "turnaround_s": 0.25, "start": 10.0}, {0: 10.0, 1: 10.0, 2: 11.25, 3: 12.5}),
        ([Sent(0, 0.0, takes_s=9.0), Sent(1, 0.4), Sent(2, 0.5)], {"held": 0}, {0: 0.0, 1: 0.4, 2: 0.5}),  # an open loop
        (SESSIONS, {"held": 1}, {0: 0.0, 1: 1.5, 2: 2.5, 3: 7.5}),
        (SESSIONS, {}, {0: 0.0, 1: 1.5, 2: 0.0, 3: 5.0}),
        (TREE, {"held": 0}, {0: 0.0, 1: 1.0, 2: 1.0, 3: 6.25, 4: 2.0}),  # a trace
    ],
)
def test_each_request_leaves_at_its_moment(requests, how, moments):
    assert left(requests, **how) == moments


def test_what_has_not_left_is_withdrawn_but_for_what_leaves_again():
    pacer = Pacer([Sent(0, 0.0), Sent(1, 1.0), Sent(2, 2.0)])
    _, first = pacer.pop()
    pacer.put_off(first, 5.0)
    assert pacer.withdraw(lambda request: request is first) == 2
    assert pacer.pop() == (5.0, first)
