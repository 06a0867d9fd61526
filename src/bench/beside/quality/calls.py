"""Answers that are calls of functions, judged as the Berkeley Function-Calling Leaderboard (BFCL) judges those of Python.

Source: Patil et al., The Berkeley Function Calling Leaderboard, ICML 2025. The rules are those of `ast_checker` and
`default_decode_ast_prompting` in the package bfcl-eval 2026.3.23, for the categories simple_python, multiple, parallel and
parallel_multiple, live ones too. Unlike there, no part of an answer is run: arithmetic of numbers is worked out, and an answer with
other expressions is wrong.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PLAIN = {"string": str, "integer": int, "float": float, "boolean": bool, "any": str}
_TYPES: dict[str, type[Any]] = {**_PLAIN, "array": list, "tuple": list, "dict": dict}
_LISTS = ("array", "tuple")
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow},
}
_LARGEST = 64  # largest exponent that is worked out; convention: 10**64 is beyond any quantity
_IGNORED = re.compile(r"[ ,./\-_*^]")  # characters that do not count when texts are compared
Call = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class CallTask:
    """A question, and the calls that answer it.

    Attributes:
        name: such as `simple_python_0`. functions: those that the question offers, by name, as BFCL describes them.
        answers: a call each: by the function's name, of each parameter the values that are right; an empty text among them where the
            parameter may be left out.
    """

    name: str
    functions: Mapping[str, Mapping[str, Any]]
    answers: Sequence[Mapping[str, Mapping[str, Sequence[Any]]]]

    @property
    def sound(self) -> bool:
        """Whether the answers are calls of its functions, whose parameters have Python's types.

        Raises:
            KeyError, TypeError, AttributeError: something else stands in place of these.
        """
        described = [self.functions[name]["parameters"]["properties"] for each in self.answers for name in each]
        kinds = {kind for each in described for parameter in each.values() for kind in _kinds(parameter)}
        return bool(described) and all(len(each) == 1 for each in self.answers) and kinds <= _TYPES.keys()


def _kinds(parameter: Mapping[str, Any]) -> list[str]:
    kind = parameter["type"]
    return [kind, parameter["items"]["type"]] if kind in _LISTS else [kind]


def right_calls(task: CallTask, answer: str) -> bool:
    """Whether an answer makes just the calls that are right, in any order."""
    calls = calls_of(answer)
    if calls is None or len(calls) != len(task.answers):
        return False
    left = list(calls)
    for expected in task.answers:
        fitting = next((place for place, call in enumerate(left) if _fits(call, expected, task.functions)), None)
        if fitting is None:
            return False
        del left[fitting]
    return True


def calls_of(answer: str) -> list[Call] | None:
    """The calls in an answer such as `[f(a=1), g(b="x")]`, by the function's name its arguments; None where it is none."""
    text = answer.strip("`\n ")
    text = f"{'' if text.startswith('[') else '['}{text}{'' if text.endswith(']') else ']'}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            parsed = ast.parse(text.strip().strip("'"), mode="eval").body
        return [_call(each) for each in (parsed.elts if isinstance(parsed, ast.List | ast.Tuple | ast.Set) else [parsed])]
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


def _call(node: ast.expr) -> Call:
    """Arguments without a name do not count, as in BFCL.

    Raises:
        ValueError: it is no call, or has an argument that is not read.
    """
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    parts, place = [], node.func
    while isinstance(place, ast.Attribute):
        parts.append(place.attr)
        place = place.value
    if isinstance(place, ast.Name):
        parts.append(place.id)
    return {".".join(reversed(parts)): {each.arg or "**": _value(each.value) for each in node.keywords}}


def _value(node: ast.expr) -> Any:
    """What an argument is; names and calls without named arguments are their text.

    Raises:
        ValueError: it is another expression.
    """
    match node:
        case ast.BinOp(left, how, right):
            return _worked_out(_value(left), how, _value(right))
        case ast.List(elts):
            return list(map(_value, elts))
        case ast.Tuple(elts):
            return tuple(map(_value, elts))
        case ast.Dict(keys, values):
            return {_value(key): _value(each) for key, each in zip(keys, values, strict=True) if key is not None}
        case ast.Name(name):
            return name
        case ast.Call(keywords=[_, *_]):
            return _call(node)
        case ast.Call() | ast.Subscript() | ast.Constant(value=builtins.Ellipsis):
            return ast.unparse(node)
    return ast.literal_eval(node)  # of constants


def _worked_out(left: Any, how: ast.operator, right: Any) -> Any:
    numbers = all(isinstance(each, int | float) and abs(each) < 10**_LARGEST for each in (left, right))
    if not numbers or type(how) not in _ARITHMETIC or (isinstance(how, ast.Pow) and abs(right) > _LARGEST):
        raise ValueError("no arithmetic of numbers")
    return _ARITHMETIC[type(how)](left, right)


def _fits(call: Call, expected: Mapping[str, Mapping[str, Sequence[Any]]], functions: Mapping[str, Mapping[str, Any]]) -> bool:
    name, right = next(iter(expected.items()))
    if name not in call:
        return False
    given, described = call[name], functions[name]["parameters"]
    properties = described["properties"]
    return (
        all(each in given for each in described.get("required", ()))
        and all(
            key in properties and key in right and _is_right(each, right[key], properties[key]) for key, each in given.items()
        )
        and all(key in given or "" in values for key, values in right.items())
    )


def _is_right(value: Any, right: Sequence[Any], described: Mapping[str, Any]) -> bool:
    """Whether a value is one of those that are right. Args: described: the parameter, with its `type`, of lists that of its `items`."""
    kind = described["type"]
    wanted, inner = _TYPES[kind], _TYPES[described["items"]["type"]] if kind in _LISTS else None
    if kind == "tuple" and type(value) is tuple:
        value = list(value)
    elif kind == "float" and type(value) is int:
        value = float(value)
    variable = _named(value, right, wanted, inner)
    if variable is None:
        return False
    if variable:  # a name in place of a value
        return value in right
    if wanted is dict:
        return _is_right_dict(value, right)
    if wanted is list and inner is dict:
        pairs = [list(zip(value, each, strict=True)) for each in right if len(value) == len(each)]
        return any(all(_is_right_dict(mine, [other]) for mine, other in each) for each in pairs)
    # As in BFCL, an empty text, by which a parameter may be left out, is an empty list, too.
    return _alike(value) in [_alike([*each] if wanted is list else each) for each in right]


def _named(value: Any, right: Sequence[Any], wanted: type[Any], inner: type[Any] | None) -> bool | None:
    """Whether a value stands for a name in place of a value of the wanted type; None where it has another type than is right."""
    known = next((type(each) for each in right if each != ""), None)
    if type(value) is not wanted:
        return True if known is not None and type(value) is known else None
    typed = inner is None or any(
        type(each) is not list or all(_named(mine, each, inner, None) is not None for mine in value) for each in right
    )
    return (known is not None and known is not wanted) if typed else None


def _is_right_dict(value: Any, right: Sequence[Any]) -> bool:
    return isinstance(value, dict) and any(
        all(key in each and _alike(mine) in [_alike(other) for other in each[key]] for key, mine in value.items())
        and all(key in value or "" in values for key, values in each.items())
        for each in right
        if each != ""
    )


def _alike(value: Any) -> Any:
    """A text as it is compared: without blanks and some signs, in lower case, with one kind of quotes; so are texts in a list."""
    if isinstance(value, list):
        return [_alike(each) if isinstance(each, str) else each for each in value]
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value
