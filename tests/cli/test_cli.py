"""The commands as a user runs them."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml

from bench.cli import main
from bench.cli.commands import workload
from bench.report.measuring import measuring_lines
from bench.runs.files import write_record
from bench.runs.paths import Paths
from bench.runs.searches import DeploymentSearches, SearchedRun
from bench.runs.store import Store
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.state import unended_searches
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.planted import searched
from tests.support.study import CONTENT, ROOT


@pytest.fixture
def study(tmp_path, monkeypatch):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(CONTENT))
    monkeypatch.chdir(tmp_path)
    return Plan.of(load_config(CONTENT, source="test"))


def test_a_fault_of_ours_has_a_status_of_its_own(monkeypatch, capsys):
    """1 is a gate's "less than asked"."""
    monkeypatch.setattr("bench.cli.entry.app", lambda *_, **__: 1 / 0)
    assert main(["find"]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


LATE = {"faults": ["client"], "reasons": ["client.loop_lag: the client's event loop was late: P99 0.2 s, over 0.1 s"]}


def measured(run):
    run.record.parent.mkdir(parents=True, exist_ok=True)
    run.record.write_text(json.dumps({"digest": run.digest}))


def test_runs_lists_each_with_its_state(study, capsys):
    """A run counts as measured once it has a record of its definition, whatever became of its session."""
    first, second, third = study.runs
    measured(first)
    measured(replace(second, seed=99))  # of another definition
    (third.record.parent.parent / f"{third.name[:-8]}00000000").mkdir()  # without a record, as a workflow may leave it
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "Study: config/config.yaml (the default)",
        f"measured  {first.key}",
        f"stale     {second.key}",
        f"missing   {third.key}",
        "3 runs: 1 measured, 1 stale, 1 missing",
    ]
    main(["runs", "--json"])
    assert [run["state"] for run in json.loads(capsys.readouterr().out)] == ["measured", "stale", "missing"]


def with_searches(content, *names):
    """The study with a search on each of these deployments, beside two runs of `a`: its plan."""
    content["workloads"]["long"] = {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": "auto"}
    content["deployments"] |= dict.fromkeys(names, content["deployments"]["a"])
    content["study"]["ladders"] = [
        *({"deployment": name, "workload": "long", "concurrency": "auto"} for name in names),
        {"deployment": "a", "workload": "short", "concurrency": [1, 2]},
    ]
    content["decision"] = {"slo": ["ttft_p90=500ms"]}
    Path("config/config.yaml").write_text(yaml.safe_dump(content))
    return Plan.of(load_config(content, source="test"))


def ended(plan, search, **more):
    """Write that a search has ended."""
    name = search.deployment.name
    answer = searched(name=search.name, workload="long", digest=search.digest, **more)
    file = Path(Paths.SEARCHES.format(deployment=name))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_record(DeploymentSearches(deployment=name, digest=plan.deployments[name].digest, searches=(answer,)), file)


@pytest.mark.usefixtures("study")
def test_searches_that_have_not_ended_are_to_be_measured_beside_runs(content, capsys):
    def left():
        main(["runs"])
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("To measure", "missing"))]

    plan = with_searches(content, "b", "c")
    assert left() == [
        *(f"missing  {each.key}" for each in (*plan.runs, *plan.searches)),
        "To measure: 2 runs and 2 searches, in 3 starts of a server.",
    ]
    search, other = plan.searches
    ended(plan, search)
    for run in plan.runs:
        measured(run)
    assert left() == [
        f"missing   {other.key}",
        "To measure: 1 search, in 1 start of a server.",
    ]
    (line, *_) = measuring_lines(plan, Store().holds, unended_searches(plan, Store()))
    assert "to measure: 1 search of " in line


@pytest.mark.usefixtures("study")
def test_a_search_whose_runs_are_all_invalid_is_listed_as_invalid(content, capsys):
    plan = with_searches(content, "a")
    (search,), (spec, _) = plan.searches, plan.runs
    measured(spec)
    ended(plan, search, runs=(SearchedRun(level=1.0, requests=1, repeat=1, digest=spec.digest, excess={}),))
    judged([spec], LATE)
    main(["runs"])
    assert f"invalid  {search.key}" in capsys.readouterr().out


def judged(runs, *rows):
    """Write the summary of a study. Args: rows: what is said of each run."""
    base = {
        "faults": [],
        "reasons": [],
        "host_other_share": 0.0,
        "failed": 0,
        "requests": 4,
        "duration_s": 1.0,
        "outcome_http_503": None,
    }
    given = [
        {**base, "digest": run if isinstance(run, str) else run.digest, **row} for run, row in zip(runs, rows, strict=True)
    ]
    lists = dict.fromkeys(("faults", "reasons"), pl.List(pl.String))
    pl.DataFrame(given, schema_overrides={**lists, "outcome_http_503": pl.Int64}).write_parquet("results/summary.parquet")


def test_an_invalid_run_is_listed_with_its_reason(study, capsys):
    def listed():
        main(["runs"])
        return capsys.readouterr().out

    run = study.runs[0]
    measured(run)
    judged([run], LATE)
    late = "client: the client's event loop was late: P99 0.2 s, over 0.1 s"
    assert listed().splitlines()[1] == f"invalid  {run.key}  {late}"
    judged([run], {"faults": ["machine"], "reasons": ["machine.other_processes: taken"], "host_other_share": 0.42})
    fix = "If they cannot be ended, `thresholds: { other_share: 0.45 }`"
    assert f"Note: Other processes took up to 42 % of the cores' time. {fix}" in listed()
    measured(study.runs[1])
    unscraped = {"faults": ["telemetry"], "reasons": ["telemetry.never_scraped: no scrape succeeded"]}
    judged(study.runs[:2], unscraped, {"failed": 2, "outcome_http_503": 2})
    assert listed().splitlines()[1:3] == [
        f"invalid   {run.key}  telemetry: no scrape succeeded",
        f"measured  {study.runs[1].key}  2 of 4 requests failed (2 http_503)",
    ]
    assert main(["runs", "--discard", "invalid"]) == 0
    assert [run.record.exists() for run in study.runs] == [False, True, False]


def test_runs_that_another_study_s_summary_does_not_judge_are_not_called_valid(study, capsys):
    """The summary is of the study that was drawn last."""
    run = study.runs[0]
    measured(run)
    judged(["another"], LATE)
    main(["runs"])
    assert (
        "Note: 1 of the measured runs has no verdict: results/summary.parquet is missing, or belongs to another study"
        in capsys.readouterr().out
    )
    assert main(["runs", "--discard", "invalid"]) == 2
    assert "Run the command that measured this study: it judges them" in capsys.readouterr().err
    assert run.record.exists()
    judged([run], {})
    main(["runs", "--discard", "invalid"])
    assert "No measured run of this study is invalid: nothing to forget.\n" in capsys.readouterr().out
    main(["runs", "--discard", "invalid", "--json"])
    assert json.loads(capsys.readouterr().out) == []


def test_discard_forgets_the_runs_that_match(study, capsys):
    for run in study.runs:
        measured(run)
    assert main(["runs", "--select", "*_c0002_*"]) == 0
    assert study.runs[1].record.exists()
    assert main(["runs", "--discard", "*_c0002_*"]) == 0
    assert f"forgot {study.runs[1].key}" in capsys.readouterr().out
    assert [run.record.exists() for run in study.runs] == [True, False, True]
    assert main(["runs", "--discard", "nothing*"]) == 2
    assert "no run matches nothing*" in capsys.readouterr().err


def test_workload_scrape_and_parse_by_themselves(tmp_path):
    """Against any server, with no configuration: what the study does, stage by stage."""
    folder = tmp_path / "runs" / "one"
    metrics = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()
    with fake_server(metrics=metrics, pages={"/version": '{"version": "0.32.0"}'}) as server:
        done = bench(
            "workload", "--num-requests", 12, "--prompt-length", 16, "--output-length", 8, "--model", "m", "--base-url", server.base_url,
            "--output-dir", folder, "--scrape", "--json",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["requests"], told["outcomes"]) == (12, {"ok": 12})
        url = f"{server.base_url}/metrics"
        scraped = bench("scrape", "--url", url, "--interval", 0.05, "--duration", 0.4, "--output-dir", tmp_path / "s", "--json")
        assert scraped.returncode == 0, scraped.stderr
        assert "warning" not in scraped.stderr
        told = json.loads(scraped.stdout)
        assert 2 <= told["scrapes"] <= told["duration_s"] / 0.05 + 2  # one at each end of the slots, and the last
    assert json.loads((folder / "run.json").read_text())["engine_version"] == "0.32.0"
    lines = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    assert len(lines) == 12
    for line in lines:
        assert (line["prompt_tokens"], line["completion_tokens"], line["outcome"]) == (16, 8, "ok")
        assert 0 < line["ttft_s"] < line["e2e_s"]
    done = bench("parse", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] == 12


def test_scrape_says_that_an_endpoint_gives_no_exposition(tmp_path):
    for page, fault in (
        ("<!DOCTYPE html>\n<title>Welcome</title>\n", "line 1, '<!DOCTYPE html>'"),
        ("# HELP a b\n", "there is no sample in it"),
    ):
        with fake_server(metrics=page) as server:
            url = f"{server.base_url}/metrics"
            done = bench("scrape", "--url", url, "--interval", 0.05, "--duration", 0.1, "--output-dir", tmp_path)
        assert done.returncode == 0  # whatever it is, it is kept as it came
        assert f"warning: {url} gives no Prometheus exposition: {fault}" in done.stderr


def test_a_workload_of_which_nothing_came_is_kept_and_fails(tmp_path):
    with fake_server() as server:
        server.refuse = lambda n: (404, {}) if n % 5 else None  # the first request finds out what is accepted
        lengths = ("--prompt-length", 8, "--output-length", 4, "--model", "m")
        for extra in ((), ("--json",)):
            done = bench(
                "workload", "--num-requests", 4, *lengths, "--base-url", server.base_url, "--output-dir", tmp_path, *extra
            )
            assert done.returncode == 1
            assert "http_error" in done.stdout
    assert "replaces the run that was there" in done.stderr
    parsed = json.loads(bench("parse", tmp_path, "--json").stdout)
    assert not parsed["valid"]
    assert (parsed["failed"], parsed["outcome_http_404"]) == (4, 4)
    assert any(
        each.startswith("content.refused: refused for what they are: 4 of 4 requests (4 http_404)")
        for each in parsed["reasons"]
    )


def test_runs_alike_in_all_but_their_load_are_one_curve(tmp_path):
    def named(**given):
        options = workload.Workload(
            **{"base_url": "u", "model": "m", "output_dir": tmp_path, "prompt_length": 8, "output_length": 4, **given}
        )
        return options._definition(*options.asked(), "seed")["workload"]

    few, closed = named(num_requests=2), named(num_requests=2, concurrency=1)
    assert named(num_requests=3) == few and few.startswith("burst_p8_o4_")
    assert named(num_requests=4, concurrency=2) == closed
    others = (named(num_requests=2, output_length=5), named(num_requests=2, set=["endpoint=chat"]))
    assert len({few, closed, *others}) == 4


def test_options_become_a_workload(tmp_path):
    """The rest of a preset's turns stays; the number of requests may be said like any other key."""
    rate, users = {"prompt_length": 8, "request_rate": 5, "num_requests": 2}, {"concurrency": 2, "num_requests": 6}
    for given, known in (
        (rate, ("poisson", None, 5, "request_rate", None)),
        ({**rate, "set": ["arrival=gamma", "burstiness=0.5"]}, ("gamma", 0.5, 5, "request_rate", None)),
        ({**rate, "set": ["arrival=constant"]}, ("constant", None, 5, "request_rate", None)),
        ({**users, "set": ["archetype=chat", "turns.think_s=0"]}, ("closed", None, 2, "users", (4, 0))),
        ({**users, "prompt_length": 8, "set": ["turns.count=3", "turns.new_tokens=5"]}, ("closed", None, 2, "users", (3, 0))),
        (
            {"concurrency": 2, "set": ["archetype=chat", "turns.think_s=1", "num_requests=6"]},
            ("closed", None, 2, "users", (4, 1)),
        ),
    ):
        options = workload.Workload(**{"base_url": "u", "model": "m", "output_dir": tmp_path, **given})
        sent, level = options.asked()
        turns = (sent.turns.count, sent.think_s) if sent.turns else None
        assert (sent.arrival, sent.burstiness, level, sent.axis, turns) == known, given
