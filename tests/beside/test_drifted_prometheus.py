"""`bench drifted` through a real Prometheus that holds planted series."""

import json
import time
from types import SimpleNamespace
from urllib.parse import parse_qsl

import numpy as np
import polars as pl
import pytest

from bench.beside.production.drifted import SAME, Window
from bench.errors import BenchError
from bench.runs.columns import schema_of
from bench.runs.files import write_record
from tests.support.command import bench
from tests.support.fake_server import raw_server
from tests.support.guard import POINT, SLOS
from tests.support.planted import frame, steady_row
from tests.support.production import CASES, HOUR_S, NAMES, WAS, production, study
from tests.support.prometheus import BEGIN, open_metrics, prometheus, samples
from tests.support.records import facts
from tests.support.study import bare_summary


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results with the telemetry of a planted study."""
    folder = tmp_path_factory.mktemp("study") / "results"
    found = study(np.random.default_rng(5), WAS)
    rows = []
    for run in found.runs.iter_rows(named=True):
        (folder / "runs/a" / run["run"]).mkdir(parents=True)
        found.tables[run["run"]].write_parquet(folder / "runs/a" / run["run"] / "telemetry.parquet")
        known = {name: run[name] for name in ("steady_from_s", "steady_until_s", "prompt_tokens", "output_tokens", "session")}
        rows.append(
            steady_row(bare_summary(), run["level"], deployment="a", rps=run["steady_requests_per_s"], preemptions=0, **known)
        )
    for name in ("deployments/a", "analysis"):
        (folder / name).mkdir(parents=True)
    write_record(facts(digest="d1"), folder / "deployments/a/deployment.json")
    frame(rows).write_parquet(folder / "summary.parquet")
    schema = schema_of("capacity")
    pl.DataFrame([{**dict.fromkeys(schema), **POINT, "slos": SLOS}], schema=schema).write_parquet(
        folder / "analysis/capacity.parquet"
    )
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A real Prometheus with an hour of two jobs: as the study was, and with longer answers."""
    tables = [
        production(np.random.default_rng(6), CASES[name][0]).kept.with_columns(labels=pl.col("labels").str.replace('job="a"', f'job="{job}"'))
        for job, name in (("a", "nothing changed"), ("long", "output 25 % longer"))
    ]  # fmt: skip
    late = samples((NAMES["running"], 'job="late",instance="x"', [1, 1])).with_columns(
        at_s=HOUR_S + 10 * pl.int_range(pl.len())
    )
    lines = open_metrics(pl.concat([*tables, late]))
    with prometheus(tmp_path_factory.mktemp("prometheus"), lines) as url:
        yield url


def moment(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN + seconds))


HOUR = ("--last", f"{HOUR_S:.0f}s", "--to", moment(HOUR_S))


def drifted(results, address, *options, hour=HOUR):
    return bench("drifted", results, "--prometheus", address, *hour, *options)


@pytest.mark.long(part="prometheus")
def test_a_real_prometheus_is_read_to_the_last_sample(results, address):
    done = drifted(results, address, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (0, SAME), (done.stderr, found["compared"])
    window = production(np.random.default_rng(6), WAS)
    in_flight = window.kept.filter(pl.col("name").is_in([NAMES["running"], NAMES["waiting"]]))
    held = in_flight.group_by("at_s").agg(pl.col("value").sum()).sort("at_s")
    load = next(each for each in found["compared"] if each["name"] == "requests in flight, a server")
    assert load["production"] == pytest.approx(held["value"][1:].mean(), rel=1e-6)
    assert found["seen"] > 0.98 and found["instances"] == 1 and found["restarts"] == 0
    # Prometheus lists names by blocks of its storage: the series of another hour are there too.
    names = Window(address, {"job": "late"}, BEGIN + HOUR_S, BEGIN + HOUR_S + 60).names()
    assert names == [NAMES["running"]]
    with pytest.raises(BenchError, match="has no series with"):
        Window(address, {"job": "late"}, BEGIN, BEGIN + 60).names()
    with pytest.raises(BenchError, match=r"in this time\. It scraped nothing then: give another time"):
        Window(address, {"job": "late"}, BEGIN - 10 * HOUR_S, BEGIN - 9 * HOUR_S).names()
    done = drifted(results, address, "--label", "job=long")
    assert done.returncode == 1 and "Production differs from what was measured: output length." in " ".join(done.stdout.split())
    done = drifted(results, address, "--label", "job=nobody")
    assert done.returncode == 2 and 'no series with {job="nobody"} in this time. Its jobs are: a, late, long.' in done.stderr


def test_what_prometheus_is_asked_for_and_how_its_answers_are_read(monkeypatch):
    """By hand: every series once, and every sample once."""
    asked, answers = [], {}

    def get(url, timeout_s):
        assert timeout_s > 1
        place, _, query = url.partition("?")
        path, given = place.removeprefix("http://p/api/v1/"), dict(parse_qsl(query))
        asked.append(given)
        text = answers.get(given.get("query", path).split("[")[0], '{"status": "success", "data": {"result": []}}')
        return SimpleNamespace(json=lambda: json.loads(text), status_code=200)

    def says(data):
        return json.dumps({"status": "success", "data": data})

    monkeypatch.setattr("bench.beside.production.drifted.prometheus.http.get", get)
    window = Window("http://p/", {"job": 'a"b'}, 1000.0, 1150.0)
    chosen = r'{job="a\"b"}'
    answers[f"count by (__name__) (last_over_time({chosen}"] = says(
        {"result": [{"metric": {"__name__": name}} for name in "ba"]}
    )
    assert window.names() == ["a", "b"]
    assert [(each["query"].partition("[")[2], each["time"]) for each in asked] == [("150000ms]))", "1150.000")]
    series = {"metric": {"__name__": "a", "job": "j", "instance": "x"}, "values": [[1001.5, "7"], [1003, "8"]]}
    answers[f"a{chosen}"] = says({"result": [series]})
    rows = [("x", at, "a", 'instance="x",job="j"', value) for at, value in ((1.5, 7.0), (3.0, 8.0))]
    assert window.samples(["a", "b"]).select("instance", "at_s", "name", "labels", "value").rows() == rows
    answers.clear()
    answers["label/job/values"] = says([])
    with pytest.raises(BenchError, match="It scraped nothing then: give another time"):
        window.names()
    for text, said in (
        ('{"status": "error", "errorType": "bad", "error": "no"}', "'bad: no'"),
        ("[]", ".status 200, and not what"),
        ("<", ".*and not"),
    ):
        answers[f"b{chosen}"] = text
        with pytest.raises(BenchError, match=f"/api/v1/query: {said}.*Give the address that has /api/v1"):
            window.samples(["b"])


def test_what_the_user_can_fix_is_said(results):
    with raw_server(print) as closed:
        pass
    for options, said in (
        (("--label", "job=a"), "connection refused, or no such host. Give the address of a Prometheus"),
        (("--label", "job"), "--label job: give NAME=VALUE"),
        (("--last", "soon"), "--last soon: give a number above 0 with s, m, h, d or w"),
        (("--to", "noon"), "--to noon: give a date"),
        (("--deployment", "b"), "--deployment b: "),
    ):
        done = drifted(results, f"http://127.0.0.1:{closed}", *options, hour=HOUR if "--last" not in options else HOUR[2:])
        assert done.returncode == 2 and said in done.stderr.replace("\n", " "), options
