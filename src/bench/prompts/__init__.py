"""Where prompts come from, one file a source.

To add one, write its file and name it in `SOURCES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from bench.prompts.file import PromptFile
from bench.prompts.kind import Making, Source, Wanted
from bench.prompts.random_ids import RandomIds

__all__ = ["RANDOM", "SOURCES", "Making", "Prompts", "Source", "Wanted"]

SOURCES: dict[str, type[Source]] = {each.name: each for each in (RandomIds, PromptFile)}
RANDOM = RandomIds(source="random")


def _short(value: Any) -> Any:
    """A source's name, or else the path of a file, in place of the mapping that says the same."""
    if not isinstance(value, str):
        return value
    return {"source": value} if value in SOURCES else {"source": PromptFile.name, "file": value}


if TYPE_CHECKING:
    Prompts = Source
else:
    _Sources = RandomIds
    for _each in list(SOURCES.values())[1:]:
        _Sources = _Sources | _each
    Prompts = Annotated[Annotated[_Sources, Field(discriminator="source")], BeforeValidator(_short)]
