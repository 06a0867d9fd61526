"""Which calls of functions are right: `bench.beside.quality.calls` beside the checker of bfcl-eval, on every question of its sets.

    python -m benchmarks.calls --answers 60

Of each question's own answers a right one is written, then others that differ from such in one of the ways below. The package's checker
runs parts of an answer (`eval`), so answers are written here alone. Its imports of other languages and of models' clients are left out.
"""

from __future__ import annotations

import argparse
import copy
import random
import subprocess
import sys
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.beside.quality.calls import right_calls
from bench.beside.quality.graded_set import read_set

_PACKAGE, _SHA256 = "bfcl-eval==2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
_PARTS = {  # of the package that are neither needed nor imported
    "constants.model_config": ["MODEL_CONFIG_MAPPING"],
    "eval_checker.ast_eval.type_convertor.java_type_converter": ["java_type_converter"],
    "eval_checker.ast_eval.type_convertor.js_type_converter": ["js_type_converter"],
    "model_handler.parser.java_parser": ["parse_java_function_call"],
    "model_handler.parser.js_parser": ["parse_javascript_function_call"],
    "utils": ["extract_prompt_format_from_id"],
}
_SETS = [f"{live}{kind}" for kind in ("simple", "multiple", "parallel", "parallel_multiple") for live in ("", "live_")]
_VALUES = (0, 1, 2.5, "x", [], {}, True, None, [1], ["a"], {"a": 1})
_TEXTS = ("", "[]", "I cannot", "f", "[1,2]", "{}", "f(a=1")
_NAMES = ("x", "x[0]", "f()", "f(a=1)", "-x", "...", "lambda: 1", "[i for i in x]")


def checker(folder: Path) -> Any:
    """What says of a question, its answers and a text whether it is right, as the package does."""
    stubs = {**{f"bfcl_eval.{name}": names for name, names in _PARTS.items()},
             "tenacity": ["retry", "retry_if_exception_message", "retry_if_exception_type", "wait_random_exponential"]}  # fmt: skip
    for name, names in stubs.items():
        sys.modules[name] = types.ModuleType(name)
        for each in names:
            setattr(sys.modules[name], each, lambda *_, **__: lambda function: function)
    known = types.SimpleNamespace(underscore_to_dot=False)
    sys.modules["bfcl_eval.constants.model_config"].MODEL_CONFIG_MAPPING = {"m": known}  # type: ignore[attr-defined]
    sys.path.insert(0, str(folder))
    from bfcl_eval.constants.enums import Language  # noqa: PLC0415
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: PLC0415
    from bfcl_eval.model_handler.utils import default_decode_ast_prompting  # noqa: PLC0415

    def right(name: str, task: Any, text: str) -> bool:
        try:
            calls = default_decode_ast_prompting(text)
            return bool(
                ast_checker(list(task.functions.values()), calls, list(task.answers), Language.PYTHON, name, "m")["valid"]
            )
        except Exception:  # whatever it raises of an answer that it does not read
            return False

    return right


def chosen(right: Any, draw: random.Random | None) -> Any:
    """One of the values that are right: the first, or any."""
    if not isinstance(right, list):
        return right
    values = [each for each in right if each != ""] or [""]
    value = draw.choice(values) if draw else values[0]
    if isinstance(value, dict):
        return {key: each for key, of in value.items() if (each := chosen(of, draw)) != ""}
    if isinstance(value, list):
        return [{key: chosen(of, draw) for key, of in each.items()} if isinstance(each, dict) else each for each in value]
    return value


def answer(task: Any, draw: random.Random | None) -> str:
    """A right answer, or one that differs in one way."""
    calls = [(name, dict(given_of(right, draw))) for each in task.answers for name, right in each.items()]
    if draw is None:
        return written(calls)
    way, (_, given) = draw.choice(_WAYS), draw.choice(calls)
    if way in _OF_CALLS:
        _OF_CALLS[way](calls, draw)
    key = draw.choice(list(given)) if given else None
    value = given.get(key) if key else None
    if key and way in _OF_VALUES:
        given[key] = _OF_VALUES[way](value, draw)
    if key and way == "dropped":
        del given[key]
    text = written(calls)
    if key and way == "variable":
        return text.replace(f"{key}={value!r}", f"{key}={draw.choice(_NAMES)}")
    return _OF_TEXTS[way](text, draw) if way in _OF_TEXTS else text


def given_of(right: dict[str, Any], draw: random.Random | None) -> Iterator[tuple[str, Any]]:
    """Arguments with right values; where they are drawn, some that may be left out are."""
    for key, of in right.items():
        value = chosen(of, draw)
        if value != "" and not ("" in of and draw and draw.random() < 0.5):
            yield key, copy.deepcopy(value)


def written(calls: list[tuple[str, dict[str, Any]]]) -> str:
    """Calls as an answer has them."""
    parts = [(name, ", ".join(f"{key}={value!r}" for key, value in given.items())) for name, given in calls]
    return "[" + ", ".join(f"{name}({given})" for name, given in parts) + "]"


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


_OF_CALLS: dict[str, Callable[[Any, random.Random], Any]] = {
    "added": lambda calls, _: calls[0][1].update(zz=1),
    "shuffled": lambda calls, draw: draw.shuffle(calls),
    "name": lambda calls, draw: calls.append((calls[0][0] + draw.choice(["x", ".y"]), calls.pop(0)[1])),
    "again": lambda calls, _: calls.append(calls[0]),
}
_OF_VALUES: dict[str, Callable[[Any, random.Random], Any]] = {
    "value": lambda _, draw: draw.choice(_VALUES),
    "type": lambda value, _: [value] if isinstance(value, str) else str(value),
    "case": lambda value, draw: draw.choice([str.upper, str.title, str.swapcase])(value) if isinstance(value, str) else value,
    "signs": lambda value, draw: value.replace(" ", draw.choice(["_", "", "!"])) if isinstance(value, str) else value,
    "empty": lambda *_: "",
    "negative": lambda value, _: -value if _number(value) else value,
    "float": lambda value, _: float(value) if _number(value) else value,
}
_OF_TEXTS: dict[str, Callable[[str, random.Random], str]] = {
    "no call": lambda _, draw: draw.choice(_TEXTS),
    "fenced": lambda text, draw: draw.choice(
        [f"```{text}```", f"```python\n{text}\n```", text[1:-1], f"'{text}'", f" {text}\n", f"Sure: {text}", f"{text}."]
    ),
    "sum": lambda text, draw: draw.choice(
        [text.replace("=10", "=5+5"), text.replace("=5", "=2*2+1"), text.replace("=1000", "=10**3")]
    ),
    "tuple": lambda text, _: text.replace("=[", "=(").replace("], ", "), "),
}
_WAYS = ["as it is", "dropped", "variable", *_OF_CALLS, *_OF_VALUES, *_OF_TEXTS]


def main() -> None:
    """Print how many answers were compared, and each on which the two differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=12, help="to each question")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/.results/bfcl"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if not (given.folder / "bfcl_eval").exists():
        pinned = given.folder / "requirements.txt"
        given.folder.mkdir(parents=True, exist_ok=True)
        pinned.write_text(f"{_PACKAGE} --hash=sha256:{_SHA256}\n")
        options = ["--no-deps", "--require-hashes", "--quiet", "--dest", str(given.folder), "--requirement", str(pinned)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options], check=True)
        zipfile.ZipFile(next(given.folder.glob("*.whl"))).extractall(given.folder)
    right, draw = checker(given.folder), random.Random(1)  # noqa: S311 - what is drawn keeps no secret
    compared = agreed = own = own_right = 0
    for kind in _SETS:
        name = "simple_python" if kind == "simple" else kind
        for task in read_set(given.folder / f"bfcl_eval/data/BFCL_v4_{name}.json").values():
            for number in range(given.answers):
                text = answer(task, draw if number else None)
                theirs, ours = right(name, task, text), right_calls(task, text)  # type: ignore[arg-type]
                compared, agreed = compared + 1, agreed + (theirs == ours)
                own, own_right = own + (not number), own_right + (not number and ours)
                if theirs != ours:
                    print(f"{task.name}: the package {theirs}, here {ours}: {text[:200]}")
    print(
        f"{compared:,} answers compared, {compared - agreed:,} differ; of {own:,} answers of the package {own_right:,} are right"
    )


if __name__ == "__main__":
    main()
