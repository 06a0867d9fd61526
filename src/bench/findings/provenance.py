"""What was locked while the runs were measured, read from the deployments' records and the runs themselves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from bench import __version__
from bench.report.blocks import Block, Code, Column, Fold, Section, Table, Text
from bench.runs.deployment import DeploymentFacts
from bench.runs.environment import redacted_command, shown_settings
from bench.shipped import labelled

if TYPE_CHECKING:
    from bench.findings.view import View

# Of a workload: what its runs share, or the range that they span.
_SENT = ("arrival", "endpoint", "stream", "cache", "prompts", "answers", "body", "classes", "turns", "seed")
_LENGTHS = {"prompt_tokens": "prompt", "output_tokens": "output"}
_OF_RUNS = ("model", "engine", "gpus", "kv_tokens_planned", "router")  # of a deployment, what its runs have
_PARALLEL = ("tensor", "pipeline", "data")


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
    """What was locked in each deployment, as cells of a table.

    With them `scraped`, whether its metrics were read; `machine`, where it and its client ran; `shell`, its command line with its
    environment as a shell takes it, None where it ran already: of variables that are not known to be harmless only the name is there.
    """
    found = []
    for fact in facts:
        own = runs.filter(pl.col("deployment") == fact.deployment)
        known = {name: next(iter(_known(own, name)), None) for name in (*_OF_RUNS, *(f"{kind}_parallel" for kind in _PARALLEL))}
        command, version = redacted_command(fact.command), fact.engine_version or "of unknown version"
        variables = [f"{key}={shlex.quote(value)}" for key, value in shown_settings(fact.environment).items()]
        kv_dtype = fact.cache_config.get("cache_dtype") or fact.settings.kv_cache_dtype
        found.append(
            {
                "deployment": fact.deployment,
                "model": known["model"],
                "served": f"{known['engine'] or 'an engine'} {version}" if fact.managed else f"a running endpoint, {version}",
                "dtype": fact.settings.dtype or "engine's choice",
                "kv_dtype": "as dtype" if kv_dtype == "auto" else kv_dtype or "engine's choice",
                "gpus": known["gpus"],
                "parallel": " × ".join(f"{known[f'{kind}_parallel'] or '–'}" for kind in _PARALLEL),
                "weight_gib": fact.weight_gib,
                "ready_s": fact.ready_s if fact.managed else None,
                "cache": _cache(fact, known["kv_tokens_planned"]),
                "max_model_len": fact.settings.max_model_len or "engine's choice",
                "prefixes": {True: "on", False: "off"}.get(fact.prefix_caching, "unknown"),  # type: ignore[arg-type]
                "scraped": own.is_empty()
                or any(_known(own, column) for column in ("scrape_endpoint", "scraped", "running_peak")),
                "machine": _machine(fact, known["router"]),
                "shell": " ".join([*variables, shlex.join(command)]) if command else None,
            }
        )
    return found


def _cache(fact: DeploymentFacts, planned: int | None) -> str:
    """The tokens of its KV cache, and how many the memory plan has."""
    tokens = f"{fact.kv_tokens or 'unknown'}" + (f", {planned} planned" if planned not in (None, fact.kv_tokens) else "")
    size = f" of {fact.block_size}" if fact.block_size else ""
    return f"{tokens} ({fact.kv_blocks} blocks{size})" if fact.kv_blocks else tokens


def _machine(fact: DeploymentFacts, router: str | None) -> str:
    """On what it and its client ran."""
    at, behind = fact.hardware, " ".join(filter(None, (router, fact.router_version)))
    parts = [
        f"Client on {at.cpu}",
        at.cores and f"{at.cores} cores",
        at.memory_bytes and f"{at.memory_bytes / 2**30:.1f} GiB",
        at.system,
        at.python and f"Python {at.python}",
    ]
    told = [f"Behind {behind}."] if router else []
    told += [", ".join(str(part) for part in parts if part) + "."]
    return " ".join([*told, *(f"{gpu['name']}, driver {gpu['driver_version']}." for gpu in at.gpus)])


def workloads(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """What each family of workloads sent, as cells of a table: all values of its runs, of tokens the range of the runs' means."""
    return [
        {
            "family": family["family"][0],
            **{key: ", ".join(map(_word, _known(family, key))) or "–" for key in _SENT},
            **{to: _range(_known(family, key)) for key, to in _LENGTHS.items()},
        }
        for family in runs.partition_by("family", maintain_order=True)
    ]


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


_DEPLOYMENTS = (
    Column("deployment", "deployment"),
    Column("model", "model"),
    Column("engine", "served"),
    Column("dtype", "dtype"),
    Column("KV dtype", "kv_dtype"),
    Column("GPUs", "gpus", "%d"),
    Column("tensor × pipeline × data", "parallel"),
    Column("weights (GiB)", "weight_gib", "%.3g"),
    Column("KV tokens", "cache"),
    Column("ready after (s)", "ready_s", "%.3g"),
    Column("longest request", "max_model_len"),
    Column("prefix cache", "prefixes"),
)
_WORKLOADS = (
    Column("workload", "family"),
    Column("arrival", "arrival"),
    Column("endpoint", "endpoint"),
    Column("streaming", "stream"),
    Column("cache", "cache"),
    Column("turns", "turns"),
    Column("prompts", "prompts"),
    Column("prompt tokens", "prompt"),
    Column("answers", "answers"),
    Column("output tokens", "output"),
    Column("also in each body", "body"),
    Column("classes", "classes"),
    Column("seed", "seed"),
)


def section(view: View) -> Section:
    drawn = f" from `{labelled(view.commit)}`" if view.commit else ""
    by = "`, `".join(map(labelled, _known(view.runs, "commit")))
    measured = f"The runs were measured by `{by}`." if by else "Which commit measured the runs is not recorded."
    facts, sent = deployments(view.facts, view.runs), workloads(view.runs)
    blocks: list[Block] = [
        Text(f"Drawn by Saturate {__version__}{drawn}. {measured}"),
        Table("Deployments", _DEPLOYMENTS, facts, sorts=False),
    ]
    unread = "its metrics were not read, so its queue, its KV cache and the causes of its limits are not known."
    blocks += [Text(f"{fact['deployment']}: {unread}") for fact in facts if not fact["scraped"]]
    for fact in facts:
        name = fact["deployment"]
        how: Block = Code(fact["shell"]) if fact["shell"] else Text("It ran already, so how it was started is not known.")
        blocks.append(Fold(f"{name}: where it ran, and how it was started", [Text(fact["machine"]), how], deployment=name))
    blocks.append(Table("Workloads", _WORKLOADS, sent, sorts=False))
    return Section("provenance", "Where it ran, and with what settings", blocks)
