"""What is finished is kept, whole or not at all."""

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.records.checksums import record_digest
from bench.store import Store


def fill(store, digest, text="{}"):
    with store.adding(digest) as folder:
        (folder / "run.json").write_text(text)
        (folder / "requests.jsonl").write_text("r")


def test_a_measurement_is_there_when_it_is_whole(tmp_path):
    store = Store(tmp_path / "store")
    with pytest.raises(RuntimeError), store.adding("d") as folder:  # noqa: PT012
        (folder / "run.json").write_text("half")
        raise RuntimeError
    assert not store.holds("d")
    assert list(store.root.iterdir()) == []
    fill(store, "d")
    assert store.holds("d")


def test_what_a_killed_session_left_is_swept(tmp_path):
    store = Store(tmp_path / "store")
    fill(store, "d")
    mine, another = Store(store.root, owner="mine"), Store(store.root, owner="other")
    (store.root / ".unfinished-mine-x").mkdir()
    with another.adding("e"):
        mine.sweep()
        assert len(list(store.root.glob(".unfinished-other-*"))) == 1  # a session that runs now
    assert sorted(p.name for p in store.root.iterdir()) == ["d", "e"]


@pytest.mark.parametrize("running", ["v0.32-again", "v0.32", "v0.32-again-2"])
def test_a_session_whose_name_begins_like_that_of_another_does_not_sweep_its_run(tmp_path, running):
    here, other = Store(tmp_path, owner="v0.32"), Store(tmp_path, owner=running)
    with other.adding("d") as folder:
        (folder / "run.json").write_text("{}")
        here.sweep()
        assert (folder / "run.json").exists()
    assert other.holds("d")


def test_a_folder_is_swept_once_its_process_is_gone(tmp_path):
    """Also that of a session of the same name, in another process: killed, not ended."""
    code = (
        "import sys, time; from pathlib import Path; from bench.store import Store\n"
        "with Store(Path(sys.argv[1]), owner='a').adding('d'): print('in', flush=True); time.sleep(60)"
    )
    store = Store(tmp_path, owner="a")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"in\n"
        store.sweep()
        assert len(list(tmp_path.glob(".unfinished-*"))) == 1
        process.kill()
    store.sweep()
    assert list(tmp_path.iterdir()) == []


def test_sessions_may_add_the_same_measurement_at_the_same_time(tmp_path):
    """One deployment under two names: whoever is last stays."""

    def add(owner):
        for _ in range(60):
            fill(Store(tmp_path, owner=owner), "d")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, ["a", "a-b", "b", "b-a"]))
    assert [file.name for file in tmp_path.iterdir()] == ["d"]
    assert len(list((tmp_path / "d").iterdir())) == 2


def test_results_from_elsewhere_are_taken_when_they_are_whole(tmp_path):
    store, folder = Store(tmp_path / "store"), tmp_path / "run"
    folder.mkdir()
    (folder / "requests.jsonl").write_text("r")
    right = hashlib.sha256(b"r").hexdigest()
    for files in ({"requests.jsonl": "0" * 64}, {"requests.jsonl": right, "telemetry.jsonl.gz": right}):
        (folder / "run.json").write_text(json.dumps({"files": files}))
        store.adopt("d", folder, last="run.json")
        assert not store.holds("d")
    (folder / "run.json").write_text(json.dumps({"files": {"requests.jsonl": right}}))
    store.adopt("d", folder, last="run.json")
    assert sorted(p.name for p in store.folder("d").iterdir()) == ["requests.jsonl", "run.json"]


def test_placing_puts_the_record_last_and_over_what_was_there(tmp_path):
    store, folder = Store(tmp_path / "store"), tmp_path / "run"
    fill(store, "d", '{"digest": "d"}')
    folder.mkdir()
    (folder / "run.json").write_text('{"digest": "old"}')
    store.place("d", folder, last="run.json")
    assert record_digest(folder / "run.json") == "d"
    assert (folder / "requests.jsonl").read_text() == "r"
    store.discard("d")
    assert record_digest(folder / "run.json") == "d"  # a link of its own
    assert not store.holds("d")


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json"])
def test_what_is_no_record_has_no_digest(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    assert record_digest(tmp_path / "run.json") is None
    assert record_digest(tmp_path / "none.json") is None
