"""The settings of deployments as data: which of them vary, and which change together.

Rows are plain: those of a plan before anything has run, and those of the summary table afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.study.deployment import Deployment

__all__ = ["FLAG", "SETTINGS", "flag_column", "setting_name", "settings_in", "varying_settings", "with_others"]

_KEYS = [name for name in Deployment.model_fields if name not in {"model", "engine", "served_name", "flags", "environment"}]
# Keys of a deployment that are settings of its server, each a column of the summary. How it spreads over devices comes first: other
# settings are changed because of it.
SETTINGS = tuple(sorted(_KEYS, key=lambda name: not name.endswith("_parallel")))
FLAG = "flag_"  # what the columns of a deployment's own flags begin with
_NAMED = 2  # most settings that a title names beside the first; convention; convention


def flag_column(flag: str) -> str:
    """The column of a flag, such as `flag_max_num_batched_tokens`."""
    return FLAG + flag.lstrip("-").replace("-", "_")


def settings_in(columns: Iterable[str]) -> list[str]:
    """The columns that are settings: keys, flags and variables."""
    known = list(columns)
    flags = sorted(name for name in known if name.startswith(FLAG))
    return [*(name for name in SETTINGS if name in known), *flags, *(["environment"] if "environment" in known else [])]


def setting_name(column: str) -> str:
    """What a setting is called: its key, or its flag as a command line has it."""
    return column.removeprefix(FLAG).replace("_", "-") if column.startswith(FLAG) else column


def with_others(title: str, others: Sequence[str]) -> str:
    """`title`, and which settings change whenever it does, such as `model, with kv_cache_memory`. Args: others: columns."""
    more = len(others) - _NAMED
    named = [setting_name(each) for each in others[:_NAMED]] + ([f"{more} more"] if more > 0 else [])
    return f"{title}, with {' and '.join(named)}" if named else title


def varying_settings(rows: Sequence[Mapping[str, Any]], before: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Settings with several values, each with those that change exactly when it does: nothing can tell their effects apart.

    None is a value, the default of a flag or key that is not given; of keys of a server about which nothing is known it is not, and no
    such key varies then.

    Args:
        before: columns, such as the model, to which belongs what changes with them; each stands for itself.

    Returns:
        By column, in the order of `before` and `settings_in`.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    unknown = any(row.get("dtype") is None for row in rows)
    found: dict[str, tuple[str, ...]] = {}
    first: dict[tuple[int, ...], str] = {}
    for name in (*before, *(each for each in settings_in(columns) if each not in before)):
        values = [row.get(name) for row in rows]
        if len(set(values)) < 2 or (unknown and None in values and not name.startswith(FLAG)):
            continue
        same = first.setdefault(_split(values), name)
        if same == name or name in before:
            found[name] = ()
        else:
            found[same] = (*found[same], name)
    return found


def _split(values: Sequence[Any]) -> tuple[int, ...]:
    """How a column splits the rows: each value as the number of the first of its kind."""
    seen: dict[Any, int] = {}
    return tuple(seen.setdefault(value, len(seen)) for value in values)
