"""Where prompts come from, one file a source.

To add one, write its file and name it in `SOURCES`; another package names its class in its entry points (`bench.plugins`).
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from bench.plugins import Registry
from bench.workloads.prompts.file import PromptFile
from bench.workloads.prompts.kind import Made, Making, Source
from bench.workloads.prompts.random_ids import RandomIds

__all__ = ["RANDOM", "SOURCES", "Made", "Making", "PromptFile", "Prompts", "Source"]

_OWN: tuple[type[Source], ...] = (RandomIds, PromptFile)
SOURCES: Registry[type[Source]] = Registry("prompts", {each.name: each for each in _OWN}).every()
RANDOM = RandomIds(source="random")


def _short(value: Any) -> Any:
    """A source's name, or else the path of a file, stands for the mapping that says the same."""
    if isinstance(value, str):
        return {"source": value} if value in SOURCES else {"source": PromptFile.name, "file": value}
    if isinstance(value, Source):
        return value
    if not isinstance(value, dict) or "source" not in value:
        raise ValueError(f"write {RandomIds.name}, a path, or a mapping whose `source` is {' or '.join(SOURCES)}")
    return value


if TYPE_CHECKING:
    Prompts = Source
else:
    _Sources = Annotated[functools.reduce(operator.or_, SOURCES.values()), Field(discriminator="source")]
    Prompts = Annotated[_Sources, BeforeValidator(_short, json_schema_input_type=str | _Sources)]
