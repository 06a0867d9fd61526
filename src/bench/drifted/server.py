"""Which server production runs, by what its exposition shows: names of metrics, and settings of the KV cache."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from bench.drifted.judge import DIFFERS, SAME, UNKNOWN, Compared
from bench.errors import first_names
from bench.runs.deployment import DeploymentFacts
from bench.servers.engines import Kind
from bench.servers.metrics import of_other_versions

_PART_OF_A_FAMILY = re.compile(r"_(?:sum|count|bucket|created|total)$")
# Settings that a server measures when it starts, so that two starts differ a little.
_MEASURED = ("num_gpu_blocks", "kv_cache_size_tokens", "kv_cache_max_concurrency")
_APART = 0.05  # least relative difference of such a setting that matters; convention: a start's free memory differs by less
_NAMED = 3  # differences that are named; convention

_Labels = Mapping[str, str]


def compared_server(
    facts: DeploymentFacts | None,
    kinds: tuple[Kind | None, Kind | None],
    names: tuple[Collection[str], Collection[str]],
    configs: Sequence[_Labels],
    targets: Collection[str],
) -> Iterator[Compared]:
    """The version and the settings of production beside those of the study.

    Args:
        facts: of the study. kinds, names: the engine, and the names of its metrics, of the study and of production.
        configs: the labels of each series in which the engine shows its settings. targets: names of labels that are not the engine's.
    """
    yield _version(facts.engine_version if facts else None, kinds, names)
    studied = {key: value for key, value in (facts.cache_config if facts else {}).items() if key not in targets}
    # Each by itself: two servers, or two starts of one, measure a little apart.
    now = [kinds[1].kv_facts({"cache_config": [(labels, 1.0)]}, {}).cache_config for labels in configs] if kinds[1] else []
    yield _settings(studied, [{key: value for key, value in each.items() if key not in targets} for each in now if each])


def _version(
    version: str | None, kinds: tuple[Kind | None, Kind | None], names: tuple[Collection[str], Collection[str]]
) -> Compared:
    """By names alone, as no engine shows its version among its metrics.

    Only a name that the study's version does not have is another version: others depend on settings and on what was asked, and
    recording rules make names of their own.
    """
    bare = ("engine and version", "server", "")
    kind, now = kinds
    engine = " ".join(filter(None, [kind.title if kind else None, version])) or None
    if kind is None or now is None:
        why = "the study has no metrics of a known engine" if kind is None else "production shows no metrics of a known engine"
        return Compared(*bare, engine, None if now is None else now.title, why=why, shown=False)
    if kind is not now:
        return Compared(*bare, engine, now.title, verdict=DIFFERS, why="another engine")
    before, after = _stems(names[0], kind), _stems(names[1], kind)
    more, fewer = after - before, before - after
    if others := sorted(more & _stems(of_other_versions(kind, version), kind)):
        why = f"it exposes {first_names(others, _NAMED)}, which {engine} does not have: another version"
        return Compared(*bare, engine, kind.title, verdict=DIFFERS, why=why)
    # A counter may come with its first count.
    lazy = _stems((row.name for rows in kind.metrics.values() for row in rows if row.absent == "zero"), kind)
    if more := more - lazy:
        named = first_names(sorted(more), _NAMED)
        why = f"it exposes {named}, which the measured server did not: another version, other settings or other use"
    elif fewer := fewer - lazy:
        why = f"it does not expose {first_names(sorted(fewer), _NAMED)}: another version, or Prometheus drops them"
    else:
        why = "its metrics have the same names, and none of them shows the version"
    return Compared(*bare, engine, kind.title, verdict=UNKNOWN, why=why, shown=False)


def _stems(names: Iterable[str], kind: Kind) -> set[str]:
    """Names of an engine's metrics without prefix, and without what a type appends; none of a recording rule (`vllm:…:rate5m`)."""
    prefixes = sorted((each.prefix for each in kind.spellings()), key=len, reverse=True)
    found = ((next((prefix for prefix in prefixes if name.startswith(prefix)), None), name) for name in names)
    bare = (name.removeprefix(prefix) for prefix, name in found if prefix is not None)
    return {_PART_OF_A_FAMILY.sub("", name) for name in bare if ":" not in name}


def _settings(before: Mapping[str, str | None], servers: Sequence[Mapping[str, str | None]]) -> Compared:
    """Args: before: of the study; None where its own engines differ. servers: of each server of production, or start of one."""
    bare = ("settings of the KV cache", "server", "")
    if not before or not servers:
        why = f"{'the study' if not before else 'production'} does not show them"
        return Compared(*bare, None, None, why=why, shown=False)
    count = f"{len(before)} settings"
    changed = {
        f"{key} {before[key]} → {after[key]}"
        for after in servers
        for key in before.keys() & after.keys()
        if before[key] is not None and _apart(key, before[key], after[key])
    }
    if changed:
        said = first_names(sorted(changed), _NAMED, "; ")
        return Compared(*bare, count, said, verdict=DIFFERS, why=said)
    if others := {key for after in servers for key in before.keys() ^ after.keys()}:
        why = f"only one of both has {first_names(sorted(others), _NAMED)}: another version"
        return Compared(*bare, count, "other settings", verdict=DIFFERS, why=why)
    return Compared(*bare, count, "the same", verdict=SAME)


def _apart(key: str, before: str | None, after: str | None) -> bool:
    if before == after:
        return False
    if key not in _MEASURED:
        return True
    try:
        one, other = float(before or ""), float(after or "")
    except ValueError:
        return True
    return abs(one - other) > _APART * one
