"""`bench drifted` through a real Prometheus that holds planted series."""

import json
import time

import numpy as np
import polars as pl
import pytest

from bench.drifted import SAME, Window
from bench.errors import BenchError
from bench.records.columns import schema_of
from bench.records.files import write_record
from tests.support.cluster import until
from tests.support.command import bench
from tests.support.fake_server import raw_server
from tests.support.guard import POINT, SLOS
from tests.support.planted import frame, steady_row
from tests.support.production import CONFIG, HOUR_S, NAMES, WAS, production, study
from tests.support.prometheus import BEGIN, PROMETHEUS, prometheus
from tests.support.records import facts
from tests.support.study import ROOT, bare_summary


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
    write_record(facts(digest="d1", cache_config=CONFIG), folder / "deployments/a/deployment.json")
    frame(rows).write_parquet(folder / "summary.parquet")
    schema = schema_of("capacity")
    pl.DataFrame([{**dict.fromkeys(schema), **POINT, "slos": SLOS}], schema=schema).write_parquet(
        folder / "analysis/capacity.parquet"
    )
    return folder


def moment(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN + seconds))


HOUR = ("--from", moment(0), "--to", moment(HOUR_S))


def drifted(results, address, *options, hour=HOUR):
    return bench("drifted", results, "--prometheus", address, *hour, *options)


def test_a_real_prometheus_is_read_to_the_last_sample(results, address):
    done = drifted(results, address, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (0, SAME), (done.stderr, found["compared"])
    window = production(np.random.default_rng(6), WAS)
    held = (
        window.kept.filter(pl.col("name").is_in([NAMES["running"], NAMES["waiting"]]))
        .group_by("at_s")
        .agg(pl.col("value").sum())
    )
    load = next(each for each in found["compared"] if each["name"] == "requests in flight, a server")
    assert load["production"] == pytest.approx(held.sort("at_s")["value"][1:].mean(), rel=1e-6)
    assert found["seen"] > 0.98 and found["instances"] == 1 and found["restarts"] == 0


def test_names_are_those_of_the_time(address):
    """Prometheus lists names by blocks of its storage: the series of another hour are there too."""
    names = Window(address, {"job": "late"}, BEGIN + HOUR_S, BEGIN + HOUR_S + 60).names()
    assert names == [NAMES["running"]]
    with pytest.raises(BenchError, match="has no series with"):
        Window(address, {"job": "late"}, BEGIN, BEGIN + 60).names()
    with pytest.raises(BenchError, match=r"in this time\. It scraped nothing then: give another time"):
        Window(address, {"job": "late"}, BEGIN - 10 * HOUR_S, BEGIN - 9 * HOUR_S).names()


def test_longer_answers_are_named_and_what_to_do(results, address):
    done = drifted(results, address, "--label", "job=long")
    assert done.returncode == 1
    words = " ".join(done.stdout.split())
    assert "Production differs from what was measured: output length." in words
    assert "Measure a workload of production's lengths (output length 12" in words


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--label", "job=nobody"), 'it has no series with {job="nobody"} in this time. Its jobs are: a, late, long.'),
        (("--label", "job"), "--label job: give NAME=VALUE"),
        (("--last", "soon"), "--last soon: give a number above 0 with s, m, h, d or w"),
        (("--to", "2020-01-01"), "--from is not before --to"),
        (("--to", "noon"), "--to noon: give a date"),
        (("--deployment", "b"), "--deployment b: "),
    ],
)
def test_what_the_user_can_fix_is_said(results, address, options, said):
    done = drifted(results, address, *options, hour=HOUR if "--last" not in options else HOUR[2:])
    assert done.returncode == 2 and said in done.stderr.replace("\n", " ")


def test_an_address_without_prometheus_is_named(results, address):
    done = drifted(results, f"{address}/graph")
    assert done.returncode == 2 and "Give the address that has /api/v1" in done.stderr


class Running:
    """vLLM's own exposition, whose counters rise by the second, and from 0 again once its process is another one."""

    def __init__(self):
        self.begun, self.scrapes = time.time(), 0
        self.text = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()

    def __call__(self, connection):
        connection.recv(65536)
        self.scrapes += 1
        now = time.time() - self.begun
        planted = {
            "vllm:num_requests_running{": 3,
            "vllm:prompt_tokens_total{": 640 * now,
            "vllm:generation_tokens_total{": 320 * now,
            "vllm:e2e_request_latency_seconds_count{": 10 * now,
            "process_start_time_seconds ": self.begun,
        }
        lines = [
            next((f"{line.rpartition(' ')[0]} {value}" for name, value in planted.items() if line.startswith(name)), line)
            for line in self.text.splitlines()
        ]
        body = ("\n".join(lines) + "\n").encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)


@pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed: apt-get install prometheus")
def test_vllm_as_prometheus_scrapes_it_is_read_across_a_restart(results, tmp_path):
    """Its process is another one between two scrapes of the same series: what was counted across that is left out, and said."""
    server = Running()
    with raw_server(server) as port:
        target = {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}], "job_name": "live", "scrape_interval": "250ms"}
        with prometheus(tmp_path, scrape=[{**target, "scrape_timeout": "250ms"}]) as url:
            begin = time.time()
            until(lambda: server.scrapes >= 10, "ten scrapes")
            server.begun = time.time()
            until(lambda: server.scrapes >= 20, "ten scrapes of the next process")
            hour = [time.strftime("%FT%TZ", time.gmtime(at)) for at in (begin - 1, time.time() + 1)]
            done = drifted(results, url, "--label", "job=live", "--json", hour=("--from", hour[0], "--to", hour[1]))
    found = json.loads(done.stdout)
    known = {each["name"]: each["production"] for each in found["compared"]}
    assert (found["instances"], found["restarts"]) == (1, 1), done.stdout
    assert known["requests in flight, a server"] == pytest.approx(3)
    assert known["prompt length"] == pytest.approx(64, rel=0.02), known
    assert known["output length"] == pytest.approx(32, rel=0.02), known
