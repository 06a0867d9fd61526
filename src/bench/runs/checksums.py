"""What a record lists of the files beside it, read without its other content: whose it is, and whether all is there as measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.runs.files import UNREADABLE, read_object


def checksum(file: Path) -> str:
    """A file's SHA-256."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each of `names` that is in `folder`."""
    return {name: checksum(folder / name) for name in names if (folder / name).exists()}


def record_digest(record: Path) -> str | None:
    """The digest inside a record; None where there is no readable record."""
    try:
        return str(read_object(record)["digest"])
    except (*UNREADABLE, KeyError):
        return None


def files_of(record: Path) -> dict[str, str]:
    """The files that a record names, each with its SHA-256; none where it names none.

    Raises:
        OSError, ValueError, RecursionError: it is not a record.
    """
    return dict(checked_names(read_object(record).get("files", {})))


def checked_names(files: Any) -> Mapping[str, str]:
    """`files`, if it names files beside its record and their checksums.

    Raises:
        ValueError: it does not.
    """
    if not isinstance(files, dict) or not all(isinstance(expected, str) for expected in files.values()):
        raise ValueError("files names no checksums")
    for name in files:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"files names {name!r:.120}, which is no file beside it")
    return files


def whole(folder: Path, last: str) -> bool:
    """Whether the record `last` in `folder` can be read, and each file that it names is there, as it was measured."""
    try:
        files = files_of(folder / last)
    except UNREADABLE:
        return False
    return all((folder / name).is_file() and checksum(folder / name) == expected for name, expected in files.items())
