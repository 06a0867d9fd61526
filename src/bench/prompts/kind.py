"""What a source of prompts defines: what a configuration says of it, and how each prompt is made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from bench.endpoints import Endpoint, Prompt
from bench.fields import Strict
from bench.records.form import RequestForm

__all__ = ["Making", "Source", "Wanted"]


class Wanted(Protocol):
    """A request that needs a prompt.

    Attributes:
        conversation: number of its conversation in the run. prompt_tokens: the prompt's length; only of a source with `sized`.
        shared_tokens: tokens at its beginning that all prompts of the run have.
    """

    @property
    def conversation(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def shared_tokens(self) -> int: ...


@dataclass(frozen=True)
class Making:
    """What decides the prompts of a run.

    Attributes:
        endpoint, form: where they go, and how requests are written there. cache: the workload's: what a prefix cache can reuse.
        seed: of this run alone. schedule_seed: the same for runs that are compared. vocabulary: token ids lie below it.
    """

    endpoint: Endpoint
    form: RequestForm
    cache: str
    seed: str
    schedule_seed: str
    vocabulary: int


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

    def check(self, endpoint: Endpoint) -> None:
        """Read what there is to read.

        Raises:
            BenchError: it is missing, or the endpoint cannot send it.
        """

    def described(self) -> str | None:
        """What there is to send, where that is known beforehand, for a line ahead of a measurement.

        Raises:
            BenchError: as of `check`.
        """
        return None

    @abstractmethod
    def maker(self, making: Making) -> Callable[[Wanted], Prompt]:
        """What makes the prompt of each request of a run.

        Raises:
            BenchError: as of `check`.
        """
