"""docs/contributing.md says what is so."""

import re
import tomllib
from importlib import import_module

from tests.conftest import ROOT

TEXT = (ROOT / "docs/contributing.md").read_text()


def test_the_map_has_every_room_in_the_contract_s_order():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    table = TEXT.partition("## The rooms")[2].partition("\n## ")[0]
    rooms = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert rooms == [name for layer in contract["layers"] for name in layer.split(" | ")]


def test_the_example_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(example, {})  # noqa: S102 - our own
    assert capsys.readouterr().out


def test_what_the_library_offers_is_there():
    """A name with dots is a module, or something that one offers; a name without is something that the module before it offers."""
    table = TEXT.partition("## Use it as a library")[2].partition("\n## ")[0]
    offered = set()
    for row in re.findall(r"^\| .*? \| (.*) \|$", table, re.MULTILINE):
        module = None
        for name in re.findall(r"`([\w.]+)`", row):
            if name.startswith("bench."):
                try:
                    module = import_module(name)
                    continue
                except ModuleNotFoundError:
                    parent, _, name = name.rpartition(".")  # noqa: PLW2901 - the rest of it
                    module = import_module(parent)
            assert name in module.__all__, f"{module.__name__}: {name}"
            offered.add(f"{module.__name__}.{name}")
    assert {"bench.load.client.Load", "bench.parse.parse_run", "bench.words.causes.why"} < offered
