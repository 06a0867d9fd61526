"""Functions that an answer is to call."""

import json

from bench.beside.quality.calls import CallTask


def function(name, required=(), **kinds):
    properties = {
        key: {"type": kind, **({"items": {"type": inner[0]}} if inner else {})}
        for key, (kind, *inner) in ((key, each.split(" of ")) for key, each in kinds.items())
    }
    return {
        "name": name,
        "description": "d",
        "parameters": {"type": "dict", "properties": properties, "required": list(required)},
    }


AREA = function(
    "geo.area",
    ["base", "height"],
    base="integer",
    height="float",
    unit="string",
    tags="array of string",
    at="tuple of float",
    of="dict",
)


PLAY = function("play", ["artist"], artist="string", minutes="integer", loud="boolean", songs="array of dict")


ONE = {
    "base": [10],
    "height": [5.0],
    "unit": ["square metres", ""],
    "tags": [["a", "b"], ""],
    "at": [[1.5, 2.0], ""],
    "of": [{"x": [1], "y": ["p", ""]}, ""],
}


TASK = CallTask("t/0", {each["name"]: each for each in (AREA, PLAY)}, [{"geo.area": ONE}])
TWO = [{"play": {"artist": [name], "minutes": [20, ""]}} for name in ("Taylor Swift", "Maroon 5")]
BOTH = CallTask("t/1", TASK.functions, TWO)


def written(folder, tasks=(TASK, BOTH), system=None):
    """A file of questions with their answers beside it, as BFCL has them."""
    (folder / "possible_answer").mkdir(exist_ok=True)
    file = folder / "BFCL_v4_multiple.json"
    asked = [{"role": "system", "content": system}] if system else []
    rows = [
        {
            "id": task.name,
            "question": [[*asked, {"role": "user", "content": f"Do {task.name}."}]],
            "function": list(task.functions.values()),
        }
        for task in tasks
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    answers = [{"id": task.name, "ground_truth": task.answers} for task in tasks]
    (folder / "possible_answer" / file.name).write_text("\n".join(map(json.dumps, answers)))
    return file
