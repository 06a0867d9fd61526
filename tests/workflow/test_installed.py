"""What an installed wheel brings: every file of the package, the workflow, and commands that work in a folder that holds nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bench
from tests.support.answers import STEADY
from tests.support.compare import runs
from tests.support.fake_server import fake_server
from tests.support.forked import snakemake
from tests.support.study import ROOT

pytestmark = [pytest.mark.long(part="wheel"), pytest.mark.timeout(300)]

# What the wheel has beside the library; setup.py puts it there.
SHIPPED = ("workflow", "config", "profiles")
_BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
# Each command in one process: what it said, and its status. An error of ours that no command catches ends it.
_RUN = """
import contextlib, io, json, sys
import bench
from bench.cli import main
results = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = ended.code or 0
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps([bench.__file__, results]))
"""


def files_of_the_project(*parts):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *parts]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


class Installed:
    """A wheel's files, as an installation puts them into site-packages; around them, a checkout of something else."""

    def __init__(self, folder: Path) -> None:
        source, self.packages = folder / "source", folder / "theirs/packages"
        for name in files_of_the_project("src", "setup.py", "pyproject.toml", "README.md", *SHIPPED):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
        subprocess.run([sys.executable, "-c", _BUILD, folder], cwd=source, capture_output=True, check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            self.files = file.namelist()
            file.extractall(self.packages)
        git = ["git", "-C", folder / "theirs", "-c", "user.name=n", "-c", "user.email=e"]
        (folder / "theirs/file").write_text("theirs")
        for arguments in (["init", "-q"], ["add", "file"], ["commit", "-qm", "theirs"]):
            subprocess.run([*git, *arguments], check=True)

    def run(self, folder, *commands):
        """Status, output and errors of each command, run in `folder` with the wheel's files alone."""
        done = subprocess.run(
            [sys.executable, "-c", _RUN],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(self.packages)},
            input=json.dumps([[str(word) for word in command] for command in commands]),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        where, results = json.loads(done.stdout)
        assert Path(where).is_relative_to(self.packages)
        return results


def workflow(folder, *arguments, packages):
    """What the workflow in `folder` prints, with the library in `packages`."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = snakemake("--cores", "1", *arguments, folder=folder, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("installed"))


def test_a_wheel_has_every_file_of_the_package_and_no_other(installed):
    ours = {name for name in installed.files if not re.match(r"saturate_bench-[^/]+\.dist-info/", name)}
    library = {name.removeprefix("src/") for name in files_of_the_project("src")}
    assert ours == library | {f"bench/_shipped/{name}" for name in files_of_the_project(*SHIPPED)}
    assert "bench/py.typed" in ours


def test_commands_that_need_no_study_run_in_an_empty_folder(installed, tmp_path, summary):
    for name in ("a", "b"):
        runs(summary, STEADY).write_parquet(tmp_path / f"{name}.parquet")
    (first,) = installed.run(tmp_path, ["--help"])
    names = re.findall(r"^│ ([a-z]+)  ", first[1], re.MULTILINE)
    assert {"plan", "fleet", "workload", "parse", "figures", "compare"} <= set(names)
    load = ("--num-requests", 6, "--prompt-length", 16, "--output-length", 8, "--model", "m")
    with fake_server() as server:
        results = installed.run(
            tmp_path,
            *([name, "--help"] for name in names),
            ["plan"],
            ["plan", "--model", "llama-3-8b", "--accelerator", "h100"],
            ["fleet", "--sustained-rps", 12, "--gpus", 4, "--peak-rps", 120, "--price-per-hour", 2],
            ["workload", *load, "--base-url", server.base_url, "--output-dir", "runs/one"],
            ["parse", "runs/one"],
            ["figures", "runs", "--output-dir", "drawn", "--figure", "ttft"],
            ["compare", "a.parquet", "b.parquet"],
            ["compare", "--difference", "5"],
        )
    assert [(status, errors) for status, _, errors in results if status] == []
    said = "".join(out for _, out, _ in results[len(names) :])
    parts = ("fewest GPUs", "llama-3.1-8b", "USD an hour", "6 requests in", "TTFT P50", "drawn/ttft.svg", "no evidence")
    assert [part for part in parts if part not in said] == []
    # The commit of the folder around it is not that of these sources.
    commit = json.loads((tmp_path / "runs/one/run.json").read_text())["commit"]
    assert re.fullmatch(rf"sources [0-9a-f]{{12}}, version {re.escape(bench.__version__)}", commit)


def test_a_study_begun_with_a_wheel_runs_on_the_wheel_s_workflow(installed, tmp_path):
    ((status, out, errors),) = installed.run(tmp_path, ["init", "study"])
    assert (status, errors) == (0, "")
    command = out.splitlines()[-1].split()
    assert command[1:] == ["--cores", "1", "results/figures/all"]
    study = tmp_path / "study"
    planned = workflow(study, "-n", "results/figures/all", packages=installed.packages)
    for rule, count in (("measure", 1), ("parse", 1), ("report", 1)):
        assert re.search(rf"^{rule} +{count}$", planned, re.MULTILINE)
    # A job: its script and its library are the wheel's, and the engine's lock, too.
    workflow(study, "results/checkpoints/tiny-mqa/checkpoint.json", packages=installed.packages)
    assert (study / "logs/weights/tiny-mqa.log").exists()
    ((status, out, errors),) = installed.run(study, ["runs"])
    assert (status, errors) == (0, "") and "tiny-mqa/short" in out
