"""The commands as a user runs them."""

import copy
import json
import re
import shutil
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
from bench.workloads.schedule import at_least_s, schedule
from bench.workloads.workload import Workload
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


def measured(run):
    run.record.parent.mkdir(parents=True, exist_ok=True)
    run.record.write_text(json.dumps({"digest": run.digest}))


def test_runs_lists_each_with_its_state(study, capsys):
    """A run counts as measured once it has a record of its definition, whatever became of its session."""
    first, second, third = study.runs
    measured(first)
    measured(replace(second, seed=99))  # of another definition
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


@pytest.mark.usefixtures("study")
def test_runs_says_what_cannot_be_measured(content, capsys):
    for path, value, said in (
        (("deployments", "a", "kv_cache_memory"), "1KiB", "kv_cache_memory, 1 KiB, holds 0 tokens at"),
        (("deployments", "a", "kv_cache_memory"), "900000GiB", "Lower kv_cache_memory"),
        (("models", "m", "architecture", "hidden_size"), 10**12, "models.m: config.json: hidden_size is 1000000000000"),
    ):
        *above, key = path
        changed = copy.deepcopy(content)
        entry = changed
        for part in above:
            entry = entry[part]
        entry[key] = value
        Path("config/config.yaml").write_text(yaml.safe_dump(changed))
        assert main(["runs"]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Cannot be measured here: ")]
        assert said in line


@pytest.mark.usefixtures("study")
def test_searches_that_have_not_ended_are_to_be_measured_beside_runs(content, capsys):
    def left():
        main(["runs"])
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("To measure", "missing"))]

    auto = {"workload": "long", "concurrency": "auto"}
    content["workloads"]["long"] = {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": "auto"}
    content["deployments"] |= dict.fromkeys(("b", "c"), content["deployments"]["a"])
    content["study"]["ladders"] = [{"deployment": name, **auto} for name in ("b", "c")]
    content["study"]["ladders"] += [{"deployment": "a", "workload": "short", "concurrency": [1, 2]}]
    content["decision"] = {"slo": ["ttft_p90=500ms"]}
    Path("config/config.yaml").write_text(yaml.safe_dump(content))
    plan = Plan.of(load_config(content, source="test"))
    assert left() == [
        *(f"missing  {each.key}" for each in (*plan.runs, *plan.searches)),
        "To measure: 2 runs and 2 searches, 3 starts of a server, a time that the first runs will tell. How long a search takes is "
        "not known ahead, and not in this.",
    ]
    search, other = plan.searches
    answer = searched(name=search.name, workload="long", digest=search.digest)
    spec = plan.deployments["b"]
    file = Path(Paths.SEARCHES.format(deployment="b"))
    file.parent.mkdir(parents=True)
    write_record(DeploymentSearches(deployment="b", digest=spec.digest, searches=(answer,)), file)
    for run in plan.runs:
        measured(run)
    assert left() == [
        f"missing   {other.key}",
        "To measure: 1 search, 1 start of a server. How long a search takes is not known ahead.",
    ]
    (line, *_) = measuring_lines(plan, Store().holds, unended_searches(plan, Store()))
    assert "to measure: 1 search of " in line


@pytest.mark.usefixtures("study")
def test_a_search_whose_runs_are_all_invalid_is_listed_as_invalid(content, capsys):
    auto = {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": "auto"}
    content["workloads"]["long"] = auto
    content["study"]["ladders"] = [
        {"deployment": "a", "workload": name, "concurrency": load} for name, load in (("long", "auto"), ("short", [1]))
    ]
    content["decision"] = {"slo": ["ttft_p90=500ms"]}
    Path("config/config.yaml").write_text(yaml.safe_dump(content))
    plan = Plan.of(load_config(content, source="test"))
    (search,), (spec,) = plan.searches, plan.runs
    measured(spec)
    run = SearchedRun(level=1.0, requests=1, repeat=1, digest=spec.digest, excess={})
    answer = searched(name=search.name, workload="long", digest=search.digest, runs=(run,))
    file = Path(Paths.SEARCHES.format(deployment="a"))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_record(DeploymentSearches(deployment="a", digest=plan.deployments["a"].digest, searches=(answer,)), file)
    verdict = {
        "digest": [run.digest],
        "faults": [["machine"]],
        "reasons": [["machine.other_processes value=0.7 limit=0.15"]],
        "failed": [0],
        "requests": [1],
        "duration_s": [1.0],
    }
    pl.DataFrame(verdict).write_parquet(Paths.SUMMARY)
    main(["runs"])
    assert f"invalid  {search.key}" in capsys.readouterr().out


def judged(runs, *rows):
    """Write the summary of a study. Args: rows: what is said of each run."""
    base = {"faults": [], "reasons": [], "failed": 0, "requests": 4, "duration_s": 1.0, "outcome_http_503": None}
    given = [
        {**base, "digest": run if isinstance(run, str) else run.digest, **row} for run, row in zip(runs, rows, strict=True)
    ]
    lists = dict.fromkeys(("faults", "reasons"), pl.List(pl.String))
    pl.DataFrame(given, schema_overrides={**lists, "outcome_http_503": pl.Int64}).write_parquet("results/summary.parquet")


LATE = {"faults": ["client"], "reasons": ["client.loop_lag value=0.2 limit=0.1"]}


def test_an_invalid_run_is_listed_with_its_reason(study, capsys):
    def listed():
        main(["runs"])
        return capsys.readouterr().out

    run = study.runs[0]
    measured(run)
    judged([run], LATE)
    late = "client: the client's event loop was late: P99 0.2 s, over 0.1 s"
    assert listed().splitlines()[1] == f"invalid  {run.key}  {late}"
    judged([run], {"faults": ["machine"], "reasons": ["machine.other_processes value=0.42 limit=0.15"]})
    fix = "If they cannot be ended, `thresholds: { other_share: 0.45 }`"
    assert f"Note: Other processes took up to 42 % of the cores' time. {fix}" in listed()
    measured(study.runs[1])
    unscraped = {"faults": ["telemetry"], "reasons": ["telemetry.never_scraped"]}
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
    assert "Note: 1 of the measured runs has no verdict: results/summary.parquet is of another study" in capsys.readouterr().out
    assert main(["runs", "--discard", "invalid"]) == 2
    assert "The command that measured this study judges them" in capsys.readouterr().err
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


def test_workload_against_a_server_without_metrics(tmp_path):
    with fake_server() as server:
        done = bench("workload", "--num-requests", 4, "--prompt-length", 8, "--output-length", 4, "--concurrency", 2, "--model", "m",
                     "--base-url", server.base_url + "/v1", "--output-dir", tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "4 requests in" in done.stdout
    assert server.peak == 2
    parsed = bench("parse", tmp_path)
    assert parsed.returncode == 0
    assert "s (an estimate: n = 4 carries no 99 % bound)" in parsed.stdout
    assert re.search(r"latency, throughput +(valid|invalid)\n", parsed.stdout)  # a busy machine is no fault of the code
    assert "UserWarning" not in parsed.stderr
    record = json.loads((tmp_path / "run.json").read_text())
    record["host"]["other_share"] = 0.6
    (tmp_path / "run.json").write_text(json.dumps(record))
    disturbed = bench("parse", tmp_path).stdout
    assert "other processes took 60 %" in disturbed and "`--threshold other_share=0.6` lets such runs count" in disturbed
    assert "other processes" not in bench("parse", tmp_path, "--threshold", "other_share=0.7").stdout
    before = sorted(path.name for path in tmp_path.iterdir())
    failed = bench("workload", "--num-requests", 1, "--prompt-length", 1, "--model", "m", "--base-url", "http://127.0.0.1:9",
                   "--output-dir", tmp_path)  # fmt: skip
    assert failed.returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before  # a mistyped address costs no results


def test_a_run_has_the_verdict_of_the_thresholds_with_which_it_was_taken(tmp_path, capsys, monkeypatch):
    """In every command; options of a command's own hold in their place."""
    one, other = tmp_path / "one", tmp_path / "other"
    lenient = ("--threshold", "other_share=1", "--threshold", "loop_lag_p99_s=9")
    with fake_server() as server:
        done = bench("workload", "--num-requests", 2, "--prompt-length", 8, "--output-length", 4, "--model", "m", "--base-url",
                     f"{server.base_url}/v1", "--output-dir", one, *lenient)  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads((one / "run.json").read_text())
    record["host"]["other_share"] = 0.6
    (one / "run.json").write_text(json.dumps(record))
    shutil.copytree(one, other)
    (other / "thresholds.json").unlink()
    invalid = "other processes took 60 %"
    for folder, options, said in ((one, (), False), (one, ("--threshold", "other_share=0.5"), True), (other, (), True)):
        capsys.readouterr()
        assert main(["parse", str(folder), *options]) == 0
        out = capsys.readouterr().out
        assert (invalid in out, "other_share=1, loop_lag_p99_s=9, as the run was taken" in out) == (
            said,
            folder == one and not options,
        )
    monkeypatch.setattr("bench.findings.registry.draw_figure", lambda name, *_, **__: [tmp_path / f"{name}.svg"])
    figures = ["figures", "--output-dir", str(tmp_path / "drawn"), "--figure", "ttft"]
    assert main([*figures, str(one)]) == 0
    reasons = pl.read_parquet(tmp_path / "drawn/summary.parquet")["reasons"].to_list()
    assert not any("other_processes" in reason for reason in reasons[0])
    capsys.readouterr()
    assert main([*figures, str(tmp_path)]) == 2
    assert "had different thresholds. `.venv/bin/bench figures` with --threshold judges them alike." in capsys.readouterr().err
    capsys.readouterr()
    assert main([*figures, str(tmp_path), *lenient, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [f"{tmp_path}/ttft.svg"]


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
    assert "content.refused value=4 limit=4 outcome_http_404=4" in parsed["reasons"]


def test_runs_alike_in_all_but_their_load_are_one_curve(tmp_path):
    def named(**given):
        options = workload.Workload(
            **{"base_url": "u", "model": "m", "output_dir": tmp_path, "prompt_length": 8, "output_length": 4, **given}
        )
        content, level = options._workload()
        return options._definition(options.checked(content), level, "seed")["workload"]

    few, closed = named(num_requests=2), named(num_requests=2, concurrency=1)
    assert named(num_requests=3) == few and few.startswith("burst_p8_o4_")
    assert named(num_requests=4, concurrency=2) == closed
    others = (named(num_requests=2, output_length=5), named(num_requests=2, set=["endpoint=chat"]))
    assert len({few, closed, *others}) == 4


def test_a_load_that_takes_its_time_says_so():
    turns = {"count": 3, "new_tokens": 2, "think_s": 45}
    load = Workload.model_validate({"arrival": "burst", "prompt_tokens": 8, "output_tokens": 4, "turns": turns})
    assert at_least_s(schedule(load, 2, "seed")) == 90


RATE, TRACE, COUNT = ("--request-rate", 5), ("--set", "trace=t.csv"), ("--num-requests", 2)
LENGTH = ("--prompt-length", 8)


def test_options_that_would_be_ignored_or_cannot_be_are_refused(tmp_path, capsys):
    cases = [
        ((*COUNT, *LENGTH, "--set", "cache=shared", "--set", "shared_prefix=1.5"), "shared_prefix is 1.5: it should be less than 1."),
        ((*COUNT, *LENGTH, "--set", "endpoint"), "--set endpoint: it is KEY=VALUE, such as endpoint=chat"),
        ((*COUNT, *LENGTH, "--set", "body={a: [}"), "--set body={a: [}: its value is not YAML"),
        ((*COUNT, *LENGTH, "--set", "turns.count=["), "--set turns.count=[: its value is not YAML"),
        ((*COUNT, *LENGTH, "--set", "turns.=3"), "--set turns.=3: it is KEY=VALUE"),
        ((*LENGTH, "--concurrency", 3, "--set", "num_requests=ten"), "num_requests is 'ten'"),
        ((*LENGTH, "--set", "num_requests=auto"), "--num-requests is missing"),
        ((*LENGTH, "--concurrency", 3), "--num-requests is missing"),
        ((*TRACE, "--concurrency", 3), "--concurrency: arrival trace holds no number of requests in flight"),
        ((*COUNT, *LENGTH, *RATE, "--set", "arrival=burst"), "--request-rate: arrival burst has no rate"),
        ((*COUNT, *LENGTH, "--set", "arrival=[burst]"), "is not sent here. Known: burst, closed, constant, poisson, gamma, trace."),
        ((*COUNT, *LENGTH, "--set", "endpiont=chat"), "endpiont is not a key. Did you mean endpoint?"),
        ((*COUNT, *LENGTH, *RATE, "--set", "burstiness=0.5"), "burstiness belongs to arrival gamma, and arrival is poisson; remove it"),
        ((*COUNT, *LENGTH, *RATE, "--duration", 5), "both num_requests and duration_s are given; keep one"),
        ((*LENGTH, *RATE), "--num-requests or --duration is missing"),
        ((*COUNT, *LENGTH, "--duration", 60), "duration_s belongs to arrival constant, poisson, gamma, and arrival is burst; remove it"),
        ((*COUNT, *LENGTH, "--set", "arrival=poisson"), "--request-rate is missing: requests a second of arrival poisson"),
        ((*COUNT, *LENGTH, "--set", "time_scale=2"), "--set time_scale: for a trace only"),
        ((*COUNT, *LENGTH, "--set", "trace_unit=ms"), "trace_unit belongs to arrival trace"),
        ((*COUNT, *LENGTH, "--set", "timeout_s=0"), "--set timeout_s=0: it has to be a number above 0"),
        ((*COUNT, *LENGTH, "--set", "timeout_s=nan"), "--set timeout_s=nan: it has to be a number above 0"),
        ((*COUNT, *LENGTH, "--scrape-also", "http://h"), "--scrape-also: without --scrape nothing is scraped"),
        ((*COUNT, *LENGTH, *RATE, "--concurrency", 2), "--concurrency and --request-rate: each is a load of its own"),
        ((*COUNT, *LENGTH, "--concurrency", 3), "--concurrency is 3, and --num-requests 2"),
        ((*COUNT, "--set", "archetype=chat", "--concurrency", 3), "--concurrency is 3, and --num-requests 2"),
        ((*LENGTH,), "--num-requests is missing"),
        ((*COUNT,), "--prompt-length is missing"),
        ((*TRACE, *COUNT), "num_requests belongs to arrival closed, constant, poisson, gamma, and arrival is trace"),
        ((*TRACE, *LENGTH, "--output-length", 3), "a trace has its own lengths; remove prompt_tokens and output_tokens"),
        ((*TRACE, "--set", "archetype=chat"), "t.csv: no such trace"),  # its lengths and turns are the preset's, nobody gave them
        ((*COUNT, *LENGTH, "--base-url", "http://h:99999"), "--base-url: 'http://h:99999' is no address (Port out of range"),
        ((*COUNT, *LENGTH, "--base-url", "http://a..b"), "--base-url: 'http://a..b' is no address"),
    ]  # fmt: skip
    for options, message in cases:
        given = ("workload", "--model", "m", "--base-url", "http://127.0.0.1:9", "--output-dir", tmp_path / "d", *options)
        assert main(list(map(str, given))) == 2, options
        assert message in capsys.readouterr().err, options
        assert not list((tmp_path / "d").glob("*")), options


def test_options_of_an_open_loop_become_its_workload(monkeypatch):
    given = []

    def keep(options):
        given.append(options)

    monkeypatch.setattr(workload.Workload, "run", keep)

    def arrival(*options):
        common = ("workload", "--model", "m", "--base-url", "u", "--output-dir", "d", *LENGTH, *RATE, *COUNT)
        assert main([*map(str, common), *map(str, options)]) == 0
        content, level = given.pop()._workload()
        return content["arrival"], content.get("burstiness"), level

    assert arrival() == ("poisson", None, 5.0)
    assert arrival("--set", "arrival=gamma", "--set", "burstiness=0.5") == ("gamma", 0.5, 5.0)
    assert arrival("--set", "arrival=constant") == ("constant", None, 5.0)


def test_users_are_held_in_conversations(tmp_path):
    options = workload.Workload(
        base_url="u", model="m", output_dir=tmp_path, set=["archetype=chat"], num_requests=6, concurrency=2
    )
    content, level = options._workload()
    assert (content["arrival"], level, options.checked(content).axis) == ("closed", 2, "users")
    options = workload.Workload(
        base_url="u", model="m", output_dir=tmp_path, prompt_length=8, num_requests=6, concurrency=2,
        set=["turns.count=3", "turns.new_tokens=5", "turns.think_s=0"],
    )  # fmt: skip
    sent = options.checked(options._workload()[0])
    assert (sent.turns.count, sent.think_s, sent.axis) == (3, 0, "users")
    # The rest of a preset's turns stays; the number of requests may be said like any other key.
    options = workload.Workload(
        base_url="u", model="m", output_dir=tmp_path, concurrency=2, set=["archetype=chat", "turns.think_s=1", "num_requests=6"]
    )
    sent = options.checked(options._workload()[0])
    assert (sent.arrival, sent.turns.count, sent.think_s) == ("closed", 4, 1)


def test_what_the_user_can_mend_is_one_line_and_status_2(tmp_path):
    cases = [
            (("workload", "--num-requests", 0, "--prompt-length", 1, "--model", "m", "--base-url", "http://x", "--output-dir", "d"), "--num-requests: '0' is not a whole number of 1 or more"),
            (("workload", "--workload", ROOT / "config/studies/quick.yaml", "--model", "m", "--base-url", "http://x", "--output-dir", "d"),
             "quick.yaml: this is a study's file, with `study` and `decision`, and --workload takes a single workload. Copy what stands below"),
            (("workload", "--num-requests", 1, "--prompt-length", 1, "--model", "m", "--base-url", "x:8000", "--output-dir", "d"), "'x:8000' is no address; write http://"),
            (("workload", "--num-requests", 1, "--prompt-length", 1, "--model", "m", "--base-url", "http://127.0.0.1:9", "--output-dir", "d"), "does not answer a request"),
            (("runs", "--configfile", "none.yaml"), "none.yaml: no such file"),
            (("parse", "none"), "run.json: no such file"),
            (("parse", "none", "--threshold", "others=1"), "--threshold others=1: give NAME=VALUE with one of loop_lag_p99_s, "),
            (("figures", "none", "--output-dir", "d", "--threshold", "other_share=2"), "--threshold other_share=2: Input should be less"),
            (("figures", "none", "--output-dir", "d"), "no summary.json"),
            (("figures", ".", "--output-dir", "d", "--figure", "pie"), "'pie' is no figure. There are: tuning, comparison"),
        ]  # fmt: skip
    for arguments, message in cases:
        done = bench(*arguments, cwd=tmp_path)
        assert done.returncode == 2, arguments
        assert message in done.stderr, arguments
        assert "Traceback" not in done.stderr, arguments


def test_plan_without_arguments_prints_the_catalogue_and_the_fewest_gpus(capsys):
    assert main(["plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["model", "parameters"] and lines[21] == ""
    assert lines[2].split() == ["gpt2-xl", "1.56", "B", "MHA", "48", "25/25", "1,024", "307,200", "2.90", "mit"]
    assert lines[22].startswith("fewest GPUs that hold one request of 128 + 512 tokens")
