"""Names of a configuration, as messages list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

_MOST_NAMED = 8  # most names that a message lists; convention


def as_written(deployments: Iterable[str], swept_names: Mapping[str, Sequence[str]]) -> list[str]:
    """The deployments of the file, swept ones first; last the combinations, which may be many."""
    combinations = [name for names in swept_names.values() for name in names]
    return list(dict.fromkeys([*swept_names, *(name for name in deployments if name not in combinations), *combinations]))


def names_text(table: Iterable[str]) -> str:
    """Names in a message, the first of many with how many more there are."""
    names = list(table)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more or "nothing"
