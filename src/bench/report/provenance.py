"""What was locked while the runs were measured, read from the deployments' records and the runs themselves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import polars as pl

from bench.runs.deployment import DeploymentFacts
from bench.runs.environment import redacted_command, shown_settings
from bench.words.verdicts import retries

# Of a workload: what its runs share, or the range that they span.
_SENT = ("arrival", "endpoint", "stream", "cache", "prompts", "answers", "body", "classes", "turns", "seed")
_LENGTHS = {"prompt_tokens": "prompt", "output_tokens": "output"}


def overview(runs: pl.DataFrame, facts: Sequence[DeploymentFacts]) -> dict[str, Any]:
    """What a page says at its top.

    These are `models`, `engines` (with their versions), `hardware`, and when the first and the last run `started` (UTC; None where the
    runs do not record it); `commits`, of the sources that measured; `random_weights`, whether a server was given no others.
    """
    started = sorted(_known(runs, "started"))
    versions = runs.select("engine", "engine_version").unique(maintain_order=True).rows()
    devices = [gpu["name"] for fact in facts for gpu in fact.hardware.gpus]
    return {
        "models": _known(runs, "model"),
        "engines": [f"{engine or 'an endpoint'} {version or 'of unknown version'}" for engine, version in versions],
        "hardware": list(dict.fromkeys([*devices, *_known(runs, "hardware")])),
        "commits": _known(runs, "commit"),
        "random_weights": any(fact.settings.random_weights for fact in facts),
        "started": _span(started[0], started[-1]) if started else None,
    }


def deployments(facts: Sequence[DeploymentFacts], runs: pl.DataFrame) -> list[dict[str, Any]]:
    """The facts of each deployment, with what was locked in it.

    `dtype`, `kv_dtype` and `max_model_len` as its settings and its cache configuration report them, `model`, `engine`, `router`,
    `gpus` and `parallel` (tensor × pipeline × data) as the runs do, and `shell`: its command line with its environment, as a shell
    takes it. Of variables that are not known to be harmless only the name is there. `exported`: names of the user's own that reached
    the server. `scraped`: whether its metrics were read.
    """
    found = []
    for fact in facts:
        command = redacted_command(fact.command)
        own = runs.filter(pl.col("deployment") == fact.deployment)
        variables = [f"{key}={shlex.quote(value)}" for key, value in shown_settings(fact.environment).items()]
        found.append(
            {key: value for key, value in vars(fact).items() if key not in ("environment", "command")}
            | {
                "command": command,
                "exported": ", ".join(fact.inherited or {}) or None,
                "scraped": own.is_empty()
                or any(_known(own, column) for column in ("scrape_endpoint", "scraped", "running_peak")),
                "model": next(iter(_known(own, "model")), None),
                "engine": next(iter(_known(own, "engine")), None),
                "router": next(iter(_known(own, "router")), None),
                "gpus": next(iter(_known(own, "gpus")), None),
                "parallel": " × ".join(
                    f"{next(iter(_known(own, f'{kind}_parallel')), '–')}" for kind in ("tensor", "pipeline", "data")
                ),
                "dtype": fact.settings.dtype,
                "kv_dtype": fact.cache_config.get("cache_dtype") or fact.settings.kv_cache_dtype,
                "max_model_len": fact.settings.max_model_len,
                "shell": " ".join([*variables, shlex.join(command)]) if command else None,
            }
        )
    return found


def workloads(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """What each family of workloads sent.

    These are its `family`; `arrival`, `endpoint`, `stream`, `cache`, `turns`, `prompts`, `answers`, `body` and `seed` as a text of all
    values; `prompt` and `output` (tokens, the mean of a run's requests) as one number or a range, its `deployments`, and `retries`: how
    many requests were refused and sent again, None where none is.
    """
    return [
        {
            "family": family["family"][0],
            "deployments": family["deployment"].unique(maintain_order=True).to_list(),
            **{key: ", ".join(map(_word, _known(family, key))) or "–" for key in _SENT},
            **{name: _range(_known(family, key)) for key, name in _LENGTHS.items()},
            "retries": _retries(family),
        }
        for family in runs.partition_by("family", maintain_order=True)
    ]


def _retries(family: pl.DataFrame) -> str | None:
    """What became of requests that were refused, where they were sent again; None where they were not."""
    if not _known(family, "honour_retry_after"):
        return None
    sums = family.select(pl.col("retried", "requests").sum(), pl.col("retry_wait_max_s").max())
    return retries(sums.to_dicts()[0]) or "none was refused"


def _span(first: str, last: str) -> str:
    """Two ISO moments to the minute, the day once where it is the same."""
    begin, end = (moment[:16].replace("T", " ") for moment in (first, last))
    return begin if begin == end else f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"


def _known(runs: pl.DataFrame, column: str) -> list[Any]:
    return runs[column].drop_nulls().unique(maintain_order=True).to_list()


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _range(values: Sequence[float]) -> str:
    if not values:
        return "–"
    low, high = (f"{value:,.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
