"""A study at another scale: what its file says for two CPU cores, say, in place of what it says for GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.errors import BenchError, meant, shown


def at_scale(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with what its `scale` gives, and without `scales`.

    A scale says entries of the file's sections, such as `study.ladders` or `models.NAME`. Each is added to its section, or replaces the
    entry of that name, whole. What is not of the form of a configuration is left as it is.

    Raises:
        BenchError: the study has no scale of that name.
    """
    scales, name = content.get("scales"), content.get("scale")
    if name is None:
        return {key: value for key, value in content.items() if key != "scales"} if isinstance(scales, Mapping) else content
    if not isinstance(scales, Mapping) or not isinstance(name, str) or not isinstance(scales.get(name), Mapping):
        known = [str(each) for each in scales] if isinstance(scales, Mapping) else []
        close = meant(name, known) if isinstance(name, str) else None
        there = (
            f"Did you mean {close}?" if close else f"There are: {', '.join(known)}." if known else "Its file has no `scales`."
        )
        raise BenchError(f"scale is {shown(name)}: the study has no scale of that name. {there}")
    found = {key: value for key, value in content.items() if key != "scales"}
    for section, entries in scales[name].items():
        before: Any = found.get(section)
        found[section] = {**before, **entries} if isinstance(before, Mapping) and isinstance(entries, Mapping) else entries
    return found
