"""`pack.json`: what a pack holds, and by which sources its runs were measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.errors import shown
from bench.runs.files import read_object, typed

FORMAT = 1
INDEX = "pack.json"


@dataclass(frozen=True, kw_only=True)
class PackIndex:
    """A pack's contents.

    Attributes:
        format: of the pack. title: the study's. packed: when (UTC, ISO). commit: of the sources that packed it; None where that is
            not known. protocol: of the measurement.
        runs: digest of each run in it by `deployment/run`. missing: runs of the study that are not in it.
        files: SHA-256 of each file in it by its name; all but this one.
    """

    format: int = FORMAT
    title: str | None = None
    packed: str | None = None
    commit: str | None = None
    protocol: int | None = None
    runs: Mapping[str, str]
    missing: tuple[str, ...]
    files: Mapping[str, str]

    def encoded(self) -> bytes:
        """It as the content of its file."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()


def read_index(path: Path) -> PackIndex:
    """The index in `path`.

    Raises:
        OSError, ValueError, RecursionError: there is none, or one of another format; where a key is wrong, its place is named.
    """
    content = read_object(path)
    if content.get("format") != FORMAT:
        raise ValueError(f"a pack of format {shown(content.get('format'))}, and this version reads {FORMAT}")
    return typed(PackIndex, content)
