"""What is finished is kept, whole or not at all."""

import pytest

from bench.measure.store import Store
from bench.study.state import record_digest


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
    (store.root / ".unfinished-x").mkdir()
    store.sweep()
    assert [p.name for p in store.root.iterdir()] == ["d"]


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
