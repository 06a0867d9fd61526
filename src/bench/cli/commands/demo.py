"""`bench demo`: a study of a server whose capacity is planted, in seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.entry import command
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.study.plan import Plan

_NAME = "planted-server"
_TOKENS = 8  # of each answer; convention
# of those that its runs can answer, three, which take a second; convention
_FIGURES = ("latency-throughput", "ttft", "kv-saturation")


@command("bench demo", "bench demo my-demo")
def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder, for the runs and the report.")] = Path(
        "saturate-demo"
    ),
) -> None:
    """Starts a server that answers eight requests at once at a known speed, measures it as any other one, and prints what was found
    beside what was planted. No model, no GPU, no network.
    """
    from bench.servers.planted import Planted

    if folder.exists():
        raise BenchError(f"{folder} already exists. Name a new folder, or remove that one.")
    folder.mkdir(parents=True)
    truth = Planted()
    with chdir(folder), _planted() as base_url:
        *found, _ = _measured(_study(base_url, truth))  # the last one names the report by its place in the folder
    print(*found, sep="\n")
    print(
        f"Planted: {truth.slots} in flight, {truth.highest_rate(_TOKENS):.0f} requests/s "
        f"({truth.slots} slots, {truth.answer_s(_TOKENS):g} s an answer)"
    )
    print(f"The report: {folder}/results/report.html (in short: {folder}/results/report.md)")


@contextmanager
def _planted() -> Iterator[str]:
    """A server's address, while it runs."""
    command = [sys.executable, "-m", "bench.servers.planted", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def _study(base_url: str, truth: Any) -> dict[str, Any]:
    """A closed loop below, at and beyond the planted slots; within the SLO while no request waits."""
    return {
        "study": {
            "title": f"A demo: is it found that a planted server has {truth.slots} slots, and so sustains {truth.slots} in flight, "
            f"{truth.highest_rate(_TOKENS):.0f} requests/s?",
            "ladders": [{"deployment": _NAME, "workload": "load", "concurrency": [4, 8, 12]}],
        },
        "engines": {"planted": {"source": "external", "base_url": base_url}},
        "deployments": {_NAME: {"engine": "planted", "max_num_seqs": truth.slots}},
        "workloads": {"load": {"arrival": "closed", "num_requests": 128, "prompt_tokens": 32, "output_tokens": _TOKENS}},
        "measurement": {"scrape_interval_s": 0.05, "warmup_requests": 9, "reference_requests": 0},
        "thresholds": {"other_share": 1.0},  # the server sleeps more than it computes
        "decision": {"slo": [f"ttft_p90={1.75 * truth.first_s:g}s"]},
    }


def _measured(study: dict[str, Any]) -> list[str]:
    """Measure and draw a study in the working directory, by what the workflow's jobs call; the lines that a workflow ends with."""
    import yaml

    from bench.measure.session import measure
    from bench.parse.session import parse_session
    from bench.runs.files import read
    from bench.runs.paths import Paths
    from bench.runs.store import SessionIndex, Store
    from bench.servers.environment import prepare_engine
    from bench.servers.launch import write_launch
    from bench.study.plan import Plan
    from bench.study.read import load_config
    from bench.study.state import remember_study, write_index

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    file = Path("study.yaml")
    file.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    remember_study(file)
    plan, store = Plan.of(load_config(study, source=str(file))), Store(owner=_NAME)
    spec, engine = plan.deployments[_NAME], Path(Paths.ENGINE.format(engine="planted"))
    launch = Path(Paths.LAUNCH.format(deployment=_NAME))
    prepare_engine("planted", spec.engine, engine, say)
    launch.parent.mkdir(parents=True)
    write_launch(spec, plan.longest_request(_NAME), engine=engine, checkpoint=None, launch=launch)
    measure(plan, _NAME, plan.listed_of(_NAME), launch=launch, facts=Paths.facts(_NAME), store=store, say=say)
    write_index(plan, _NAME, 1, store)
    records = read(SessionIndex, Paths.session(_NAME)).runs
    parsed = Path(Paths.PARSED.format(deployment=_NAME, session=1))
    parse_session(store.root / _NAME, records, parsed, code="", say=say)
    return _drawn(plan, launch)


def _drawn(plan: Plan, launch: Path) -> list[str]:
    from bench.findings.analysis import FINDINGS, TABLES, Analysis, write_analysis
    from bench.findings.registry import draw_figure
    from bench.findings.report import closing_lines, write_report
    from bench.findings.tables import Tables
    from bench.parse.table import aggregate
    from bench.parse.windows import of_windows
    from bench.report.page import write_manifest
    from bench.runs.paths import Paths
    from bench.runs.summary import read_summary
    from bench.shipped import commit_of

    summary, timeseries, analysis = Path(Paths.SUMMARY), Path(Paths.TIMESERIES), Path(Paths.ANALYSIS)
    aggregate(
        [Path(Paths.RUN_SUMMARY.format(deployment=_NAME, run=run.name)) for run in plan.runs],
        launches=[launch],
        facts=[Paths.facts(_NAME)],
        thresholds=plan.config.thresholds,
        slos=plan.config.decision.slos,
        summary=summary,
        summary_csv=Path(Paths.SUMMARY_CSV),
        timeseries=timeseries,
    )
    found = Analysis(of_windows(read_summary(summary))[0], plan.config.decision)
    write_analysis(found, analysis, (*TABLES, *FINDINGS))
    results = Tables.read(summary, timeseries, plan.config.decision, analysis=analysis)
    stems = [Path(Paths.FIGURE_SVG.format(figure=name)).with_suffix("") for name in _FIGURES]
    files = [path for stem in stems for path in draw_figure(stem.name, results, stem)]
    write_report(
        Path(Paths.REPORT),
        summary=Path(Paths.REPORT_MARKDOWN),
        title=plan.config.study.title,
        results=results,
        specs=[path for path in files if path.suffix == ".json"],
        facts=[Paths.facts(_NAME)],
        commit=commit_of(),
        thresholds=plan.config.thresholds,
    )
    closing = closing_lines(results, figures=len(stems))
    write_manifest(Path(Paths.MANIFEST), figures=files, page=Path(Paths.REPORT), runs=results.runs, closing=closing)
    return closing
