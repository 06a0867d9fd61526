"""Memory of published models, as transformers has it."""

import json
from pathlib import Path

FACTS = Path(__file__).parents[1] / "data/model_facts"


def rows(name):
    return [json.loads(line) for line in (FACTS / name).read_text().splitlines()]


INPUTS = {row["name"]: row["config"] for row in rows("inputs.jsonl")}
