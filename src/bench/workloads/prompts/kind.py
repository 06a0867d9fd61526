"""What a source of prompts defines: what a configuration says of it, and how each prompt is made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from bench.errors import BenchError
from bench.fields import Strict
from bench.runs.form import RequestForm
from bench.workloads.endpoints import Endpoint, Prompt


class Wanted(Protocol):
    """A request that needs a prompt.

    Attributes:
        conversation, turn: numbers of its conversation in the run, and of its turn in that. prompt_tokens: the prompt's length; only of
            a source with `sized`. messages: of a turn, the tokens of its messages, users' and answers by turns; empty where it stands
            alone. shared_tokens: tokens at its beginning that all prompts of the run have. blocks: numbers of the
            blocks of `block_tokens` that it consists of; empty where conversation and shared tokens say what it shares.
    """

    @property
    def conversation(self) -> int: ...

    @property
    def turn(self) -> int: ...

    @property
    def messages(self) -> tuple[int, ...]: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def shared_tokens(self) -> int: ...

    @property
    def blocks(self) -> Sequence[int]: ...

    @property
    def block_tokens(self) -> int: ...


class Origin(NamedTuple):
    """Which of a source's prompts a request has.

    Attributes:
        place: at which a user finds it, as `line 3`. digest: of the prompt as the source has it, the same whatever stands around it.
    """

    place: str
    digest: str


def _no_tokens(text: str) -> Sequence[int]:
    raise BenchError(f"no server is there to make tokens of a text of {len(text):,} characters.")


@dataclass(frozen=True)
class Making:
    """What decides the prompts of a run.

    Attributes:
        endpoint, form: where they go, and how requests are written there. cache: the workload's: what a prefix cache can reuse.
        seed: of this run alone. schedule_seed: the same for runs that are compared. vocabulary: token ids lie below it.
        turns: requests of a conversation. own: whether the server's own answers stand in its history: then a later turn's prompt is
            what it adds. tokenized: the ids of the tokens that the server makes of a text; it raises BenchError where that cannot say.
    """

    endpoint: Endpoint
    form: RequestForm
    cache: str
    seed: str
    schedule_seed: str
    vocabulary: int
    turns: int = 1
    own: bool = False
    tokenized: Callable[[str], Sequence[int]] = _no_tokens


class Source(Strict):
    """A source of prompts, as a configuration has it.

    Attributes:
        name: its `source` in configurations. meaning: for the reference of the configuration.
        sized: whether prompts have the lengths that the workload asks for (`prompt_tokens`, `turns`, a trace); else their own, which
            are known once a server has counted them. caches: values of the workload's `cache` that it can do.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    sized: ClassVar[bool]
    caches: ClassVar[tuple[str, ...]]

    source: str

    @property
    def files(self) -> list[str]:
        """Files that decide what is sent."""
        return []

    def check(self, endpoint: Endpoint, turns: int = 1) -> None:
        """Read what there is to read.

        Args:
            turns: requests of a conversation.

        Raises:
            BenchError: it is missing, the endpoint cannot send it, or it has no conversation of so many turns.
        """

    def fewest(self, endpoint: Endpoint, form: RequestForm) -> int:  # noqa: ARG002 - for sources that send more than one text
        """The fewest tokens that a prompt may have."""
        return form.template_tokens + form.letter_tokens

    def described(self, turns: int = 1) -> str | None:  # noqa: ARG002
        """What there is to send, where that is known beforehand, for a line ahead of a measurement.

        Raises:
            BenchError: as of `check`.
        """
        return None

    def origins(self, making: Making) -> Callable[[Wanted], Origin | None]:  # noqa: ARG002
        """What tells which of the source's prompts a request has; None where they are made for it."""
        return lambda _: None

    def extras(self, making: Making) -> Callable[[Wanted], Mapping[str, Any]]:  # noqa: ARG002
        """What makes the keys that a request's body has beside its prompt, such as the tools that a chat may call."""
        return lambda _: {}

    @abstractmethod
    def maker(self, making: Making) -> Callable[[Wanted], Prompt]:
        """What makes the prompt of each request of a run.

        Raises:
            BenchError: as of `check`.
        """
