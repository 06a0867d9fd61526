"""The numbers that decide results, and why each is what it is, read from the comments beside them.

A constant stands alone on its line: `NAME = value  # meaning; reason`, or below that comment where the line would be too long.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError

#: Kinds of reasons, and what each says.
KINDS = {
    "source": "a publication, a specification, or another program's code",
    "measured": "a measurement of this very number",
    "tuned": "chosen by hand; the benchmark judges it, but only together with others",
    "convention": "a round number that was chosen once; no measurement speaks for it",
    "derived": "it follows from other numbers, or from what a unit is",
}
#: The packages and modules of `bench` whose numbers decide results.
_PLACES = (
    *("analysis", "search", "tune", "drifted", "predict", "parse", "load", "drift.py", "measure", "pool.py"),
    *("aggregate", "statistics.py", "study", "telemetry", "models", "traffic"),
)
_LONGEST = 120  # characters of a value on the page; convention
_FUNCTIONS = {"array", "exp", "log", "normal", "range", "round", "sqrt"}
_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")
_REASON = re.compile(rf"(?P<meaning>.+); (?P<kind>{'|'.join(KINDS)})(?:: (?P<detail>.+))?")
_INTRODUCTION = """# Constants

Which numbers decide results, and why is each what it is? This page is made from the code by `bench config`; a number without a
reason fails the tests. What a user may want to change is a key of the [configuration](configuration.md), and not here.

| reason | it is | constants |
|---|---|--:|
"""


@dataclass(frozen=True)
class Constant:
    """A number of the code, or several that belong together.

    Attributes:
        place: its module in `bench`. name, value: as the code has them. kind: of its reason, in `KINDS`. detail: which source,
            measurement, benchmark or derivation; empty where the kind says it all.
    """

    place: str
    name: str
    value: str
    meaning: str
    kind: str
    detail: str


def constants() -> list[Constant]:
    """Those of all places, in the order of the code.

    Raises:
        BenchError: one has no reason.
    """
    root, found = Path(__file__).parent, []
    for place in _PLACES:
        for file in sorted((root / place).rglob("*.py")) or [root / place]:
            found += read_constants(file.read_text(encoding="utf-8"), ".".join(file.relative_to(root).with_suffix("").parts))
    return found


def read_constants(source: str, place: str) -> list[Constant]:
    """Those of one module. Args: source: its text. place: its name.

    Raises:
        BenchError: one has no reason, or shares its line with another.
    """
    comments = {
        token.start[0]: token.string.lstrip("#: ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines, found = source.splitlines(), []
    for node, value, names in _assigned(ast.parse(source)):
        first, last = node.lineno, node.end_lineno or node.lineno
        while first - 1 in comments and lines[first - 2].startswith("#"):
            first -= 1
        said = _REASON.fullmatch(" ".join(comments[at] for at in range(first, last + 1) if at in comments))
        if said is None or len(names) > 1 or (said["kind"] in ("source", "measured", "tuned") and not said["detail"]):
            raise BenchError(
                f"{place}: {', '.join(names)} needs a line of its own and a comment `# meaning; reason`, where the reason is "
                "`source: …`, `measured: …`, `tuned: …`, `convention` or `derived`."
            )
        found.append(Constant(place, names[0], ast.unparse(value), said["meaning"], said["kind"], said["detail"] or ""))
    return found


def constants_page() -> str:
    """The page docs/reference/constants.md."""
    found = constants()
    count = Counter(each.kind for each in found)
    text = _INTRODUCTION + "".join(f"| {kind} | {what} | {count[kind]} |\n" for kind, what in KINDS.items())
    for package in dict.fromkeys(each.place.split(".")[0] for each in found):
        text += f"\n## {package}\n\n| constant | value | meaning | reason |\n|---|---|---|---|\n"
        text += "".join(_row(each) for each in found if each.place.split(".")[0] == package)
    return text


def _row(one: Constant) -> str:
    module = one.place.split(".")[-1]
    reason = f"{one.kind}: {one.detail}" if one.detail else one.kind
    value = one.value if len(one.value) <= _LONGEST else f"{one.value[:_LONGEST]} …"
    cells = (f"`{module}.{one.name}`", f"`{value}`", one.meaning, reason)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _assigned(module: ast.Module) -> Iterator[tuple[ast.stmt, ast.expr, list[str]]]:
    """The assignments of numbers to names in capitals, each with its value and these names."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_number(node.value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            names = [ast.unparse(name) for name in (target.elts if isinstance(target, ast.Tuple) else [target])]
            counts = (part for part in ast.walk(node.value) if isinstance(part, ast.Call) or _is_literal(part))
            if all(map(_NAME.fullmatch, names)) and any(counts):  # else it is but another name of a number
                yield node, node.value, names


def _is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _is_number(node: ast.expr) -> bool:
    """Whether an expression consists of numbers, constants and arithmetic alone."""
    match node:
        case ast.Name(name):
            return bool(_NAME.fullmatch(name))
        case ast.Attribute(value=ast.Name("math"), attr="inf"):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left, _, right):
            return _is_number(left) and _is_number(right)
        case ast.Tuple(parts) | ast.List(parts) | ast.Dict(values=parts):
            return bool(parts) and all(map(_is_number, parts))
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name), arguments):
            return name in _FUNCTIONS and all(map(_is_number, arguments))
    return _is_literal(node)
