"""`bench demo`: what is found of a planted server, beside what was planted."""

import json
import re

import pytest

from tests.support.command import bench

pytestmark = pytest.mark.workflow


def test_a_planted_server_is_measured_and_its_report_is_a_study_s(tmp_path):
    done = bench("demo", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, report, place, planted = done.stdout.splitlines()
    assert report.startswith("The report: results/report.html")
    assert place == "In the folder here: open here/results/report.html"
    assert planted == "Planted: 8 in flight, 118 requests/s (8 slots, 0.068 s an answer)"
    results = tmp_path / "here/results"
    assert (results / "report.md").read_text().splitlines()[0].startswith("## planted-server sustains ")
    assert "<!doctype html>" in (results / "report.html").read_text()[:100].lower()
    drawn = json.loads((results / "figures/latency-throughput.json").read_text())
    assert drawn["usermeta"]
    # A server that sleeps gives no more than was planted, however busy the machine.
    rates = [float(rate.replace(",", "")) for rate in re.findall(r"([\d,]+) tokens/s, TTFT", done.stderr)]
    assert len(rates) == 3 and max(rates) < 1.1 * 118 * 8
    assert bench("runs", cwd=tmp_path / "here").stdout.startswith("Study: study.yaml (the study measured last here)")
    again = bench("demo", "here", cwd=tmp_path)
    assert (again.returncode, "is there already. Name a new folder" in again.stderr) == (2, True)
