"""The command line itself: help, examples, suggestions, plain output, and how little it imports."""

import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from inspect import cleandoc
from pathlib import Path
from typing import get_args

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from bench.cli import main, output
from bench.cli.commands import plan
from bench.cli.commands.runs import watched_lines
from bench.cli.entry import app, loaded
from bench.measure.progress import SessionProgress, session_line
from bench.models.geometry import DTYPE_BYTES
from bench.runs.files import write_record
from bench.runs.paths import Paths
from bench.servers.deployment import Deployment
from bench.servers.plan import WEIGHTS
from bench.study.state import last_study, remember_study
from bench.terminal import live
from tests.support.study import CONTENT, ROOT

COMMANDS = {name: loaded(name) for name in typer.main.get_command(app).commands}
EXAMPLES = [
    (name, line)
    for name, command in COMMANDS.items()
    for line in re.findall(r"^\[dim\]\$\[/\] (.*)$", command.help, re.MULTILINE)
]


def test_every_command_has_two_examples():
    assert {name: sum(each == name for each, _ in EXAMPLES) >= 2 for name in COMMANDS} == dict.fromkeys(COMMANDS, True)


def test_every_command_gives_its_result_as_json():
    without = {name for name, command in COMMANDS.items() if "json" not in {param.name for param in command.params}}
    assert without <= {"demo", "export", "guard", "init"}  # what they make are files


def test_every_example_is_understood():
    for name, line in EXAMPLES:
        program, command, *arguments = shlex.split(line.replace(r"\[", "[").partition(" | ")[0])
        assert (program, command) == ("bench", name), line
        with COMMANDS[name].make_context(name, arguments):
            pass  # the context parses and converts; it does not run the command


def test_help_has_groups_and_exit_statuses(capsys):
    for asked in ([], ["-h"], ["--help"]):
        assert main(asked) == 0
        text = " ".join(capsys.readouterr().out.split())
        for words in ("Before anything is measured", "A study", "One stage", "To another machine", "130 after Ctrl-C"):
            assert words in text, asked
        assert "<bool>" not in text


def test_help_of_each_command_fits_80_columns():
    for name in COMMANDS:
        done = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "80"})
        assert done.exit_code == 0
        assert max(map(len, done.output.splitlines())) <= 80, name
        assert done.output.index("Examples:") < done.output.index("─ "), name  # of a panel of options
        assert cleandoc(COMMANDS[name].help).split(":")[0].split(".")[0].replace("\n", " ")[:40] in done.output


def test_commands_and_jobs_import_no_more_than_they_need():
    """Each would pay up to half a second, and a load process shares its interpreter. Nor do they colour what goes into a pipe."""
    heavy = {"polars", "numpy", "scipy", "requests", "altair"}
    for code, needed, spared in (
        ("main(['--help'])", "bench.cli.help", heavy | {"pydantic", "yaml", "bench.study", "bench.models"}),
        ("main(['plan', '--model', 'gpt2'])", "bench.models", heavy | {"rich", "bench.study"}),
        (
            "import bench.load.__main__",
            "bench.load",
            heavy | {"openai", "pydantic", "yaml", "bench.study", "bench.load.client"},
        ),
        ("import bench.parse", "bench.parse", {"pydantic", "requests", "scipy", "altair"}),
        ("import bench.findings.report", "bench.findings.report", {"requests", "scipy", "altair"}),
        ("from bench.findings.registry import figures_of; figures_of([])", "bench.findings", {"polars", "scipy", "altair"}),
        ("import bench.measure.scraper, bench.measure", "bench.measure.scraper", {"pynvml"}),
    ):
        command = "from bench.cli import main; " if code.startswith("main") else ""
        whole = f"import sys; {command}{code}; print(sorted(sys.modules), file=sys.stderr)"
        done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, cwd=ROOT)
        loaded = set(re.findall(r"'([\w.]+)'", done.stderr))
        assert needed in loaded, code
        assert not {name for name in loaded for each in spared if f"{name}.".startswith(f"{each}.")}, code
        assert bool(done.stdout) == bool(command) and "\x1b" not in done.stdout, code


def test_defaults_are_those_of_the_models():
    for name in ("gpu_memory_utilization", "max_num_seqs"):
        assert Deployment.model_fields[name].default == getattr(plan.Plan(), name), name
    assert tuple(WEIGHTS) == get_args(plan.Weights)
    assert tuple(DTYPE_BYTES) == get_args(plan.Kv)


ROWS = [["model", "requests", "attention"], ["a-long-name", "1,000", "GQA"], ["b", "10", "MLA"]]


def test_a_table_is_plain_and_whole(capsys):
    output.print_table(ROWS, "<><")
    assert (
        capsys.readouterr().out == "model        requests  attention\na-long-name     1,000  GQA\nb                  10  MLA\n"
    )


@pytest.mark.usefixtures("here")
def test_the_study_measured_last_is_the_one_meant(capsys):
    assert main(["runs"]) == 2
    assert "config/config.yaml: no such file" in capsys.readouterr().err
    assert last_study() is None
    other = Path("mine.yaml")
    other.write_text(yaml.safe_dump(CONTENT))
    remember_study(other)
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Study: {other} (the study measured last here)"
    assert main(["runs", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"Study: {other} (the study measured last here)\n"
    assert len(json.loads(printed.out)) == 3
    assert main(["runs", "--configfile", str(other)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Study: {other}"
    other.write_text(yaml.safe_dump({**CONTENT, "scales": {"cpu": {"study": {"title": "small"}}}}))
    remember_study(other, "cpu")
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Study: {other} (scale cpu, the study measured last here)"
    remember_study(Path("gone.yaml"))
    assert main(["runs", "--discard", "*"]) == 2
    assert "gone.yaml: no such file; it is the study measured last here (results/study.json)" in capsys.readouterr().err
    Path(Paths.STUDY).write_text("[]")
    assert main(["pack"]) == 2
    assert "results/study.json: not readable. Name the study's file with --configfile" in capsys.readouterr().err


# Terminals that are not UTF-8.

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def printed(encoding, *arguments):
    """A command's status, and what it prints on a terminal, or into a pipe, of this encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in "oe"]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        status = main([str(each) for each in arguments])
    for stream in streams:
        stream.flush()
    return status, *(stream.buffer.getvalue().decode(encoding) for stream in streams)


def test_what_is_printed_is_so_in_any_encoding():
    for arguments, status, said in (
        *(([name, "--help"], 0, "Usage:") for name in COMMANDS),
        (["plan", "--model", "qwen3-8b", "--accelerator", "h100"], 0, "KV"),
        (["import", ROOT / "tests/data/imported/vllm/c4.json"], 0, "vLLM bench"),
        (["fleet", "--sustained-rps", "12", "--peak-rps", "120"], 0, "nstances"),
        (["plan", "--model", "\u2264\u65e5\udcff"], 2, "no such model"),
        (["nothing\u2013of-this"], 2, "No such command"),
    ):
        for encoding in ("ascii", "latin-1") if said == "Usage:" else ("ascii", "latin-1", "cp1252", "koi8-r"):
            found, out, error = printed(encoding, *arguments)
            assert (found, said in out + error) == (status, True), (arguments, encoding)


def test_jobs_and_the_check_of_a_configuration_print_in_a_c_locale(tmp_path):
    """What a workflow prints and what it keeps are UTF-8 where the locale is not."""
    (tmp_path / "job.py").write_text(
        "from bench.workflow import announce_workflow, job\n"
        "from pathlib import Path\n"
        "announce_workflow(Path('none'))\n"
        "print('1 \u2013 2 \u2264 3 \u00d7 \u22124 \u2026 \u65e5')\n"
        "with job('log.txt') as say:\n"
        "    say('\u00d7 2')\n",
        encoding="utf-8",
    )
    environment = {**os.environ, **C_LOCALE}
    done = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, env=environment, capture_output=True)
    assert (done.stdout, b"? 2" in done.stderr, done.returncode) == (b"1 ? 2 ? 3 ? ?4 ? ?\n", True, 0)
    assert "\u00d7 2" in (tmp_path / "log.txt").read_text(encoding="utf-8")
    (tmp_path / "bad.yaml").write_text("\u65e5\u2264: [1\nb: 2\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "bench.study", "bad.yaml"], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 1 and b"bad.yaml" in done.stderr and b"Traceback" not in done.stderr


# bench runs --watch, and the live line of a session: both are a line made from its record


def session(**changed):
    known = {"deployment": "tiny", "host": socket.gethostname(), "pid": os.getpid()}
    known |= {"state": "starting vllm", "since": 100.0, "runs": 21}
    return SessionProgress(**(known | changed))


def test_a_session_is_a_line():
    assert session_line(session(), 112.0) == f"tiny  {'░' * 20} 0/21  starting vllm for 12 s"
    last = {"last": "1,027 tokens/s, TTFT P50 1.040 s", "left_s": 240.0}
    busy = session(state="chat, concurrency 64", run=15, done=14, **last)
    shown = f"tiny  {'█' * 13}{'░' * 7} 14/21  chat, concurrency 64%s  1,027 tokens/s, TTFT P50 1.040 s  about 4 min left"
    assert (session_line(busy, 112.0), session_line(busy)) == (shown % " for 12 s", shown % "")
    assert session_line(session(state="failed: no server", over=True), 112.0).endswith("0/21  failed: no server")


@pytest.mark.parametrize(
    ("changed", "begins"),
    [
        ({}, "tiny  "),
        ({"host": "elsewhere", "pid": 0}, "tiny  "),  # of which nobody knows here whether it lives
        ({"pid": 2**22 + 1}, "No session runs. The last one: its process is gone; it was at: tiny  "),
        ({"state": "finished", "over": True, "done": 21}, "No session runs. The last one: tiny  "),
    ],
)
def test_what_runs_here_is_shown_else_what_was_last(here, changed, begins):
    assert watched_lines() == ["No session runs here, and none has; `make figures` starts them."]
    folder = here / "results/deployments/tiny/session-2"
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text("{")
    write_record(session(**changed), folder.parent / "progress.json")
    (line,) = watched_lines(112.0)
    assert line.startswith(begins)


def test_a_live_line_is_drawn_on_a_terminal_alone(capsys, monkeypatch):
    live("tiny")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "5")
    live("tiny, and more")
    assert capsys.readouterr().err == "\r\033[Ktiny"
