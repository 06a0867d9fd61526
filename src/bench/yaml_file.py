"""YAML files that repeat no key, and cannot keep a reader busy."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import yaml

from bench.bounds import MOST_BYTES
from bench.errors import BenchError


class _UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml's parser is five times as fast
    """YAML in which a repeated key is an error: PyYAML would keep the last one silently."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    # Before `<<` is resolved: a key that overrides a merged one is not a repetition.
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise BenchError(
                f"{key.start_mark.name}: line {key.start_mark.line + 1}: the key {key.value!r} appears twice in one mapping. Only one "
                "would count; put all entries under the first, or rename one."
            )
        seen.add(str(key.value))
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


# What is within these is read in some ten seconds at most. The largest file of this project has 1,500 values, six levels deep.
_DEPTH, _VALUES = 64, 200_000


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        BenchError: the file is missing, is not UTF-8 or not YAML, holds no mapping, repeats a key, or is beyond what is read: 4 MiB,
            64 levels of nesting, or 200,000 values with each alias (`*name`) counted as what it stands for.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(MOST_BYTES + 1).decode("utf-8-sig")
        if len(text) > MOST_BYTES:
            raise BenchError(f"{path}: larger than {MOST_BYTES // 2**20} MiB, which no configuration is. Name the right file.")
        _refuse_endless(text, path)
        content = yaml.load(_Named(text, path), Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise BenchError(f"{path}: no such file. Give the path of a YAML file.") from None
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror}. Give the path of a YAML file.") from None
    except UnicodeDecodeError as error:
        raise BenchError(f"{path}: not UTF-8 (byte {error.start + 1}: {error.reason}). Save the file as UTF-8.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        tab = mark is not None and any(re.match(r"[ -]*\t", line) for line in text.splitlines()[mark.line : mark.line + 1])
        raise BenchError(f"{path}: not valid YAML: {error}" + ("\nIndent with spaces, not with tabs." if tab else "")) from None
    # PyYAML's own, of a date such as 2026-13-01, a number of 5,000 digits, or a tag such as !!int with nothing behind it.
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise BenchError(f"{path}: a value cannot be read: {error}. Put it in quotes if it is a text.") from None
    if not isinstance(content, dict):
        raise BenchError(
            f"{path}: not a mapping; a configuration starts with `study:`, a file of devices with a device's name."
        )
    return content


class _Named(io.StringIO):
    """A text under its file's name, which PyYAML puts into its messages."""

    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text)
        self.name = str(path)


def _refuse_endless(text: str, path: Path) -> None:
    """Refuse, from the parser's events alone, what would take a reader too long or too deep."""
    sizes: dict[str, int] = {}  # of each anchor's value
    opened: list[tuple[str | None, int]] = []  # anchor of each open list or mapping, and the values before it
    values = 0
    for event in yaml.parse(_Named(text, path), Loader=_UniqueKeys):
        if isinstance(event, yaml.AliasEvent):
            values += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
            values += 1
            if event.anchor:
                sizes[event.anchor] = _VALUES  # an alias inside of what it stands for would have no end
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor:
                sizes[anchor] = values - before
        where = f"{path}: line {event.start_mark.line + 1 if event.start_mark else '?'}"
        if len(opened) > _DEPTH:
            raise BenchError(f"{where}: nested more than {_DEPTH} levels deep, which no configuration is. Remove the nesting.")
        if values > _VALUES:
            raise BenchError(
                f"{where}: more than {_VALUES:,} values, with each alias (`*name`) counted as what it stands for. Write fewer "
                "entries, or replace the alias."
            )
