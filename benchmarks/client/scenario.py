"""What every client is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.client.server import FIRST_S, PERIOD_S

__all__ = ["PROMPT_TOKENS", "Scenario", "burst", "open_loop"]

PROMPT_TOKENS = 128


@dataclass(frozen=True)
class Scenario:
    """`requests` at once where `rate` is None, else at a constant `rate` a second; `chunks` of one token are streamed to each."""

    name: str
    requests: int
    chunks: int
    rate: float | None = None

    @property
    def ideal_s(self) -> float:
        """First request's arrival to last chunk, where nothing is ever late."""
        sending = (self.requests - 1) / self.rate if self.rate else 0.0
        return sending + FIRST_S + (self.chunks - 1) * PERIOD_S


def burst(streams: int) -> Scenario:
    """All requests at once."""
    return Scenario(f"burst of {streams}", streams, 64)


def open_loop(rate: float, seconds: float) -> Scenario:
    """A constant rate. Few chunks a request, so that neither the server nor the reading of chunks is the limit."""
    return Scenario(f"{rate:g} requests/s for {seconds:g} s", round(rate * seconds), 8, rate)
