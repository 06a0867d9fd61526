"""The settings of deployments as data: which of them vary, and which change together.

Rows are plain: those of a plan before anything has run, and those of the summary table afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.errors import shown_size
from bench.servers.deployment import SWEPT

_KEYS = [name for name in SWEPT if name not in {"model", "engine", "served_name"}]
# Keys of a deployment that are settings of its server, each a column of the summary. How it spreads over devices comes first: other
# settings are changed because of it.
SETTINGS = tuple(sorted(_KEYS, key=lambda name: not name.endswith("_parallel")))
FLAG = "flag_"  # what the columns of a deployment's own flags begin with
VARIABLE = "env_"  # and those of its variables


def flag_column(flag: str) -> str:
    """The column of a flag, such as `flag_max_num_batched_tokens`."""
    return FLAG + flag.lstrip("-").replace("-", "_")


#: Flags by which a server that is started speculates, as columns: vLLM's, then llama.cpp's.
SPECULATION = tuple(
    map(flag_column, ("speculative-config", "sc", "spec-method", "spec-model", "spec-type", "spec-draft-model", "model-draft"))
)


#: Flags that say how many tokens a step has at most, by engine; without dashes.
STEP_TOKENS = {"vllm": ("max-num-batched-tokens",), "llama.cpp": ("batch-size", "b")}


def settings_in(columns: Iterable[str]) -> list[str]:
    """The columns that are settings: keys, flags and variables."""
    known = list(columns)
    return [*(name for name in SETTINGS if name in known), *sorted(name for name in known if is_own(name))]


def is_own(column: str) -> bool:
    """Whether a column is a flag or a variable of a deployment, which others need not have."""
    return column.startswith((FLAG, VARIABLE))


def setting_name(column: str) -> str:
    """What a setting is called: its key, its variable, or its flag as a command line has it."""
    return column.removeprefix(FLAG).replace("_", "-") if column.startswith(FLAG) else column.removeprefix(VARIABLE)


def value_text(setting: str, value: Any) -> str:
    """A value of a setting, such as `8192`, `16 MiB` or `default`."""
    if value is None:
        return "default"
    if setting == "kv_cache_memory":
        return shown_size(int(value))
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def varying_settings(rows: Sequence[Mapping[str, Any]], before: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Settings with several values, each with those that change exactly when it does: nothing can tell their effects apart.

    None stands for the default: the flag or key was not given. If nothing is known of one of the servers (`dtype` is None), None says
    nothing, and a setting with it does not vary.

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
        if len(set(values)) < 2 or (unknown and None in values):
            continue
        same = first.setdefault(tuple(map(values.index, values)), name)  # how the column splits the rows
        if same == name or name in before:
            found[name] = ()
        else:
            found[same] = (*found[same], name)
    return found
