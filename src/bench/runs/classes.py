"""Classes of a workload's requests, as records and tables have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_CLASS = "class_"  # what the columns of a class begin with
_STEADY = "steady_"  # what those of a steady window do


def class_column(request_class: str | None, column: str) -> str:
    """The summary's column of a class for one of all requests, such as `class_chat_ttft_p99_s` or `steady_class_chat_ttft_p99_s`;
    without a class that column itself.
    """
    if request_class is None:
        return column
    steady = _STEADY if column.startswith(_STEADY) else ""
    return f"{steady}{_CLASS}{request_class}_{column.removeprefix(steady)}"


def class_names(classes: str | None) -> list[str]:
    """The classes of a run, in the configuration's order. Args: classes: the summary's column of that name."""
    return list(json.loads(classes)) if classes else []


def served_alike(classes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether classes differ in nothing that a replay of a server does not have: a model, a priority, or a beginning that their prompts
    share. Args: classes: as a configuration has them, or with what is their workload's.
    """
    kinds = {(each.get("model"), (each.get("body") or {}).get("priority")) for each in classes.values()}
    return len(kinds) < 2 and not any(each.get("cache") in ("shared", "repeated") for each in classes.values())


def parts_of(definition: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What each class of a run is, as its record has it; the run itself, where it has no classes."""
    classes = definition.get("classes")
    for each in classes.values() if classes else ({},):
        gone = ("cache", "shared_prefix") if "prompts" in each else ()  # which belong to the workload's prompts
        yield {**{key: value for key, value in definition.items() if key not in gone}, **each}
