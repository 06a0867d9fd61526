"""Classes of requests that one workload mixes: what each sends, and which share of the requests it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bench.fields import Strict
from bench.workloads.archetypes import with_archetype
from bench.workloads.lengths import Length
from bench.workloads.prompts import SOURCES, Prompts

_OWN = ("share", "model", "body")  # keys whose value does not simply replace the workload's


class RequestClass(Strict):
    """One class of a workload's requests. What it does not say is the workload's."""

    share: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="Share of the requests sent (0–1); those of all classes are 1 together."
    )
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The model's name in its requests: a LoRA adapter, or a model that a router knows.",
    )
    archetype: Literal["rag", "code", "completion"] | None = Field(
        default=None, description="A preset for lengths and shared prefix."
    )
    prompts: Prompts | None = Field(default=None, description="Where its prompts come from.")
    prompt_tokens: Length | None = Field(default=None, description="Exact prompt length (tokens).")
    output_tokens: Length | None = Field(default=None, description="Exact output length (tokens).")
    body: dict[str, Any] = Field(
        default_factory=dict,
        description="Further keys of each request's body, such as `{priority: 1}`; they override the workload's.",
    )
    cache: Literal["unique", "shared", "repeated", "natural", "as_is"] | None = Field(
        default=None, description="What a prefix cache can reuse among the requests of this class."
    )
    shared_prefix: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="`cache: shared`: share of each prompt that all of this class have in common (0–1)."
    )

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, content: Any) -> Any:
        return with_archetype(content)

    def over(self, workload: Mapping[str, Any]) -> dict[str, Any]:
        """What a workload of this class alone is to be. Args: workload: its workload, as a configuration has it."""
        given = self.model_dump(exclude_defaults=True, exclude={"archetype", *_OWN})
        # What belongs to a key that is given otherwise goes with it, as with a workload's own archetype.
        dropped: set[str] = set()
        if self.prompts is not None:
            dropped |= {"cache", "shared_prefix"} | (set() if SOURCES[self.prompts.source].sized else {"prompt_tokens"})
        if self.cache not in (None, "shared"):
            dropped |= {"shared_prefix"}
        below = {key: value for key, value in workload.items() if key not in {"archetype", *dropped}}
        body = {**workload.get("body", {}), **self.body}
        return {**below, **given, **({"body": body} if body else {})}


def dealt(count: int, shares: Mapping[str, float]) -> dict[str, int]:
    """How many of `count` requests are of each class: whole numbers in proportion to the shares (the method of largest remainders)."""
    whole = sum(shares.values())
    exact = {name: count * share / whole for name, share in shares.items()}
    found = {name: math.floor(number) for name, number in exact.items()}
    left = count - sum(found.values())
    for name in sorted(exact, key=lambda name: (found[name] - exact[name], name))[:left]:
        found[name] += 1
    return found
