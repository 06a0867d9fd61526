"""`bench runs --watch`, and the live line of a session: both are a line made from its record."""

import os
import socket

import pytest

from bench.cli.commands.runs import watched_lines
from bench.measure.progress import session_line
from bench.measure.progress_file import FinishedRun, RunUnderWay, SessionProgress
from bench.runs.files import write_record
from bench.terminal import live

RUN = RunUnderWay(run="r", number=15, workload="chat", axis="concurrency", level=64.0, requests=9, since=100.0, expected_s=30.0)
LAST = FinishedRun(
    workload="chat",
    axis="concurrency",
    level=32.0,
    tokens_per_s=1027.0,
    ttft_p50_s=1.04,
    e2e_p50_s=2.0,
    unit="output tokens",
    duration_s=9.0,
    requests=9,
    failed=0,
)


def session(**changed):
    known = {"deployment": "tiny", "engine": "vllm", "session": 1, "host": socket.gethostname(), "pid": os.getpid()}
    known |= {"state": "starting", "since": 100.0, "written": 100.0, "runs": 21, "study_runs": 21, "study_done": 0}
    return SessionProgress(**(known | changed))


def test_a_session_is_a_line():
    assert session_line(session(), 112.0) == f"tiny  {'░' * 20} 0/21  starting vllm for 12 s"
    busy = session(state="measuring", run=RUN, done=14, last=LAST, left_s=240.0, searches_s=60.0)
    shown = f"tiny  {'█' * 13}{'░' * 7} 14/21  chat, concurrency 64%s  1,027 tokens/s, TTFT P50 1.040 s  about 4 min left"
    assert session_line(busy, 112.0) == shown % " for 12 s of about 30 s" + "  searches of at most 60 s"
    assert session_line(busy) == shown % " of about 30 s" + "  searches of at most 60 s"
    between = session(state="between runs", search="at least 12")
    assert session_line(between, 112.0).endswith(" 0/21  at least 12 for 12 s")
    assert session_line(session(state="between runs"), 112.0).endswith(" 0/21  between runs for 12 s")
    assert session_line(session(state="failed", detail="no server\nmore")).endswith("0/21  failed: no server")


@pytest.mark.parametrize(
    ("changed", "begins"),
    [
        ({}, "tiny  "),
        ({"host": "elsewhere", "pid": 0}, "tiny  "),  # of which nobody knows here whether it lives
        ({"pid": 2**22 + 1}, "No session runs. The last one: its process is gone; it was at: tiny  "),
        ({"state": "finished", "done": 21}, "No session runs. The last one: tiny  "),
    ],
)
def test_what_runs_here_is_shown_else_what_was_last(tmp_path, monkeypatch, changed, begins):
    monkeypatch.chdir(tmp_path)
    assert watched_lines() == ["No session runs here, and none has; `make figures` starts them."]
    folder = tmp_path / "results/deployments/tiny/session-2"
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
