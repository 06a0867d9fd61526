"""Read a configuration, or thresholds as options name them; refuse what is wrong, with its key, its value and the fix, before any
job starts.
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bench.errors import BenchError, meant, shown
from bench.fields import KINDS, NAME
from bench.shipped import BENCH
from bench.study.config import Config
from bench.study.contradictions import contradictions
from bench.study.plan import Plan
from bench.study.search import with_ladder
from bench.study.sweep import expand
from bench.workloads.prompts import SOURCES, Source
from bench.workloads.workload import Workload
from bench.yaml_file import read_yaml


def at_scale(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with what its `scale` gives, and without `scales`.

    A scale says entries of the file's sections, such as `study.ladders` or `models.NAME`. Each is added to its section, or replaces the
    entry of that name, whole. What is not of the form of a configuration is left as it is.

    Raises:
        BenchError: the study has no scale of that name.
    """
    scales, name = content.get("scales"), content.get("scale")
    if name is None:
        return {key: value for key, value in content.items() if key != "scales"} if isinstance(scales, Mapping) else content
    if not isinstance(scales, Mapping) or not isinstance(name, str) or not isinstance(scales.get(name), Mapping):
        known = ", ".join(map(str, scales)) if isinstance(scales, Mapping) and scales else "none"
        raise BenchError(f"scale is {shown(name)}: the study has no scale of that name. There are: {known}.")
    found = {key: value for key, value in content.items() if key != "scales"}
    for section, entries in scales[name].items():
        before: Any = found.get(section)
        found[section] = {**before, **entries} if isinstance(before, Mapping) and isinstance(entries, Mapping) else entries
    return found


M = TypeVar("M", bound=BaseModel)
_MOST_FAULTS = 30  # most faults that a message names; convention


def load_file(path: Path, **overrides: Any) -> Config:
    """The configuration in `path`, with top-level keys replaced by `overrides`."""
    return _checked({**read_yaml(path), **overrides}, str(path))


def load_config(content: Mapping[str, Any], *, source: str, files: Sequence[Path] = ()) -> Config:
    """A checked configuration.

    Args:
        content: the mapping, as Snakemake or a file gives it.
        source: what to call it in messages, usually its path.
        files: files it came from; each is read again for repeated keys, which the mapping no longer shows.

    Raises:
        BenchError: every fault that was found, one a line.
    """
    for file in files:
        name = os.path.relpath(file)
        if name.startswith("results/") and not file.suffix:  # `--configfile` takes every word up to the next option
            raise BenchError(
                f"{name} is a target and no study. Write `--` before the targets: snakemake --configfile FILE -- {name}"
            )
        read_yaml(file)
    return _checked(content, source)


def plan_of(content: Mapping[str, Any]) -> Plan:
    """The plan of the workflow's configuration, for its jobs."""
    return Plan.of(load_config(content, source="the workflow's configuration"))


def _checked(content: Mapping[str, Any], source: str) -> Config:
    try:
        expansion = expand(at_scale(content))
    except BenchError as error:
        raise BenchError(f"{source}: {error}") from None
    faults: Iterable[str]
    try:
        config = Config.model_validate(expansion.content)
        faults = contradictions(config, expansion.swept)
    except ValidationError as error:
        faults = map(_explain, _faults(error))
    if told := expansion.told(faults):
        raise BenchError(_lines(source, told))
    return config if config.study.ladders else with_ladder(config)


def _lines(source: str, faults: Iterable[str]) -> str:
    every = list(faults)
    more = [f"{source}: and {len(every) - _MOST_FAULTS:,} more"] if len(every) > _MOST_FAULTS else []
    return "\n".join([*(f"{source}: {fault}" for fault in every[:_MOST_FAULTS]), *more])


def read_workload(file: Path) -> dict[str, Any]:
    """What the file of one workload says, unchecked. Raises BenchError: it cannot be read, or it is a whole study's."""
    content = read_yaml(file)
    if strange := [key for key in content if key in Config.model_fields and key not in Workload.model_fields]:
        known = content.get("workloads")
        names = f" (there are: {', '.join(map(str, known))})" if isinstance(known, dict) and known else ""
        command = f"make figures CONFIG={file}" if BENCH != "bench" else f"snakemake --configfile {file}"
        keys = " and ".join(f"`{key}`" for key in strange[:2])
        raise BenchError(
            f"--workload {file}: this is a study's file, with {keys}, and --workload takes a single workload. Copy what stands below "
            f"one name of its `workloads`{names} into a file of its own; or measure the whole study: `{command}`."
        )
    return content


def load_workload(content: Mapping[str, Any], *, source: str) -> Workload:
    """One checked workload, outside of a configuration. Raises: BenchError: every fault that was found, one a line."""
    return checked(Workload, content, source)


def checked(kind: type[M], content: Mapping[str, Any], source: str) -> M:
    """`content` as a `kind`. Raises: BenchError: every fault that was found, one a line after the `source`."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise BenchError(_lines(source, (_explain(e, kind) for e in _faults(error)))) from None


def _faults(error: ValidationError) -> list[ErrorDetails]:
    """Its faults, each at the place where a file has it: of keys and numbers, without the kinds of value that a key takes."""
    return [
        ErrorDetails(**{**each, "loc": tuple(part for part in each["loc"] if part not in KINDS)}) for each in error.errors()
    ]


def _explain(error: ErrorDetails, root: type[BaseModel] = Config) -> str:
    """One fault of a `root` as `key is value: what is wrong. What the key means.`"""
    value = error["input"]
    key, beside, field = _place(error["loc"], root)
    if error["type"] == "extra_forbidden":
        close = meant(str(error["loc"][-1]), beside)
        hint = f"Did you mean {close}?" if close else f"Known here: {', '.join(beside)}."
        return f"{key} is not a key. {hint}"
    meaning = f" {field.description}" if field and field.description else ""
    if error["type"] == "missing":
        return f"{key} is missing.{meaning}"
    message = _wrong(error)
    if isinstance(value, dict) and error["type"] in ("value_error", "union_tag_invalid"):  # a rule between keys, which it names
        return f"{key}: {message}." if key else f"{message}."
    if message.startswith(shown(value)):  # it quotes the value, and says what one looks like
        return f"{key}: {message}."
    return f"{key} is {shown(_without_secret(value))}: {message[0].lower()}{message[1:]}.{meaning}"


def _without_secret(value: Any) -> Any:
    """A value without the user, the password and the query of an address."""
    if not isinstance(value, str):
        return value
    value = re.sub(r"(?<=://)\S*@|^[^\s/]+:[^\s/]+@", "…@", value)
    return re.sub(r"(://[^?\s]*\?)\S+", r"\1…", value)


def _wrong(error: ErrorDetails) -> str:
    """What is wrong with a value, as a clause."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "string_pattern_mismatch":
        hint = "; a name has lower case letters, digits, `.` and `-`" if context["pattern"] == NAME else ""
        return f"not of the form {context['pattern']}{hint}"
    if kind == "union_tag_invalid":  # the source of prompts, the only key by which a mapping is read as one class or another
        given = value.get("source") if isinstance(value, dict) else context["tag"]
        return f"source is {shown(given)}: it should be one of {context['expected_tags']}"
    message = error["msg"].removeprefix("Value error, ").rstrip(".").replace("Input should", "it should", 1)
    message = message.partition(" or instance of")[0]  # a class of Python
    if kind == "literal_error":
        near = meant(value, re.findall(r"'(.*?)'", context["expected"])) if isinstance(value, str) else None
        return f"did you mean {near}? {message[0].upper()}{message[1:]}" if near else message
    return message


def _place(location: Sequence[int | str], root: type[BaseModel]) -> tuple[str, Mapping[str, FieldInfo], FieldInfo | None]:
    """The key at a place in a `root`, the fields beside it, and its own field; of an item, that of its list or mapping."""
    annotation: Any = root
    key, beside, field = "", dict[str, FieldInfo](), None
    for place, part in enumerate(location, 1):
        if part == "[key]":
            continue
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
        if model and issubclass(model, Source) and part in SOURCES and place < len(location):
            annotation = SOURCES[str(part)]  # whose name pydantic puts ahead of its keys
            continue
        key += f"[{part}]" if isinstance(part, int) else f".{part}"
        beside = model.model_fields if model else {}
        field = beside.get(str(part)) if model else field
        annotation = (field.annotation if field else None) if model else (typing.get_args(annotation) or (None,))[-1]
        if typing.get_origin(annotation) in (typing.Union, types.UnionType):
            annotation = next(each for each in typing.get_args(annotation) if each is not type(None))
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
    key = key.lstrip(".")
    return key if key.isprintable() else shown(key), beside, field
