"""Conditions under which a study has a figure: whether its runs can answer the figure's question.

`bench.findings.registry` says which figure has which. A condition sees the runs as plain rows, as `Plan.rows` gives them before
anything has run, and the summary table afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.servers.settings import SPECULATION, STEP_TOKENS, flag_column, varying_settings
from bench.statistics.textbook import FEWEST_POINTS
from bench.workloads.prompts import RANDOM, SOURCES
from bench.workloads.workload import ALIKE

Rows = Sequence[Mapping[str, Any]]
Condition = Callable[[Rows], bool]
CROSSED = ("level", "prompt_fixed", "output_fixed")
_PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")
FEWEST_CONFIGURATIONS = (
    20  # fewest configurations of a factor analysis; derived: of fewer, five folds hold out less than four each
)


def varied(rows: Rows, key: str, *, within: Sequence[str]) -> int:
    """The most values of `key` among rows that agree in `within`."""
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row.get(key) is not None:
            seen[tuple(row.get(other) for other in within)].add(row[key])
    return max(map(len, seen.values()), default=0)


def plain(rows: Rows) -> Rows:
    """Rows of load sweeps, not of length sweeps.

    These are workloads whose lengths no ladder sweeps, and each length of those that one sweeps at several loads: a condition of its
    own, with a capacity of its own. Where factors are crossed, a load is one of them.
    """
    swept = [row for row in rows if row["workload"] != row["family"]]
    if not swept:
        return rows
    crossed = crossed_families(rows) if crossed_factors(rows) else set()
    loads: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in swept:
        if not (row["arrival"] == "burst" and row["family"] in crossed):
            loads[row["deployment"], row["workload"]].add(row["level"])
    several = {curve for curve, found in loads.items() if len(found) > 1}
    return [row for row in rows if row["workload"] == row["family"] or (row["deployment"], row["workload"]) in several]


def levels(fewest: int) -> Condition:
    """A curve with so many levels of load."""
    return lambda rows: varied(plain(rows), "level", within=("deployment", "workload", "axis")) >= fewest


def shows_kv_cache(rows: Rows) -> bool:
    """A curve of a server whose metrics are read, and once they are there, that have its KV cache's usage."""
    return levels(2)([row for row in rows if row.get("metrics") is not False and row.get("kv_usage_peak", 0) is not None])


def speculative(rows: Rows) -> bool:
    """A curve of a server that speculates: by its flags, and once runs are there, by what it drafted."""
    drafts = [
        row
        for row in rows
        if row.get("spec_draft_tokens")
        or row.get("accepted_length")
        or any(row.get(flag) not in (None, "none") for flag in SPECULATION)
    ]
    return levels(2)(drafts)


def wanted(key: str) -> Condition:
    """The study's decision asks for it (`slo`, `variable_costs`), and there is a curve."""
    curve = levels(2)
    return lambda rows: any(row.get(key) for row in rows) and curve(rows)


def lengths(key: str) -> Condition:
    """Three lengths or more at one load, all else alike, and no other length swept beside them (that is a study of factors)."""
    other = "output_fixed" if key == "prompt_fixed" else "prompt_fixed"

    def applies(rows: Rows) -> bool:
        alone = [row for family in _families(rows) if varied(family, other, within=()) == 1 for row in family]
        return varied(alone, key, within=("deployment", "family", "axis", "level")) >= FEWEST_POINTS

    return applies


def swept_length(rows: Rows) -> bool:
    """A sweep of prompt lengths, or of output lengths."""
    return any(lengths(key)(rows) for key in ("prompt_fixed", "output_fixed"))


def with_and_without_streaming(rows: Rows) -> bool:
    """The same requests both ways. Lengths of a distribution do not show that requests are the same."""
    fixed = [row for row in rows if row.get("prompt_fixed") is not None and row.get("output_fixed") is not None]
    return varied(fixed, "stream", within=ALIKE) == 2


def several_settings(rows: Rows) -> bool:
    """The same model on the same engine under the same load, with several values of a setting."""
    return any(map(varying_settings, _alike(rows)))


def _alike(rows: Rows) -> list[list[Mapping[str, Any]]]:
    """A row of each deployment of the same model on the same engine, for each load that they have in common."""
    alike: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in plain(rows):
        alike[tuple(row.get(key) for key in ("model", "engine", "workload", "axis", "level"))][row["deployment"]] = row
    return [list(deployments.values()) for deployments in alike.values()]


def on_gpus(rows: Rows) -> bool:
    """Runs on GPUs under loads of their own, whether or not the GPUs reported anything."""
    return any(row.get("device") == "cuda" for row in plain(rows))


def crossed_factors(rows: Rows) -> bool:
    """Families in which factors are crossed, and three factors that vary in all."""
    families = crossed_families(rows)
    return len(_factors([row for row in rows if row["family"] in families])) >= 3


def crossed_families(rows: Rows) -> set[str]:
    """Families of bursts in which two of load and lengths are crossed, by servers that differ in model and parallelism
    alone: other settings are compared by themselves.
    """
    held = defaultdict(list)
    for row in rows:
        if row.get("arrival") == "burst":
            held[row["family"]].append(row)
    return {family for family, found in held.items() if _are_crossed(found)}


def _are_crossed(rows: Rows) -> bool:
    return sum(_several(rows, key) for key in CROSSED) >= 2 and _factors(rows) <= {*CROSSED, "model", *_PARALLEL}


def _factors(rows: Rows) -> set[str]:
    """What varies of load, lengths, model and settings; what always changes together counts once."""
    deployments = list({row["deployment"]: row for row in rows}.values())
    return {key for key in CROSSED if _several(rows, key)} | set(varying_settings(deployments, ("model", "engine")))


def tokens_over_time(rows: Rows) -> bool:
    """Answers that come token by token."""
    return any(row.get("stream") is not False and (row.get("output_fixed") or 2) > 1 for row in plain(rows))


def predictable(rows: Rows) -> bool:
    """A curve of a server whose scheduler's limits are known, as the study started it or its deployment's flags say them, with known
    lengths and answers that show its steps.
    """
    flags = [flag_column(flag) for names in STEP_TOKENS.values() for flag in names]
    known = [row for row in rows if _sized(row) and row.get("answers") != "natural"]
    said = [row for row in known if row.get("started") or any(row.get(flag) is not None for flag in flags)]
    return levels(2)([row for row in said if row.get("stream") is not False])


def _sized(row: Mapping[str, Any]) -> bool:
    """Whether prompts have the lengths asked for: those of each class, whose sources stand one after another."""
    return all(name in SOURCES and SOURCES[name].sized for name in (row.get("prompts") or RANDOM.name).split(", "))


def beside_baseline(rows: Rows) -> bool:
    """The baseline and another deployment under the same load."""
    load = ("workload", "axis", "level")
    sides: dict[bool, set[tuple[Any, ...]]] = {True: set(), False: set()}
    for row in rows:
        sides[bool(row.get("baseline"))].add(tuple(row.get(key) for key in load))
    return bool(sides[True] & sides[False])


def _families(rows: Rows) -> list[list[Mapping[str, Any]]]:
    families = defaultdict(list)
    for row in rows:
        families[row["family"]].append(row)
    return list(families.values())


def _several(rows: Rows, key: str) -> bool:
    return varied(rows, key, within=()) > 1
