"""Conversations: how many requests they have, what each adds, and how long a user thinks."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from bench.fields import MOST_REQUESTS, MOST_S, Strict
from bench.headers import checked_name
from bench.workloads.lengths import Length

_SECRETS = ("authorization", "cookie", "x-api-key", "api-key")


def _session_header(name: str) -> str:
    if name.lower() in _SECRETS:
        raise ValueError(f"{name} carries keys; name another header, such as X-Session-Id")
    return checked_name(name)


class Turns(Strict):
    """Conversations: each request after the first follows the previous answer, and its prompt holds the whole history:
    the answers of random prompts are drawn too, those of a file are the server's own.
    """

    count: Annotated[int, Field(ge=2, le=MOST_REQUESTS)] = Field(
        description="Requests in a conversation. Of a file of `prompts`, chats with as many turns or more are sent."
    )
    new_tokens: Length | None = Field(
        default=None, description="Tokens that each further turn adds to the prompt; a file of `prompts` has its own."
    )
    think_s: Annotated[float, Field(ge=0, le=MOST_S)] = Field(
        default=0.0, description="Pause between an answer and the next turn (s)."
    )
    session_header: Annotated[str, AfterValidator(_session_header)] | None = Field(
        default=None,
        description="A header that names the conversation, by which a router can keep it on one server.",
    )
