"""docs/contributing.md is true. Its commands and its example of a figure: tests/project/test_docs.py."""

import re
import tomllib

from bench.figures import registry
from bench.figures.registry import load_figure
from bench.figures.selection import figure_names
from tests.support.cost import PARTS
from tests.support.figures import results
from tests.support.study import ROOT

TEXT = (ROOT / "docs/contributing.md").read_text()


def test_the_map_has_every_room_in_the_contract_s_order():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    table = TEXT.partition("## The rooms")[2].partition("\n## ")[0]
    rooms = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert rooms == [name for layer in contract["layers"] for name in layer.split(" | ")]


def test_the_orders_that_it_gives_are_those_of_the_figures():
    known = {int(load_figure(name).order) for name in figure_names()}
    row = next(line for line in TEXT.splitlines() if line.startswith("| `order` |"))
    assert {int(order) for order in re.findall(r"\d+", row)} <= known
    assert re.search(r"\border=(\d+)", TEXT)[1] not in map(str, known)  # the example's, between its neighbours


def test_the_example_of_a_figure_draws(monkeypatch, summary):
    monkeypatch.setattr(registry, "_FIGURES", {})
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(example, {"__name__": "queue"})  # noqa: S102 - our own
    spec = registry._FIGURES["queue"].draw(results(summary, waiting_peak=(0.0, 1.0, 9.0))).to_dict()
    assert len(spec["layer"]) > 1
    assert any(row.get("waiting_peak") == 9 for rows in spec["datasets"].values() for row in rows)


def test_every_part_of_the_long_tests_is_named_for_some_change():
    table = TEXT.partition("| you change |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"PART=(\w+)", table)) == sorted(PARTS)
