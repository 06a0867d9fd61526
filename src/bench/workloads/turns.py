"""Conversations: how many requests they have, what stands in their history, and how long a user thinks."""

from __future__ import annotations

import math
import random
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from bench.fields import MOST_REQUESTS, MOST_S, Seconds, Strict
from bench.headers import checked_name
from bench.workloads.lengths import Length

_SECRETS = ("authorization", "cookie", "x-api-key", "api-key")


def _session_header(name: str) -> str:
    if name.lower() in _SECRETS:
        raise ValueError(f"{name} is a header of keys; name one of its own, such as X-Session-Id")
    return checked_name(name)


class Pause(Strict):
    """A distribution of pauses (s)."""

    distribution: Literal["exponential", "lognormal"] = Field(
        description="`exponential` (mean_s) or `lognormal` (median_s, sigma)."
    )
    mean_s: Seconds | None = Field(default=None, description="`exponential`: mean (s).")
    median_s: Seconds | None = Field(default=None, description="`lognormal`: median (s).")
    sigma: Annotated[float, Field(gt=0, le=3)] | None = Field(
        default=None, description="`lognormal`: standard deviation of the logarithm; P99 = median × e^(2.33 × sigma)."
    )

    @model_validator(mode="after")
    def _keys_of_distribution(self) -> Pause:
        needed = {"distribution", *(("mean_s",) if self.distribution == "exponential" else ("median_s", "sigma"))}
        if self.model_fields_set != needed:
            raise ValueError(f"{self.distribution} has {' and '.join(sorted(needed - {'distribution'}))}, and nothing else")
        return self

    @property
    def mean(self) -> float:
        """The mean (s)."""
        return self.mean_s or (self.median_s or 0.0) * math.exp((self.sigma or 0.0) ** 2 / 2)

    def at(self, share: float) -> float:
        """The quantile of a share in (0, 1) (s)."""
        if self.mean_s:
            return -self.mean_s * math.log1p(-share)
        return (self.median_s or 0.0) * math.exp((self.sigma or 0.0) * NormalDist().inv_cdf(share))


class Turns(Strict):
    """Conversations: each request after the first follows the previous answer, and its prompt holds the whole history."""

    count: Annotated[int, Field(ge=2, le=MOST_REQUESTS)] = Field(
        description="Requests in a conversation. Of a file of `prompts`, those chats are sent that have so many user messages or more."
    )
    new_tokens: Length | None = Field(
        default=None, description="Tokens that each turn after the first adds to the prompt; a file of `prompts` has its own."
    )
    think_s: Annotated[float, Field(ge=0, le=MOST_S)] | Pause = Field(
        default=0.0, description="Pause between an answer and the next turn (s): a number or a distribution."
    )
    history: Literal["scripted", "own"] | None = Field(
        default=None,
        description="Answers in the history. `scripted`, the default of random prompts: drawn from the seed at the length asked for, "
        "or those of a file of `prompts`, so that every server gets the same prompts. `own`, the default of a file: the text that the "
        "server answered; prompts have the lengths that it counts. An answer that failed stands there as far as it came.",
    )
    keep_reasoning: bool = Field(
        default=False,
        description="`history: own`: whether reasoning stands in the history too, under the name that its server gave.",
    )
    session_header: Annotated[str, AfterValidator(_session_header)] | None = Field(
        default=None,
        description="A header that names the conversation, the same in all of its turns, by which a router can keep it on one server.",
    )

    @property
    def think_mean_s(self) -> float:
        """Mean of the pauses (s)."""
        return self.think_s.mean if isinstance(self.think_s, Pause) else self.think_s


def pauses(turns: Turns, seed: str, count: int) -> list[float]:
    """Pauses of a conversation (s), the same for the same seed on any machine."""
    if not isinstance(turns.think_s, Pause):
        return [turns.think_s] * count
    draw = random.Random(seed)  # noqa: S311 - a schedule, no secret
    return [round(turns.think_s.at(draw.random() or 0.5), 6) for _ in range(count)]
