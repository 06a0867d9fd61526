"""What is fetched for another machine is what that machine needs."""

import hashlib
import zipfile

import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.servers.wheels import fetch_wheels
from tests.support.study import ROOT


def wheel(folder, name, tag="py3-none-any"):
    """A package with nothing in it; its line for a lock."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder in place of every index."""
    folder = tmp_path / "index"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_packages_of_the_target_are_fetched_and_no_others(index, tmp_path):
    plain = wheel(index, "plain")
    new, arm = (
        wheel(index, "native", "cp312-cp312-manylinux_2_28_x86_64"),
        wheel(index, "native", "cp312-cp312-manylinux_2_17_aarch64"),
    )
    wheel(index, "native", "cp312-cp312-manylinux_2_34_x86_64")
    lock = tmp_path / "x.lock"
    lock.write_text(
        f"plain==1.0 \\\n    --hash=sha256:{plain}\n"
        f"native==1.0 ; python_full_version >= '3.12' and sys_platform == 'linux' \\\n"
        f"    --hash=sha256:{new} \\\n    --hash=sha256:{arm}\n"
        f"absent==1.0 ; python_full_version < '3.12' or sys_platform == 'win32' \\\n    --hash=sha256:{plain}\n"
    )
    said = []
    found = fetch_wheels([(lock, None)], tmp_path / "w", python="3.12", machine="x86_64", say=said.append)
    assert [path.name for path in found] == ["native-1.0-cp312-cp312-manylinux_2_28_x86_64.whl", "plain-1.0-py3-none-any.whl"]
    assert said == [f"{lock}: 2 of 2 packages"]
    found = fetch_wheels([(lock, None)], tmp_path / "a", python="3.12", machine="aarch64", say=said.append)
    assert [path.name for path in found] == ["native-1.0-cp312-cp312-manylinux_2_17_aarch64.whl", "plain-1.0-py3-none-any.whl"]


def test_a_package_of_another_content_or_none_is_refused(index, tmp_path):
    wheel(index, "plain")
    lock = tmp_path / "x.lock"
    for line in (f"plain==1.0 \\\n    --hash=sha256:{'0' * 64}\n", f"other==1.0 \\\n    --hash=sha256:{'0' * 64}\n"):
        lock.write_text(line)
        with pytest.raises(BenchError, match=r"pip download failed for Python 3\.12 on x86_64"):
            fetch_wheels([(lock, None)], tmp_path / "w", python="3.12", machine="x86_64", say=print)


def test_an_engine_that_is_no_lock_has_to_be_there(index, tmp_path, monkeypatch, capsys):
    digest = wheel(index, "plain")
    (tmp_path / "own.lock").write_text(f"plain==1.0 \\\n    --hash=sha256:{digest}\n")
    for name in ("_OWN_LOCK", "_SLURM_LOCK"):
        monkeypatch.setattr(f"bench.cli.commands.wheels.{name}", tmp_path / "own.lock")
    study = tmp_path / "study.yaml"
    text = (ROOT / "config/studies/h100.yaml").read_text()
    block = text[text.index("engines:") : text.index("# max_num_seqs")]
    study.write_text(text.replace(block, "engines:\n  vllm-cuda: { source: command, backend: cuda, command: [vllm, serve] }\n"))
    assert main(["wheels", "--configfile", str(study), "--output-dir", str(tmp_path / "w")]) == 0
    result = capsys.readouterr().out
    assert "1 packages" in result
    assert "Engine vllm-cuda is a command: that machine has to have it." in result
