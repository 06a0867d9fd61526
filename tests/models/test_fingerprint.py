"""A checkpoint that is replaced in place is another model: what depends on it is measured again."""

import json
import shutil
import struct

import pytest

from bench.beside.archive.pack import packed_study
from bench.errors import BenchError
from bench.models.checkpoint_record import fingerprint
from bench.models.model import whole_config
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support.study import TINY

SIZE = 3 << 20


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a config.json and two files of weights."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(whole_config(TINY)))
    for i in range(2):
        (folder / f"model-{i}.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}" + bytes(i) + bytes(SIZE))
    return folder


def planned(content, path, **more):
    fingerprint.cache_clear()  # as in another process
    content["models"]["m"] = {"path": str(path)}
    return Plan.of(load_config({**content, **more}, source="test"))


def replace_weights(folder):
    file = folder / "model-1.safetensors"
    file.write_bytes(b"\1" * file.stat().st_size)


def test_files_that_are_replaced_in_place_make_another_deployment(content, checkpoint):
    config, weights = checkpoint / "config.json", checkpoint / "model-0.safetensors"
    seen = [planned(content, checkpoint)]
    for name, change in {
        "the weights": lambda: replace_weights(checkpoint),
        "a byte of config.json": lambda: config.write_text(config.read_text().replace("10000.0", "20000.0")),
        "the last byte": lambda: weights.write_bytes(weights.read_bytes()[:-1] + b"x"),
        "the name": lambda: weights.rename(checkpoint / "model-00.safetensors"),  # in the same order
        "a file less": (checkpoint / "model-00.safetensors").unlink,
    }.items():
        change()
        seen.append(planned(content, checkpoint))
        assert len({plan.deployments["a"].digest for plan in seen}) == len(seen), name
        assert not {run.digest for run in seen[-2].runs} & {run.digest for run in seen[-1].runs}, name


def test_a_copy_with_other_times_and_a_readme_is_the_same(content, checkpoint, tmp_path):
    before = planned(content, checkpoint).deployments["a"].checkpoint
    (checkpoint / "README.md").write_text("hello")
    (checkpoint / "config.json").touch()
    assert planned(content, checkpoint).deployments["a"].checkpoint == before
    shutil.copytree(checkpoint, tmp_path / "copy")
    assert planned(content, tmp_path / "copy").deployments["a"].checkpoint == before


def test_a_folder_without_a_checkpoint_changes_no_digest(content, tmp_path):
    spec = planned(content, tmp_path).deployments["a"]
    assert spec.checkpoint is None
    assert "checkpoint" not in spec.identity


def test_a_folder_that_is_not_here_is_refused_unless_the_server_is_not_ours(content, tmp_path):
    with pytest.raises(BenchError, match=r"models\.m\.path is '.*/nowhere': no such folder"):
        planned(content, tmp_path / "nowhere")
    content["engines"]["e"] = {"source": "external", "base_url": "http://x"}  # whose model lies elsewhere
    assert planned(content, tmp_path / "nowhere").deployments["a"].checkpoint is None


def test_where_the_files_are_not_a_pack_defines_the_same_runs(content, checkpoint, tmp_path):
    here = planned(content, checkpoint)
    packed = packed_study(content, here, "*")
    checkpoint.rename(tmp_path / "elsewhere")
    fingerprint.cache_clear()
    there = Plan.of(load_config(packed, source="test"))
    assert [run.digest for run in here.runs] == [run.digest for run in there.runs]
