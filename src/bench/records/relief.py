"""`reliefs.json`: what relieving each of a server's resources would bring to a curve, as replays of its calibrated model have it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.records.files import read_typed

__all__ = ["CurveRelief", "Gain", "Relief", "Reliefs", "read_reliefs"]


@dataclass(frozen=True)
class Gain:
    """By which factor the highest load within the SLOs would carry more requests/s, with its 95 % interval; 1: no more.

    Attributes:
        resource: `kv` (four times the KV memory), `sequences` (no bound on requests at once), `prefill` or `decode` (prompts, or all
            else of a step, in half the time), `interference` (prompts computed elsewhere).
    """

    resource: str
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class Relief:
    """The gains of one curve.

    Attributes:
        gains: the greatest first. tied: how many of the first are not surely apart: more than one are causes alike.
    """

    gains: tuple[Gain, ...]
    tied: int


@dataclass(frozen=True, kw_only=True)
class CurveRelief:
    """One curve. Attributes: digest: of all that decides the rest. relief: None where it is not known; why_not: why, in words."""

    deployment: str
    workload: str
    digest: str
    relief: Relief | None = None
    why_not: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reliefs:
    """The curves of a study whose limit is measured, and others that earlier selections of it had."""

    curves: tuple[CurveRelief, ...] = ()

    def known(self) -> dict[tuple[str, str], Relief]:
        """By deployment and workload."""
        return {(each.deployment, each.workload): each.relief for each in self.curves if each.relief}


def read_reliefs(path: Path) -> Reliefs | None:
    """The record in `path`; None where there is none that can be read: it is made again."""
    try:
        return read_typed(Reliefs, path, "")
    except BenchError:
        return None
