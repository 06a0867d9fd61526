"""What a ladder's levels are: requests in flight, users, requests a second, or the speed of a trace.

To add an axis, add an entry to `AXES`: the ladder's key, the summary's column, figures and texts follow. Which arrival has it, the
workload says (`bench.workloads.workload`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A kind of load.

    Attributes:
        name: the ladder's key. meaning: for the reference of the configuration.
        title: of a figure's axis. unit: what a level counts, after a number. short: the same in few words. beside: as a label has it.
        letter: ahead of the level in a run's name. held: whether the level is held by the client, a whole number; else it is a pace.
        requests: whether it counts requests in flight, the number that a KV cache holds.
        no_search: why no level can be searched for; empty where one can.
    """

    name: str
    meaning: str
    title: str
    unit: str
    short: str
    beside: str
    letter: str
    held: bool = False
    requests: bool = False
    no_search: str = ""

    def counted(self, *, conversations: bool) -> str:
        """The unit, where requests of a workload with turns stand for conversations."""
        return self.unit.replace("requests", "conversations") if conversations else self.unit

    def label(self, level: float) -> str:
        """A level in a run's name, such as `c0016` or `q2.5`."""
        return self.letter + (f"{level:04g}" if self.held else f"{level:g}")


CONCURRENCY, RATE = "concurrency", "request_rate"
AXES = {
    axis.name: axis
    for axis in (
        Axis(
            CONCURRENCY,
            meaning="Levels for `burst` and `closed`: requests in flight; or `auto` (`closed`): the highest load within the SLOs is "
            "searched for.",
            title="concurrency (requests in flight)",
            unit="requests in flight",
            short="in flight",
            beside="",
            letter="c",
            held=True,
            requests=True,
        ),
        Axis(
            "users",
            meaning="Levels for `burst` and `closed` with `turns`: users, each in one conversation after another.",
            title="users (conversations at once)",
            unit="users",
            short="users",
            beside=" users",
            letter="u",
            held=True,
            no_search="conversations that begin together keep in step, and so do their latencies. Use an open loop and "
            "`request_rate: auto`, which counts conversations/s, or give levels",
        ),
        Axis(
            RATE,
            meaning="Levels for `constant`, `poisson` and `gamma`: requests/s (with `turns`, conversations/s); or `auto`.",
            title="request rate (requests/s)",
            unit="requests/s",
            short="requests/s",
            beside="/s",
            letter="q",
        ),
        Axis(
            "time_scale",
            meaning="Levels for `trace`: 1 replays it as recorded, 2 twice as fast.",
            title="trace, times as fast as recorded",
            unit="times the trace's speed",
            short="times the speed",
            beside="×",
            letter="x",
            no_search="a trace is replayed at given speeds. Give levels",
        ),
    )
}
#: Of levels that the client holds, whatever comes back.
HELD = tuple(name for name, axis in AXES.items() if axis.held)
