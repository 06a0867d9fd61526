"""`reliefs.json`: what relieving each of a server's resources would bring to a curve, as replays of its calibrated model have it."""

from __future__ import annotations

from dataclasses import dataclass

LITTLE = 1.05  # gain up to which more of a resource brings no more; convention


@dataclass(frozen=True)
class Gain:
    """By which factor the highest load within the SLOs would carry more requests/s, with its 95 % interval; 1: no more.

    Attributes:
        resource: `kv` (four times the KV memory), `sequences` (no bound on requests at once), `prefill` or `decode` (prompts, or all
            else of a step, in half the time), `interference` (prompts computed elsewhere).
        more: whether the replays looked no further, so that it may be more.
    """

    resource: str
    gain: float
    low: float
    high: float
    more: bool = False

    @property
    def sure(self) -> bool:
        """Whether it is worth a word, and not chance."""
        return self.gain >= LITTLE and self.low > 1

    @property
    def none(self) -> bool:
        """Whether more of the resource brings no more: all of the interval says so."""
        return self.low <= 1 and self.high <= LITTLE and not self.more


@dataclass(frozen=True)
class Relief:
    """The gains of one curve.

    Attributes:
        gains: the greatest first, then those that are not surely less, then the rest from the greatest on.
        tied: how many of the first are causes alike; 0 where none is sure.
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

    def by_curve(self) -> dict[tuple[str, str], CurveRelief]:
        """By deployment and workload."""
        return {(each.deployment, each.workload): each for each in self.curves}
