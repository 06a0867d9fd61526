"""docs/contributing.md says what is so."""

import re
import tomllib

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
    table = TEXT.partition("## Use it as a library")[2]
    names = {}
    for package, listed in re.findall(r"`(bench\.\w+)`: ((?:`\w+`(?:, )?)+)", table):
        names[package] = re.findall(r"`(\w+)`", listed)
    assert len(names) >= 5
    for package, listed in names.items():
        module = __import__(package, fromlist=["__all__"])
        assert set(listed) <= set(module.__all__), package
