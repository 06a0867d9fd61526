"""Functions that a model may call, put before it as text: it answers with calls, which need neither tools nor a template for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_ASKED = (
    "You answer with calls of functions, and with nothing else: a list of them in Python's syntax, such as "
    '[first_function(number=1, text="a"), second_function(items=[1, 2])]. Give each argument by its name. '
    "These are the functions, in JSON:\n"
)


def with_functions(messages: Sequence[Mapping[str, Any]], functions: Sequence[Any]) -> list[Mapping[str, Any]]:
    """A chat whose system message begins with the functions, and says how to call them.

    Args:
        functions: as JSON describes them; of BFCL's, `name`, `description` and `parameters`.
    """
    asked = _ASKED + json.dumps(functions, ensure_ascii=False)
    first, *others = messages
    if first["role"] == "system":
        return [{**first, "content": f"{asked}\n\n{first['content']}"}, *others]
    return [{"role": "system", "content": asked}, *messages]


def right_calls_beside(file: str) -> str:
    """Where the answers to a file of such questions lie, as BFCL has them."""
    folder, slash, name = file.rpartition("/")
    return f"{folder}{slash}possible_answer/{name}"
