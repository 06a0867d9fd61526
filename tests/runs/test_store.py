"""What is finished is kept, whole or not at all."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from bench.runs.files import record_digest
from bench.runs.store import Store

D, E = (SimpleNamespace(key=f"a/{name}") for name in "de")


def fill(store, run):
    with store.adding(run) as folder:
        (folder / "run.json").write_text("{}")
        (folder / "requests.jsonl").write_text("r")


def test_a_measurement_is_there_when_it_is_whole(tmp_path):
    store = Store(tmp_path / "store")
    with pytest.raises(RuntimeError), store.adding(D) as folder:  # noqa: PT012
        (folder / "run.json").write_text("half")
        raise RuntimeError
    assert not store.holds(D)
    assert list(store.root.iterdir()) == []
    fill(store, D)
    assert store.holds(D)


def test_what_a_killed_session_left_is_swept(tmp_path):
    store = Store(tmp_path / "store")
    fill(store, D)
    mine, another = Store(store.root, owner="mine"), Store(store.root, owner="other")
    (store.root / ".unfinished-mine-x").mkdir()
    with another.adding(E):
        mine.sweep()
        assert len(list(store.root.glob(".unfinished-other-*"))) == 1  # a session that runs now
    assert sorted(p.name for p in store.root.iterdir()) == ["a"]
    assert sorted(p.name for p in (store.root / "a").iterdir()) == ["d", "e"]


def test_a_session_whose_name_begins_like_that_of_another_does_not_sweep_its_run(tmp_path):
    for running in ("v0.32-again", "v0.32", "v0.32-again-2"):
        here, other = Store(tmp_path / running, owner="v0.32"), Store(tmp_path / running, owner=running)
        with other.adding(D) as folder:
            (folder / "run.json").write_text("{}")
            here.sweep()
            assert (folder / "run.json").exists(), running
        assert other.holds(D)
    left = tmp_path / ".unfinished-v0.32-again-x"  # of a session on another machine, whose lock is not seen here
    left.mkdir()
    Store(tmp_path, owner="v0.32").sweep()
    assert left.exists()


def test_a_folder_is_swept_once_its_process_is_gone(tmp_path):
    """Also that of a session of the same name, in another process: killed, not ended."""
    code = (
        "import sys, time; from pathlib import Path; from bench.runs.store import Store\n"
        "with Store(Path(sys.argv[1]), owner='a').adding(None): print('in', flush=True); time.sleep(60)"
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
        for _ in range(20):
            fill(Store(tmp_path, owner=owner), D)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, ["a", "a-b", "b", "b-a"]))
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["d"]
    assert len(list((tmp_path / "a/d").iterdir())) == 2


def test_what_is_discarded_is_gone_with_what_was_made_of_it(tmp_path):
    store = Store(tmp_path)
    fill(store, D)
    (store.folder(D) / "summary.json").write_text("{}")
    store.discard(D)
    assert not store.holds(D)
    assert list((tmp_path / "a").iterdir()) == []
    store.discard(D)  # there is nothing any more


def test_what_is_no_record_has_no_digest(tmp_path):
    for text in ("", "[]", "{}", "not json"):
        (tmp_path / "run.json").write_text(text)
        assert record_digest(tmp_path / "run.json") is None, text
    assert record_digest(tmp_path / "none.json") is None
