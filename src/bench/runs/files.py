"""JSON to dataclasses and back, and checksums of files. What is read has the types that its fields declare; messages name the place, as
`$.plan.kv_tokens`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bench.errors import BenchError

UNREADABLE = (OSError, ValueError, RecursionError)  # what reading a file that is not a record may raise
AGAIN = "Remove it, and the next workflow makes it again."
R = TypeVar("R")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        OSError, ValueError, RecursionError: the file has no JSON object, or is missing.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("it holds no object")
    return content


def read(kind: type[R], path: Path, remedy: str = AGAIN) -> R:
    """The record in `path`.

    Args:
        kind: a dataclass. remedy: what to do about a file that holds no such record.

    Raises:
        BenchError: it names the file, the place in it and what is wrong.
    """
    return read_as(lambda content: typed(kind, content), path, remedy)


def read_as(made: Callable[[dict[str, Any]], R], path: Path, remedy: str) -> R:
    """What `made` makes of the object in `path`, or raises ValueError about; else as `read`."""
    try:
        return made(read_object(path))
    except FileNotFoundError:
        raise BenchError(f"{path}: no such file. {remedy}") from None
    except UNREADABLE as error:
        raise BenchError(f"{path}: not a valid {path.name} ({error}). {remedy}") from None


def read_known(kind: type[R], path: Path) -> R | None:
    """The record in `path`; None where there is none that can be read: it is made again."""
    try:
        return read(kind, path)
    except BenchError:
        return None


def read_kept(kind: type[R], path: Path) -> R | None:
    """The record that `write_kept` wrote to `path` last; None where there is none that can be read."""
    return read_known(kind, _kept(path))


def write_kept(record: Any, path: Path) -> None:
    """Write a record that its next version is made from, and a copy of it: the workflow removes what a job is about to write, so that a
    job which is interrupted runs again.
    """
    for each in (_kept(path), path):
        write_record(record, each)


def _kept(path: Path) -> Path:
    return path.parent / ".kept" / path.name


def typed(kind: type[R], content: Any) -> R:
    """`content` as `kind`, a dataclass: what it lacks takes its default, and what `kind` does not know is left out.

    Raises:
        ValueError: it names the place of what is missing, or is not what its field declares.
    """
    return msgspec.convert(content, kind)


def write_record(record: Any, path: Path) -> None:
    """Write a record, its fields in their order, as `write_object` does."""
    write_object(asdict(record), path)


def write_object(content: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object; `path`, whose folder is made, holds all of it or what it held before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def digest(content: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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
    """`files`, if it names files beside its record and their checksums. Raises ValueError: it does not."""
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
