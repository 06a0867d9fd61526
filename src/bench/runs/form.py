"""How a session writes its requests: what the server accepts, and how it counts text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

# What Saturate sends to be exact, and a server may refuse. In the order in which it is left out where an answer does not say why.
Omissible = Literal["ignore_eos", "token_ids", "stream_options", "max_tokens", "temperature"]
OPTIONAL: tuple[Omissible, ...] = get_args(Omissible)
# What is not exact without each of them. `max_tokens` has another name of the same meaning.
INEXACT: dict[str, str] = {
    "token_ids": "prompts are text, whose lengths follow from the server's own counts",
    "ignore_eos": "answers may end before the length that was asked for",
    "stream_options": "the server counts tokens in a stream only if it does so unasked",
    "max_tokens": "the limit of an answer is called max_completion_tokens",
    "temperature": "the server samples as it does by default",
}


@dataclass(frozen=True, kw_only=True)
class RequestForm:
    """How requests to one endpoint of a server are written.

    Attributes:
        omitted: what is not sent, names in `OPTIONAL`. Without `token_ids` prompts are text; without `max_tokens` the limit of an
            answer is called `max_completion_tokens`.
        letter_tokens, template_tokens: tokens of each letter of a prompt that is text, and of what the server adds to it.
        turn_tokens: tokens that it adds for each further turn of a chat: an answer and a user's message.
        counted: whether the server's own counts show these two; else each letter is taken for one token.
        sdk_differs: how the openai SDK reads an answer differently; None if it does not, or nothing was compared.
    """

    omitted: tuple[str, ...] = ()
    letter_tokens: int = 1
    template_tokens: int = 0
    turn_tokens: int = 0
    counted: bool = False
    sdk_differs: str | None = None

    def sends(self, name: Omissible) -> bool:
        """Whether it is sent."""
        return name not in self.omitted
