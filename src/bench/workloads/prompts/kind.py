"""What a source of prompts defines: what a configuration says of it, and how each prompt is made."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bench.fields import Strict
from bench.runs.request import RequestForm
from bench.workloads.endpoints import Endpoint, Prompt

if TYPE_CHECKING:
    from bench.workloads.schedule import PlannedRequest


class Made(NamedTuple):
    """What a request asks.

    Attributes:
        prompt, extras: what is sent, and the keys that its body has beside it, such as the tools that a chat may call.
        place, own: of a source's own prompt: where a user finds it, as `line 3`, and what it is before anything is put around it;
            None where prompts are made.
    """

    prompt: Prompt
    extras: Mapping[str, Any] = MappingProxyType({})
    place: str | None = None
    own: Prompt | None = None

    @property
    def digest(self) -> str | None:
        """The `prompt_digest` of the source's own prompt."""
        return None if self.own is None else prompt_digest(self.own)


def prompt_digest(prompt: Prompt) -> str:
    """What tells a prompt from others, whatever else its file holds: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(json.dumps(prompt, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Making:
    """What decides the prompts of a run.

    Attributes:
        endpoint, form: where they go, and how requests are written there. cache: the workload's: what a prefix cache can reuse.
        seed: of this run alone. schedule_seed: the same for runs that are compared. vocabulary: token ids lie below it.
        turns: requests of a conversation; a later turn's prompt is what it adds, where the server's own answers stand in between.
    """

    endpoint: Endpoint
    form: RequestForm
    cache: str
    seed: str
    schedule_seed: str
    vocabulary: int
    turns: int = 1


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

    @abstractmethod
    def maker(self, making: Making) -> Callable[[PlannedRequest], Made]:
        """What makes each request of a run.

        Raises:
            BenchError: as of `check`.
        """
