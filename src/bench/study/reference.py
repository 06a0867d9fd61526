"""The configuration's reference and JSON schema, generated from its models."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bench.study import config, workload
from bench.study.hardware import Device
from bench.study.lengths import LengthDistribution
from bench.study.model import Architecture, Model

__all__ = ["reference", "schema"]

_INTRODUCTION = """\
# Configuration

<!-- Generated from src/bench/study/config.py, model.py and workload.py by `bench config`; edit the descriptions there. -->

`config/config.yaml` is the default study; `--configfile FILE` (or `make figures CONFIG=FILE`) runs another, which stands
alone. A configuration is checked as a whole before any job starts; what is refused is named with its key, its value and
the mend. For completion and checks in an editor, put this on a file's first line:

    # yaml-language-server: $schema=../workflow/schemas/config.schema.json

Sizes are bytes or texts such as `64MiB`. Names (of models, engines, deployments, workloads) are lower case letters, digits,
`.` and `-`.
"""

_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The file", config.Config),
    ("`study`", config.Study),
    ("`study.ladders[]`", config.Ladder),
    ("`models.NAME`", Model),
    ("`models.NAME.architecture`", Architecture),
    ("`engines.NAME`", config.Engine),
    ("`deployments.NAME`", config.Deployment),
    ("`workloads.NAME`", workload.Workload),
    ("`workloads.NAME.prompt_tokens`, `.output_tokens` and `.turns.new_tokens`", LengthDistribution),
    ("`workloads.NAME.turns`", workload.Turns),
    ("`workloads.NAME.step`", workload.Step),
    ("`workloads.NAME.ramp`", workload.Ramp),
    ("`measurement`", config.Measurement),
    ("`thresholds`", config.Thresholds),
    ("`decision`", config.Decision),
    ("`hardware.NAME`", Device),
)


def reference() -> str:
    """The reference as Markdown: every key with its meaning, type and default."""
    parts = [_INTRODUCTION]
    for title, model in _SECTIONS:
        parts += [f"\n## {title}\n", f"{inspect.cleandoc(model.__doc__ or '')}\n", *_table(model)]
    return "\n".join(parts) + "\n"


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in model.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "–"
    if isinstance(default, BaseModel):
        return "see below"
    return f"`{json.dumps(default)}`"


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return "size" if config.parse_size in [getattr(a, "func", None) for a in arguments] else _type(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(a) for a in arguments if a is not type(None))
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"mapping of names to {_type(arguments[1])}"
    if annotation is LengthDistribution:
        return "integer or distribution"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"`{annotation.__name__.lower()}`"
    return {int: "integer", float: "number", str: "text", bool: "true or false", Any: "anything"}.get(
        annotation, str(annotation)
    )


def schema() -> str:
    """The JSON schema of a whole configuration file."""
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Saturate configuration",
        **config.Config.model_json_schema(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
