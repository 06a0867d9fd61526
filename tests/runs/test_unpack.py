"""A file that nobody packed is refused as a pack, before it fills the disk or writes beside its folder."""

import contextlib
import os
import resource
import signal
import tarfile
import time
from pathlib import Path

import pytest
import yaml

from bench.cli import main
from bench.errors import BenchError
from bench.store.unpack import study_of
from tests.support.packs import member, tarred


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to take a pack in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


def planned(study):
    """What becomes of a pack's study: `planned`, or why it is refused; `killed` where that takes 10 s of time, or 1 GiB more of memory."""
    folder, (reading, writing) = Path("pack"), os.pipe()
    folder.mkdir()
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    if (child := os.fork()) == 0:
        signal.alarm(10)
        here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (here + 2**30, resource.RLIM_INFINITY))
        try:
            study_of(folder)
            said = "planned"
        except BenchError as error:
            said = str(error)
        except MemoryError:
            said = "killed"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said or "killed"


def with_lock(content, file):
    content["engines"]["e"] = {"source": "lock", "locks": [file]}


def with_prompts(content, file):
    content["workloads"]["short"]["prompts"] = {"source": "file", "file": file}
    del content["workloads"]["short"]["prompt_tokens"]


def with_text(content, file):
    content["workloads"]["short"]["prompts"] = {"source": "text", "file": file}


def with_lengths(content, file):
    content["workloads"]["short"]["output_tokens"] = {"distribution": "empirical", "file": file}


def with_trace(content, file):
    content["workloads"]["short"] = {"arrival": "trace", "trace": file}
    content["study"]["ladders"] = [{"deployment": "a", "workload": "short", "time_scale": [1]}]


def with_auto(content, file):
    with_lengths(content, file)
    content["workloads"]["short"]["arrival"] = "closed"
    content["study"]["ladders"] = [{"deployment": "a", "workload": "short", "concurrency": "auto"}]
    content["decision"] = {"slo": ["ttft_p99 <= 2s"]}


NAMES = [with_lock, with_prompts, with_text, with_lengths, with_trace, with_auto]


@pytest.mark.parametrize("file", ["/dev/zero", "pipe", ".", "../pipe"])
@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.__name__)
def test_a_pack_s_study_reads_nothing_without_end(here, content, name, file, monkeypatch):
    os.mkfifo("pipe")
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    os.mkfifo("pipe")
    name(content, file)
    said = planned(content)
    assert file in said
    assert ("a folder, a pipe or a device" if name is with_lock else "files has no SHA-256 of") in said


@pytest.mark.parametrize("name", NAMES[1:], ids=lambda name: name.__name__)
@pytest.mark.usefixtures("here")
def test_a_pack_s_files_are_known_by_their_digests(content, name):
    name(content, "/dev/zero")
    assert planned({**content, "files": {"/dev/zero": "0" * 64}}) == "planned"


@pytest.mark.usefixtures("here")
def test_nothing_of_a_pack_is_measured_whatever_its_study_says(content):
    """Nor where the names of an earlier version cannot be brought up to date."""
    for engines in (content["engines"], ["not", "named"]):
        Path("study.yaml").write_text(yaml.safe_dump({**content, "engines": engines, "packed": False}))
        with contextlib.suppress(BenchError):
            study_of(Path())
        assert yaml.safe_load(Path("study.yaml").read_text())["packed"] is True
