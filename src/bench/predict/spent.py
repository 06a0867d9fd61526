"""Where a replayed request's time goes."""

from __future__ import annotations

#: Parts of a request's time: until it is admitted; its own prompt; what the prompts of others add to its steps; from the moment that it
#: loses its blocks until it goes on; its output.
PHASES = ("queue", "own_prompt", "other_prompts", "preempted", "decode")


class Spent:
    """The time of a request so far, by `PHASES` (s); from its arrival to its end they add up to all of it."""

    def __init__(self, sent_s: float) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._phase, self._since = "queue", sent_s
        self._prompts_s = self._own_s = 0.0

    def computes(self, seconds: float) -> None:
        """Note what its own prompt took of a step (s)."""
        self._own_s += seconds

    def enter(self, phase: str, now: float, prompts_s: float) -> None:
        """Begin another phase. Args: prompts_s: that the prompts of all requests have added to the server's steps so far."""
        took = now - self._since
        if self._phase in ("own_prompt", "decode"):
            others = min(took, max(0.0, prompts_s - self._prompts_s - self._own_s))
            self.seconds["other_prompts"] += others
            took -= others
        self.seconds[self._phase] += took
        self._phase, self._since, self._prompts_s, self._own_s = phase, now, prompts_s, 0.0
