"""What a user can mend is one message and status 2, and nothing is written: rows of tests/data/refused_commands.yaml."""

import shlex

import pytest
import yaml

from tests.support.command import bench
from tests.support.study import ROOT

GROUPS = yaml.safe_load((ROOT / "tests/data/refused_commands.yaml").read_text())


@pytest.mark.parametrize("group", GROUPS)
def test_a_command_that_cannot_be_is_refused(group, tmp_path):
    for name, text in GROUPS[group].get("files", {}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    kept = {path for path in tmp_path.rglob("*") if path.is_file()}
    for words, said in GROUPS[group]["rows"]:
        done = bench(*shlex.split(f"{GROUPS[group].get('begin', '')} {words}".replace("ROOT", str(ROOT))), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert said in done.stderr and "Traceback" not in done.stderr, (words, done.stderr)
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == kept, words
