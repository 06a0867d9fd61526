"""JSON to dataclasses and back. What is read has the types that its fields declare; a message names the key that does not."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from bench.errors import BenchError, shown

UNREADABLE = (OSError, ValueError, RecursionError)  # what reading a file that is not a record may raise
# Characters that XML, and so an SVG, cannot hold: the library that draws charts ends the whole process for one of them.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_MOST = 1e15  # of a number: beyond it, nothing of ours was counted or measured

# Names that stand in charts; a configuration cannot give them control characters, another program's record can.
_DRAWN = ("deployment", "run", "workload", "family", "model")
R = TypeVar("R")


def read_object(path: Path, *, constants: bool = False) -> dict[str, Any]:
    """The JSON object in `path`.

    Args:
        constants: whether NaN and infinities are taken; in what was measured they are refused.

    Raises:
        OSError, ValueError, RecursionError: there is none, or one of its names has characters that no chart can show.
    """
    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=None if constants else refuse_constant)
    if not isinstance(content, dict):
        raise ValueError("it holds no object")
    definition = content.get("definition")
    for key, value in (content | definition if isinstance(definition, dict) else content).items():
        if key in _DRAWN and no_text(value):
            raise ValueError(f"{key!r} is {shown(value)}, with a control character")
    return content


def no_text(value: Any) -> bool:
    """Whether it is a text that no chart can show."""
    return isinstance(value, str) and _NO_TEXT.search(value) is not None


def read_typed(kind: type[R], path: Path, fix: str, *, constants: bool = False) -> R:
    """The record in `path`.

    Args:
        kind: a dataclass. fix: what to do about a file that is none. constants: as `read_object` takes it.

    Raises:
        BenchError: it names the file, the key and what is wrong.
    """
    return read_as(lambda content: typed(kind, content), path, fix, constants=constants)


def read_as(made: Callable[[dict[str, Any]], R], path: Path, fix: str, *, constants: bool = False) -> R:
    """What `made` makes of the object in `path`, or raises ValueError about; else as `read_typed`."""
    try:
        return made(read_object(path, constants=constants))
    except FileNotFoundError:
        raise BenchError(f"{path}: no such file. {fix}") from None
    except UNREADABLE as error:
        raise BenchError(f"{path}: not a valid {path.name} ({error}). {fix}") from None


def refuse_constant(constant: str) -> float:
    """What JSON is read with, so that NaN and infinities are refused."""
    raise ValueError(f"{constant} is no measurement")


def typed(kind: type[R], content: Any, at: str = "", *, most: float = _MOST) -> R:
    """`content` as the dataclass `kind`: what it lacks takes its default, and what `kind` does not know is left out.

    Args:
        at: where it stands, for messages. most: what numbers lie below; infinity takes any.

    Raises:
        ValueError: it names the key that is missing, or is not what its field declares.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{at} is {shown(content)}" if at else "it holds no object")
    values, hints = {}, _hints(kind)  # type: ignore[arg-type] # a type is hashable
    for field in fields(kind):  # type: ignore[arg-type] # a dataclass
        where = f"{at}.{field.name}" if at else field.name
        if field.name in content:
            values[field.name] = _value(hints[field.name], content[field.name], where, most)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where} is missing")
    return kind(**values)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, at: str, most: float) -> Any:
    """`value`, if it is what `hint` declares; lists become tuples, and objects dataclasses where it names one."""
    kinds = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
    if Any in kinds or (value is None and NoneType in kinds):
        return value
    for kind in kinds:
        origin, inner = get_origin(kind), get_args(kind)
        if (
            isinstance(kind, type)
            and is_dataclass(kind)
            and isinstance(value, dict)
            and value.get("is") in (None, kind.__name__)
        ):
            return typed(kind, value, at, most=most)
        if origin is tuple and isinstance(value, list):
            each = (inner[0],) * len(value) if inner[1:] == (...,) else inner
            if len(each) == len(value):
                return tuple(_value(k, v, f"{at}[{i}]", most) for i, (k, v) in enumerate(zip(each, value, strict=True)))
        if origin is Literal and value in inner:
            return value
        if origin is Mapping and isinstance(value, dict):
            return {name: _value(inner[1], v, f"{at}.{name}", most) for name, v in value.items()}
        if kind in (int, float) and _is_number(kind, value, most):
            return value
        if isinstance(kind, type) and kind not in (int, float) and isinstance(value, kind):
            return value
    raise ValueError(f"{at} is {shown(value)}")


def _is_number(kind: type, value: Any, most: float) -> bool:
    types = int if kind is int else (int, float)
    return isinstance(value, types) and not isinstance(value, bool) and (most == math.inf or abs(value) < most)


def plain(value: Any) -> Any:
    """`value` as JSON takes it. A dataclass names its type as `is`, by which `typed` tells the members of a union apart."""
    if is_dataclass(value):
        return {"is": type(value).__name__, **{field.name: plain(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def write_record(record: Any, path: Path) -> None:
    """Write a record, its fields in their order, as `write_object` does."""
    write_object(asdict(record), path)


def write_object(content: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object; `path` holds all of it or what it held before."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def digest(content: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
