"""YAML files that say nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bench.errors import BenchError

__all__ = ["read_yaml"]


class _UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml's parser is five times as fast
    """YAML in which a repeated key is an error: PyYAML would keep the last one and say nothing."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    # Before `<<` is resolved: a key that overrides a merged one is no repetition.
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise BenchError(
                f"{key.start_mark.name}: line {key.start_mark.line + 1}: the name {key.value!r} stands twice in one mapping. "
                "Only one of the two would count; put all entries under the first, or rename one."
            )
        seen.add(str(key.value))
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        BenchError: the file is missing, is not YAML, holds no mapping, or repeats a key.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            content = yaml.load(stream, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise BenchError(f"{path}: no such file. Name a configuration with --configfile.") from None
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror}. Name a configuration file with --configfile.") from None
    except yaml.YAMLError as error:
        raise BenchError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise BenchError(
            f"{path}: holds no mapping; a configuration starts with `study:`, and a file of devices with the name of one."
        )
    return content
