"""A file that nobody packed is refused as a pack, before it fills the disk or writes beside its folder."""

import contextlib
import copy
import os
import resource
import signal
import tarfile
from pathlib import Path

import pytest
import yaml

from bench.beside.archive.unpack import study_of
from bench.cli import main
from bench.errors import BenchError
from tests.support.packs import member, tarred

LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}


NO_FILE = "does not belong in a pack"
REFUSED = [
    ([member("./pack.json", b"{}")], f"'./pack.json' {NO_FILE}"),
    ([member("/pack.json", b"{}")], f"'/pack.json' {NO_FILE}"),
    ([member("../evil", b"x")], f"'../evil' {NO_FILE}"),
    ([member("runs/../../evil/x", b"x")], NO_FILE),
    ([member("/etc/evil", b"x")], f"'/etc/evil' {NO_FILE}"),
    ([member("study.yaml", **LINK)], f"'study.yaml' {NO_FILE}"),
    ([member("runs/a/b/c", type=tarfile.LNKTYPE, linkname="../../x")], f"'runs/a/b/c' {NO_FILE}"),
    ([member("logs/x.log", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], f"'logs/x.log' {NO_FILE}"),
    ([member("logs/x.log", type=tarfile.FIFOTYPE)], f"'logs/x.log' {NO_FILE}"),
    ([member("logs", type=tarfile.DIRTYPE)], f"'logs' {NO_FILE}"),
    ([member("deployments/a/sub/x", b"x")], f"'deployments/a/sub/x' {NO_FILE}"),
    ([member("runs/a/b/.hidden", b"x")], NO_FILE),
    ([member("study.yaml", b"a"), member("study.yaml", b"b")], f"'study.yaml' {NO_FILE}, or appears twice"),
    ([member("runs/a/b", b"x"), member("runs/a/b/c", b"x")], NO_FILE),
    ([member(f"logs/{'a' * 5000}.log", b"x")], "cannot be unpacked: File name too long"),
    ([member("pack.json", b"\xff")], "not a whole pack"),
    ([member("pack.json", b"[" * 100_000)], "not a whole pack"),
    ([member("pack.json", b'{"format": 1, "files": {}, "runs": [[1, 2]], "missing": []}')], "not a whole pack"),
    ([member("pack.json", b'{"format": 1, "files": [], "runs": {}, "missing": 5}')], "not a whole pack"),
    ([member("pack.json", b'{"format": 1, "files": {}, "runs": {}}')], "missing required field `missing`"),
    ([], "it has no pack.json"),
]


def refused_as(message, here, capsys, members):
    pack = str(tarred(here / "made.tar.gz", *members))
    assert main(["unpack", pack]) == 2, message
    said = capsys.readouterr().err
    assert message in said
    assert len(said) < 500
    assert sorted(p.name for p in here.rglob("*")) == [".snakemake.lock", "made.tar.gz", "results"], message


def test_a_pack_that_nobody_packed_is_refused_and_writes_nothing(here, capsys):
    for members, message in REFUSED:
        refused_as(message, here, capsys, members)


@pytest.mark.parametrize("size", ["a file", "files", "a header"])
def test_a_pack_that_would_fill_the_disk_is_refused_and_writes_nothing(here, capsys, size):
    large = {
        "a file": lambda: [member("logs/zeros.log", bytes(120 * 2**20))],
        "files": lambda: [member(f"logs/{i}.log", bytes(4 * 2**20)) for i in range(30)],
        "a header": lambda: [member("logs/x.log", b"", pax_headers={"comment": "x" * (120 * 2**20)})],
    }
    refused_as("it would grow more than 100 times", here, capsys, large[size]())


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


def naming(content, file):
    """Studies that name the file, by how they do."""
    short, lengths = content["workloads"]["short"], {"distribution": "empirical", "file": file}
    own = {key: value for key, value in short.items() if key != "prompt_tokens"}
    auto = {
        "workloads": {"short": {**short, "output_tokens": lengths, "arrival": "closed"}},
        "decision": {"slo": ["ttft_p99 <= 2s"]},
    }
    for what, change, ladder in (
        ("a lock", {"engines": {"e": {"source": "lock", "locks": [file]}}}, {}),
        ("prompts", {"workloads": {"short": {**own, "prompts": {"source": "file", "file": file}}}}, {}),
        ("lengths", {"workloads": {"short": {**short, "output_tokens": lengths}}}, {}),
        ("a trace", {"workloads": {"short": {"arrival": "trace", "trace": file}}}, {"time_scale": [1]}),
        ("lengths of a search", auto, {"concurrency": "auto"}),
    ):
        study = copy.deepcopy(content | change)
        if ladder:
            study["study"]["ladders"] = [{"deployment": "a", "workload": "short", **ladder}]
        yield what, study


@pytest.mark.parametrize("file", ["/dev/zero", "pipe", ".", "../pipe"])
def test_a_pack_s_study_reads_nothing_without_end(here, content, file, monkeypatch):
    os.mkfifo("pipe")
    for what, study in naming(content, file):
        (here / what).mkdir()
        monkeypatch.chdir(here / what)
        os.mkfifo("pipe")
        said = planned(study)
        assert file in said, what
        assert ("a folder, a pipe or a device" if what == "a lock" else "files has no SHA-256 of") in said, what


def test_a_pack_s_files_are_known_by_their_digests(here, content, monkeypatch):
    for what, study in naming(content, "/dev/zero"):
        (here / what).mkdir()
        monkeypatch.chdir(here / what)
        said = planned({**study, "files": {"/dev/zero": "0" * 64}})
        assert said == "planned" or what == "a lock", (what, said)


@pytest.mark.usefixtures("here")
def test_nothing_of_a_pack_is_measured_whatever_its_study_says(content):
    """Nor where the names of an earlier version cannot be brought up to date."""
    for engines in (content["engines"], ["not", "named"]):
        Path("study.yaml").write_text(yaml.safe_dump({**content, "engines": engines, "packed": False}))
        with contextlib.suppress(BenchError):
            study_of(Path())
        assert yaml.safe_load(Path("study.yaml").read_text())["packed"] is True
