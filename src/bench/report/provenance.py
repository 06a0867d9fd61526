"""What was locked while the runs were measured, read from the deployments' records and the runs themselves."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import polars as pl

from bench.study.environment import redacted_command, shown_settings

__all__ = ["deployments", "overview", "workloads"]

# Of a workload: what its runs share, or the range that they span.
_SENT = ("arrival", "endpoint", "stream", "cache", "turns", "seed")
_LENGTHS = {"prompt_tokens": "prompt", "output_tokens": "output"}


def overview(runs: pl.DataFrame, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a page says at its top: `models`, `engines` (with their versions), `hardware`, and when the first and the last run
    `started` (UTC; None where the runs do not tell it); `commits`, of the sources that
    measured; `random_weights`, whether a server was given no others.

    Args:
        runs: rows of the summary table. facts: `deployment.json` of each deployment.
    """
    started = sorted(_known(runs, "started"))
    versions = runs.select("engine", "engine_version").unique(maintain_order=True).rows()
    devices = [gpu["name"] for fact in facts for gpu in fact["hardware"]["gpus"]]
    return {
        "models": _known(runs, "model"),
        "engines": [f"{engine or 'an endpoint'} {version or 'of unknown version'}" for engine, version in versions],
        "hardware": list(dict.fromkeys([*devices, *_known(runs, "hardware")])),
        "commits": _known(runs, "commit"),
        "random_weights": any(
            _flag([str(part) for part in fact.get("command") or []], "--load-format") == "dummy" for fact in facts
        ),
        "started": _span(started[0], started[-1]) if started else None,
    }


def deployments(facts: Sequence[Path], runs: pl.DataFrame) -> list[dict[str, Any]]:
    """`deployment.json` of each deployment, with what was locked in it.

    `dtype`, `kv_dtype` and `max_model_len` as its command line and its cache configuration tell them, `model`, `gpus` and
    `parallel` (tensor × pipeline × data) as the runs do, and `shell`: its command line with its environment, as a shell takes it. Of
    variables that are not known to be harmless only the name is there. `exported`: names of the user's own that reached the server.

    Args:
        runs: rows of the summary table.
    """
    found = []
    for path in facts:
        fact: dict[str, Any] = json.loads(path.read_text())
        command = redacted_command([str(part) for part in fact.get("command") or []])
        own = runs.filter(pl.col("deployment") == fact["deployment"])
        environment = {key: str(value) for key, value in (fact.get("environment") or {}).items()}
        settings = [f"{key}={shlex.quote(value)}" for key, value in shown_settings(environment).items()]
        found.append(
            {key: value for key, value in fact.items() if key not in ("environment", "command")}
            | {
                "command": command,
                "exported": ", ".join(fact.get("inherited") or {}) or None,
                "model": next(iter(_known(own, "model")), None),
                "gpus": next(iter(_known(own, "gpus")), None),
                "parallel": " × ".join(
                    f"{next(iter(_known(own, f'{kind}_parallel')), '–')}" for kind in ("tensor", "pipeline", "data")
                ),
                "dtype": _flag(command, "--dtype"),
                "kv_dtype": (fact.get("cache_config") or {}).get("cache_dtype") or _flag(command, "--kv-cache-dtype"),
                "max_model_len": _flag(command, "--max-model-len"),
                "shell": " ".join([*settings, shlex.join(command)]) if command else None,
            }
        )
    return found


def workloads(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """What each family of workloads sent: `family`, `arrival`, `endpoint`, `stream`, `cache`, `turns`, `seed` as a text of all values,
    `prompt` and `output` (tokens, the mean of a run's requests) as one number or a range, and its `deployments`.

    Args:
        runs: rows of the summary table.
    """
    return [
        {
            "family": family["family"][0],
            "deployments": family["deployment"].unique(maintain_order=True).to_list(),
            **{key: ", ".join(map(_word, _known(family, key))) or "–" for key in _SENT},
            **{name: _range(_known(family, key)) for key, name in _LENGTHS.items()},
        }
        for family in runs.partition_by("family", maintain_order=True)
    ]


def _span(first: str, last: str) -> str:
    """Two ISO moments to the minute, the day once where it is the same."""
    begin, end = (moment[:16].replace("T", " ") for moment in (first, last))
    return begin if begin == end else f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"


def _known(runs: pl.DataFrame, column: str) -> list[Any]:
    """The values of a column in the order of the runs."""
    return runs[column].drop_nulls().unique(maintain_order=True).to_list()


def _flag(command: Sequence[str], flag: str) -> str | None:
    """A flag's value, given as its own word or after an equals sign."""
    for word, after in zip_longest(command, command[1:]):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _range(values: Sequence[float]) -> str:
    if not values:
        return "–"
    low, high = (f"{value:,.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
