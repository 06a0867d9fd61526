"""Which server production runs, by what its exposition shows: names of metrics, and settings of the KV cache."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from bench.drifted.judge import DIFFERS, SAME, UNKNOWN, Compared
from bench.engines import Kind
from bench.records.deployment import DeploymentFacts

__all__ = ["compared_server"]

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
    engine = " ".join(filter(None, [kinds[0].title if kinds[0] else None, facts.engine_version if facts else None])) or None
    yield _version(engine, kinds, names)
    studied = {key: value for key, value in (facts.cache_config if facts else {}).items() if key not in targets}
    now = (
        kinds[1].kv_facts({"cache_config": [(labels, 1.0) for labels in configs]}, {}).cache_config
        if kinds[1] and configs
        else {}
    )
    yield _settings(studied, {key: value for key, value in now.items() if key not in targets})


def _version(
    engine: str | None, kinds: tuple[Kind | None, Kind | None], names: tuple[Collection[str], Collection[str]]
) -> Compared:
    """By names alone, as no engine shows its version among its metrics: another set of names is another version, the same set none."""
    bare = ("engine and version", "server", "")
    kind, now = kinds
    if kind is None or now is None:
        why = "the study has no metrics of a known engine" if kind is None else "production shows no metrics of a known engine"
        return Compared(*bare, engine, None if now is None else now.title, why=why, shown=False)
    if kind is not now:
        return Compared(*bare, engine, now.title, verdict=DIFFERS, why="another engine")
    before, after = _stems(names[0], kind), _stems(names[1], kind)
    if more := sorted(after - before):
        why = f"it exposes {_listed(more)}, which the measured server did not: another version, or other settings"
        return Compared(*bare, engine, kind.title, verdict=DIFFERS, why=why)
    if fewer := sorted(before - after):
        why = f"it does not expose {_listed(fewer)}: another version, or Prometheus drops them"
        return Compared(*bare, engine, kind.title, verdict=UNKNOWN, why=why, shown=False)
    why = "its metrics have the same names, and none of them shows the version"
    return Compared(*bare, engine, kind.title, verdict=UNKNOWN, why=why, shown=False)


def _stems(names: Collection[str], kind: Kind) -> set[str]:
    """Names of an engine's metrics without prefix, and without what a type appends."""
    prefixes = sorted((each.prefix for each in kind.spellings()), key=len, reverse=True)
    found = ((next((prefix for prefix in prefixes if name.startswith(prefix)), None), name) for name in names)
    return {_PART_OF_A_FAMILY.sub("", name.removeprefix(prefix)) for prefix, name in found if prefix is not None}


def _settings(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> Compared:
    bare = ("settings of the KV cache", "server", "")
    if not before or not after:
        why = f"{'the study' if not before else 'production'} does not show them"
        return Compared(*bare, None, None, why=why, shown=False)
    count = f"{len(before)} settings"
    changed = [
        f"{key} {before[key]} → {after[key]}"
        for key in sorted(before.keys() & after.keys())
        if _apart(key, before[key], after[key])
    ]
    if changed:
        return Compared(*bare, count, _listed(changed, "; "), verdict=DIFFERS, why=_listed(changed, "; "))
    if others := sorted(before.keys() ^ after.keys()):
        return Compared(
            *bare,
            count,
            f"{len(after)} settings",
            verdict=DIFFERS,
            why=f"only one of both has {_listed(others)}: another version",
        )
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


def _listed(words: Sequence[str], between: str = ", ") -> str:
    return between.join(words[:_NAMED]) + (f" and {len(words) - _NAMED} more" if len(words) > _NAMED else "")
