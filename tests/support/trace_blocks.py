"""Traces whose prompts share blocks."""

import itertools
import json


def written(folder, *rows, name="trace.jsonl"):
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def common(one, other):
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
