"""Turns whose history holds the server's own answers: their bytes are known when the answer before has come."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bench.load.answer import contents_of
from bench.load.exchange import Exchange
from bench.load.response import Response
from bench.workloads.endpoints import ENDPOINTS


@dataclass(slots=True)
class Continued:
    """What is known beforehand of a request of such a conversation, as bytes.

    Attributes:
        head: with a place for the body's length. opening: of the body, up to its messages. messages: JSON without brackets: what the
            turn adds, and once the answer before has come, all that was said ahead of it too. recorded: whether the answer before is
            among them, as the tools that the turn holds the results of were called by it: the server's own is left out.
    """

    head: bytes
    opening: bytes
    messages: bytes
    recorded: bool = False

    def payload(self) -> bytes:
        """The request's bytes, head and body."""
        body = self.opening + self.messages + b"]}"
        return self.head % len(body) + body


def follow(before: Exchange, following: Exchange) -> None:
    """Write a turn whose history holds the answer to the turn before, as far as that came; any other turn is written already."""
    turn, earlier = following.continued, before.continued
    if turn is None or earlier is None:
        return
    turn.messages = b",".join((earlier.messages, *([] if turn.recorded else _answered(before)), turn.messages))
    following.payload = turn.payload()


def _answered(before: Exchange) -> list[bytes]:
    """The answer as a message of a chat, as far as it came; none where it cannot stand there."""
    contents = contents_of(Response(before), streamed=before.streamed)
    try:
        message = ENDPOINTS[before.endpoint].message(contents)
    except (AttributeError, LookupError, TypeError):  # it is no answer, which its record says
        message = {"role": "assistant", "content": ""}
    said = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return [said] if message else []
