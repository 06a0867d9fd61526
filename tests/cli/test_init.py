"""`bench init`, and the workflow as a module of somebody else's."""

import json
import re
from pathlib import Path
from typing import get_args

import polars as pl
import pytest
import yaml

from bench.cli import main
from bench.cli.commands.init import Template
from bench.errors import BenchError
from bench.results import Results
from bench.runs.files import write_record
from bench.runs.summary import read_summary
from bench.shipped import installed_from
from bench.study.begin import TEMPLATES, begin
from bench.study.plan import Plan
from bench.study.read import load_file
from tests.support.command import bench
from tests.support.forked import snakemake
from tests.support.planted import calibrated
from tests.support.study import ROOT

CONFIG = Path("config/config.yaml")
FILES = {"Snakefile", "README.md", ".gitignore", "config/README.md", "config/config.yaml", "config/config.schema.json"} | {
    f"profiles/{name}/config.yaml" for name in ("default", "slurm", "slurm-no-accounting")
}


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_each_template_is_a_study_in_a_folder_of_its_own(tmp_path, monkeypatch):
    for template in TEMPLATES:
        folder = tmp_path / template / "study"
        written, kept = begin(folder, template)
        assert (set(written), kept) == (FILES, []), template
        assert files(folder) == FILES, template
        assert f"installed from {installed_from()}: `pip install " in (folder / "README.md").read_text()
        monkeypatch.chdir(folder)  # the locks that it names are found without a clone
        plan = Plan.of(load_file(CONFIG))
        assert plan.digest == Plan.of(load_file(ROOT / TEMPLATES[template]), root=ROOT).digest, template
        text = CONFIG.read_text()
        assert "make figures" not in text and "config/studies" not in text, template
        (schema,) = re.findall(r"\$schema=(\S+)", text)
        assert (CONFIG.parent / schema).exists(), template
        assert template == "quick" or "$schema" not in (ROOT / TEMPLATES[template]).read_text()  # which are copied to any place


def test_only_missing_files_are_written(tmp_path):
    begin(tmp_path)
    (tmp_path / "config/config.yaml").write_text("mine")
    (tmp_path / "README.md").unlink()
    (tmp_path / "results").mkdir()
    written, kept = begin(tmp_path, "sizing")
    assert (written, set(kept)) == (["README.md"], FILES - {"README.md"})
    assert (tmp_path / "config/config.yaml").read_text() == "mine"


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    (tmp_path / "thesis.pdf").write_text("")
    with pytest.raises(BenchError, match=r"is not empty, and no study: it has thesis\.pdf\. Name a new or an empty folder\."):
        begin(tmp_path)
    with pytest.raises(BenchError, match=r"thesis\.tex is a file\. Name a new"):
        begin(tmp_path / "thesis.tex")
    with pytest.raises(BenchError, match=r"thesis\.tex/study: Not a directory\. Name a writable folder\."):
        begin(tmp_path / "thesis.tex/study")
    assert files(tmp_path) == {"thesis.tex", "thesis.pdf"}
    other = tmp_path / "other"
    other.mkdir()
    (other / "Snakefile").write_text("rule all:\n    input: 'x'\n")
    with pytest.raises(BenchError, match=r"is not empty, and no study: it has Snakefile\."):
        begin(other)


def test_the_command_prints_what_it_wrote_and_what_is_next(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my study", "--template", "running-server"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.removeprefix("wrote my study/") for line in lines if line.startswith("wrote")} == FILES
    assert lines[-3:-1] == ["  cd 'my study'", "  edit the lines marked CHANGE in config/config.yaml"]
    assert lines[-1].endswith("/bin/snakemake --cores 1 results/figures/all")  # a path, as it is not on PATH
    monkeypatch.setattr("sys.prefix", "/cache/uv/archive-v0/x")  # where uvx runs it
    assert main(["init", "quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " uvx --from " in lines[-1] and lines[-2] == "  cd quick"  # where nothing is to be changed
    assert set(get_args(Template)) == set(TEMPLATES)


@pytest.mark.workflow
def test_a_study_in_a_folder_of_its_own_is_remembered(tmp_path):
    """Also one that `--configfile` names."""
    begin(tmp_path)
    study = tmp_path / "results/study.json"
    for arguments, file in (((), "config/config.yaml"), (("--configfile", "other.yaml", "--"), "other.yaml")):
        (tmp_path / "other.yaml").write_text((tmp_path / CONFIG).read_text().replace("tiny-mqa", "mine"))
        target = f"results/checkpoints/{'mine' if arguments else 'tiny-mqa'}/checkpoint.json"
        done = snakemake("--cores", "1", *arguments, target, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(study.read_text()) == {"file": file}


CALLER = """
configfile: "studies.yaml"

onstart:
    shell("touch started")

module saturate:
    snakefile: "{root}/workflow/Snakefile"
    config: config["llm"]

use rule * from saturate
"""


@pytest.mark.long(part="workflows")
def test_the_workflow_is_a_module_of_another_one(tmp_path):
    study = yaml.safe_load((ROOT / "config/studies/quick.yaml").read_text())
    study["workloads"]["chat"]["num_requests"] = 20
    (tmp_path / "studies.yaml").write_text(yaml.safe_dump({"llm": study, "other": 1}))
    (tmp_path / "Snakefile").write_text(CALLER.format(root=ROOT))
    assert "deployment=tiny-mqa, session=1" in snakemake("--cores", "1", "-n", folder=tmp_path).stdout
    done = snakemake("--cores", "1", "results/checkpoints/tiny-mqa/checkpoint.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "started").exists()
    assert (tmp_path / "results/checkpoints/tiny-mqa/checkpoint.json").exists()
    # Under a prefix what cannot be measured is refused before any job all the same.
    study["engines"] = {"e": {"source": "external", "base_url": "http://127.0.0.1:9"}}
    study["deployments"] = {name: {"model": name, "engine": "e"} for name in study["deployments"]}
    (tmp_path / "studies.yaml").write_text(yaml.safe_dump({"llm": study}))
    prefixed = CALLER.replace('shell("touch started")', "saturate.onstart()").rstrip() + " as own_*\n"
    (tmp_path / "Snakefile").write_text(prefixed.format(root=ROOT))
    assert "nothing was started" in snakemake("--cores", "1", "results/figures/all", folder=tmp_path).stderr


# bench demo: what is found of a planted server, beside what was planted


@pytest.mark.workflow
def test_a_planted_server_is_measured_and_its_report_is_a_study_s(tmp_path):
    done = bench("demo", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, planted, report = done.stdout.splitlines()
    assert report == "The report: here/results/report.html (in short: here/results/report.md)"
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
    # By the study's own thresholds and SLOs, as the report has it.
    figures = bench(
        "figures", "here/results", "--output-dir", "drawn", "--figure", "slo-margin", "--format", "csv", cwd=tmp_path
    )
    assert figures.stdout.splitlines() == ["drawn/slo-margin.csv"], figures.stderr
    drawn = pl.read_csv(tmp_path / "drawn/slo-margin.csv").drop_nulls("run")
    assert (drawn["valid"].all(), drawn["ttft_p90_of_limit"].min() < 1) == (True, True)
    assert "slo-margin" in Results.open(results).figures()
    # A server is named behind a colon by whatever takes results; other thresholds leave the study's model of it.
    one = bench(
        "figures", "here/results:planted-server", "--output-dir", "one", "--figure", "ttft", "--labels", "zebra=b", cwd=tmp_path
    )
    assert "one/ttft.svg" in one.stdout and one.stderr.endswith("--labels zebra: no figure that was drawn has this word.\n"), (
        one.stderr
    )
    assert bench("guard", "here/results:planted-server", cwd=tmp_path).returncode == 0
    verified = json.loads(bench("verify", "results", "--json", cwd=tmp_path / "here").stdout)
    assert verified["intact"] and [check["checked"] for check in verified["checks"]] == [3, 4, 3, 10, 0]
    write_record(calibrated(read_summary(results / "summary.parquet")), results / "calibration.json")
    told = ("--threshold", "other_share=1", "--figure", "predicted-loads", "--format", "svg")
    figures = bench("figures", "here/results", "--output-dir", "drawn", *told, cwd=tmp_path)
    assert figures.stdout == "drawn/predicted-loads.svg\n", figures.stderr
    again = bench("demo", "here", cwd=tmp_path)
    assert (again.returncode, "already exists. Name a new folder" in again.stderr) == (2, True)
