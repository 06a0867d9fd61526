"""Conversations: how many requests they have, what stands in their history, and how long a user thinks."""

from __future__ import annotations

import math
import random
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from bench.fields import MOST_REQUESTS, MOST_S, Seconds, Strict
from bench.headers import checked_name
from bench.workloads.lengths import Length

_SECRETS = ("authorization", "cookie", "x-api-key", "api-key")


def _session_header(name: str) -> str:
    if name.lower() in _SECRETS:
        raise ValueError(f"{name} carries keys; name another header, such as X-Session-Id")
    return checked_name(name)


class Pause(Strict):
    """Pauses (s) that are drawn."""

    distribution: Literal["exponential"] = Field(description="`exponential`, with mean_s.")
    mean_s: Seconds = Field(description="Mean (s).")

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, content: Any) -> Any:
        if isinstance(content, dict) and content.keys() != {"distribution", "mean_s"}:
            raise ValueError("write a drawn pause as { distribution: exponential, mean_s: SECONDS }")
        return content


class Turns(Strict):
    """Conversations: each request after the first follows the previous answer, and its prompt holds the whole history."""

    count: Annotated[int, Field(ge=2, le=MOST_REQUESTS)] = Field(
        description="Requests in a conversation. Of a file of `prompts`, chats with as many turns or more are sent."
    )
    new_tokens: Length | None = Field(
        default=None, description="Tokens that each further turn adds to the prompt; a file of `prompts` has its own."
    )
    think_s: Annotated[float, Field(ge=0, le=MOST_S)] | Pause = Field(
        default=0.0, description="Pause between an answer and the next turn (s)."
    )
    history: Literal["scripted", "own"] | None = Field(
        default=None,
        description="Answers in the history. `scripted`, the default of random prompts: drawn from the seed, or those of the "
        "file, so that every server gets the same prompts. `own`, the default of a file: what the server answered, "
        "without reasoning. Calls of tools and their results are as recorded.",
    )
    session_header: Annotated[str, AfterValidator(_session_header)] | None = Field(
        default=None,
        description="A header that names the conversation, by which a router can keep it on one server.",
    )

    @property
    def think_mean_s(self) -> float:
        """Mean of the pauses (s)."""
        return self.think_s.mean_s if isinstance(self.think_s, Pause) else self.think_s


def pauses(turns: Turns, seed: str, count: int) -> list[float]:
    """Pauses of a conversation (s), the same for the same seed on any machine."""
    if not isinstance(turns.think_s, Pause):
        return [turns.think_s] * count
    draw = random.Random(seed)  # noqa: S311 - a schedule, no secret
    return [round(-turns.think_s.mean_s * math.log1p(-(draw.random() or 0.5)), 6) for _ in range(count)]
