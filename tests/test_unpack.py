"""A file that nobody packed is refused as a pack, before it fills the disk or writes beside its folder."""

import io
import tarfile
import time

import pytest

from bench.cli import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to take a pack in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def member(name, content=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


def tarred(target, *members):
    with tarfile.open(target, "w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return target


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([member("./pack.json", b"{}")], "'./pack.json' is not a file of a pack"),
        ([member("/pack.json", b"{}")], "'/pack.json' is not a file of a pack"),
        ([member("../evil", b"x")], "'../evil' is not a file of a pack"),
        ([member("runs/../../evil/x", b"x")], "is not a file of a pack"),
        ([member("/etc/evil", b"x")], "'/etc/evil' is not a file of a pack"),
        ([member("study.yaml", **LINK)], "'study.yaml' is not a file of a pack"),
        ([member("runs/a/b/c", type=tarfile.LNKTYPE, linkname="../../x")], "'runs/a/b/c' is not a file of a pack"),
        ([member("logs/x.log", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "'logs/x.log' is not a file of a pack"),
        ([member("logs/x.log", type=tarfile.FIFOTYPE)], "'logs/x.log' is not a file of a pack"),
        ([member("logs", type=tarfile.DIRTYPE)], "'logs' is not a file of a pack"),
        ([member("deployments/a/sub/x", b"x")], "'deployments/a/sub/x' is not a file of a pack"),
        ([member("runs/a/b/.hidden", b"x")], "is not a file of a pack"),
        ([member("study.yaml", b"a"), member("study.yaml", b"b")], "'study.yaml' is in it twice"),
        ([member("runs/a/b", b"x"), member("runs/a/b/c", b"x")], "is not a file of a pack"),
        ([member("logs/zeros.log", bytes(120 * 2**20))], "it would grow more than 100 times"),
        ([member(f"logs/{i}.log", bytes(4 * 2**20)) for i in range(30)], "it would grow more than 100 times"),
        ([member("logs/x.log", b"", pax_headers={"comment": "x" * (120 * 2**20)})], "it would grow more than 100 times"),
        ([member("pack.json", b"\xff")], "not a whole pack"),
        ([member("pack.json", b"[" * 100_000)], "not a whole pack"),
        ([member("pack.json", b'{"format": 1, "files": {}, "runs": [[1, 2]], "missing": []}')], "not a whole pack"),
        ([member("pack.json", b'{"format": 1, "files": [], "runs": {}, "missing": 5}')], "not a whole pack"),
        ([member("pack.json", b'{"format": 1, "files": {}, "runs": {}}')], "not a whole pack (missing is missing)"),
        ([], "it has no pack.json"),
    ],
)
def test_a_pack_that_nobody_packed_is_refused_and_writes_nothing(here, capsys, members, message):
    pack = str(tarred(here / "made.tar.gz", *members))
    begin = time.process_time()
    assert main(["unpack", pack]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said) < 500
    assert time.process_time() - begin < 3
    assert sorted(p.name for p in here.rglob("*")) == [".snakemake.lock", "made.tar.gz", "results"]
