"""Keys that had another name in earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def refuse_renamed(content: Any, old: str, new: str) -> Any:
    """`content` of one entry, as a validator takes and returns it.

    Raises:
        ValueError: the entry has the old key; the message gives the new one.
    """
    if isinstance(content, Mapping) and old in content:
        raise ValueError(f"`{old}` is now called `{new}`; write {new}: {content[old]}")
    return content


def with_new_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that an earlier version packed, with the keys of this one."""
    new = dict(content)
    if "engines" in content:
        new["engines"] = {name: _renamed(entry, "device", "backend") for name, entry in content["engines"].items()}
    if "decision" in content:
        new["decision"] = _renamed(content["decision"], "device", "accelerator")
    return new


def _renamed(entry: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if key == old else key: value for key, value in entry.items()}
