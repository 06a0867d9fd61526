"""Runs that are plainly overloaded: which ones the rule stops, and what becomes of them."""

import asyncio
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.findings.capacity.points import operating_points
from bench.findings.comparison.compare import compare
from bench.load import client
from bench.load.client import Load
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.parse.observation import observed
from bench.parse.run import parse_run
from bench.parse.slo import goodput, judged_requests
from bench.parse.table import summary_frame
from bench.parse.validity import stopped as stopped_text
from bench.runs.request_table import read_requests
from bench.runs.run import read_record
from bench.search.placing import Aim, Step, place
from bench.search.search import Budget, Measured, search
from bench.statistics.observation import GROWTH
from bench.study.config import Thresholds
from bench.study.plan import Plan
from bench.study.read import load_config, load_workload
from bench.study.slo import parse_slo
from tests.support import records
from tests.support.auto import searching
from tests.support.compare import TOKENS, runs
from tests.support.fake_server import fake_server
from tests.support.overload import disturbed, judged, queue, shared, stopped
from tests.support.planted import poisson
from tests.support.project import LENIENT

TRUTH = pytest.mark.long(part="truth")
SLO = parse_slo("e2e_p95=60s")  # that nothing exceeds: growth alone decides


def ends(serve, sent):
    return serve(sent)[0]


def of_one(sent, service_s=0.1):
    """The ends at a server that serves one request after the other."""
    return ends(queue(np.full(len(sent), service_s), 1), sent)


# The rule


def test_a_queue_without_end_is_stopped_early():
    count = 3000
    for rate in (16, 20, 30):
        for sent in (np.arange(count) / rate, poisson(rate, count, 1)):
            assert 0.3 * count - 2 * np.sqrt(count) <= stopped(sent, of_one(sent)) <= 0.45 * count, rate


def test_what_will_settle_or_may_is_not_stopped():
    """In flight grow as fast as requests come until the first answer; a burst is followed by fewer; the last minute is not cut off."""
    filling, silent = poisson(10, 1500, 3), np.arange(1000) / 10
    burst = np.concatenate([np.arange(500) / 20, 25 + np.arange(300) / 3])  # 20 a second at first
    late = np.concatenate([np.arange(540) / 9.0, 60 + np.arange(60) / 20])
    for sent, end in (*((filling, filling + latency_s) for latency_s in (5.0, 20.0, 80.0)),
                      (silent, np.full(1000, 500.0)), (burst, of_one(burst)), (late, of_one(late))):  # fmt: skip
        assert stopped(sent, end) is None
    # But what goes on, or is shared by all, where nothing waits and latencies grow.
    on, shares = np.arange(1250) / 20, poisson(20, 2000, 2)
    assert stopped(on, of_one(on)) is not None
    assert stopped(shares, ends(shared(np.full(2000, 0.1)), shares)) <= 1000


def test_a_short_run_is_stopped_after_100_requests_and_ten_seconds_at_the_earliest():
    for rate in (20.0, 4.0):
        sent = np.arange(400) / rate
        sends = stopped(sent, of_one(sent, 2 / rate))
        assert max(100, 10 * rate) <= sends <= 1.3 * max(100, 10 * rate)


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 9), marks=TRUTH)], ids=["one", "many"])
def test_a_load_about_the_capacity_is_not(seeds):
    for seed in seeds:
        work = np.random.default_rng(seed).exponential(0.1, 2000)
        for load in (0.9, 0.97, 1.03):
            sent = poisson(10 * load, 2000, seed)
            assert stopped(sent, ends(queue(work, 1), sent)) is None, (load, seed)
            assert stopped(sent, ends(shared(work), sent)) is None, (load, seed)


def decoding(sent, alone_s, share):
    """Ends at a server whose latency is `alone_s` × (1 + a request's share of n others), `share` of its capacity being used."""
    rate = (len(sent) - 1) / sent[-1]
    each, now, given = share / rate / alone_s, 0.0, [0.0]
    times, inside, found = [0.0], 0, np.zeros(len(sent))
    need, order, i = [], 0, 0
    while order < len(sent):
        speed = 1 / (alone_s * (1 + each * inside))
        leaves = now + (need[order] - given[-1]) / speed if order < i else np.inf
        due = sent[i] if i < len(sent) else np.inf
        moment = min(leaves, due)
        given.append(given[-1] + speed * (moment - now))
        now = moment
        times.append(now)
        if due <= leaves:
            need.append(given[-1] + 1)
            inside, i = inside + 1, i + 1
        else:
            found[order] = now
            inside, order = inside - 1, order + 1
    return found


def test_a_server_that_fills_for_many_latencies_is_not():
    """Each step takes longer for every request in it: at 90 % of the capacity it settles at ten times the first latency."""
    sent = np.arange(1200) / 10
    for share in (0.7, 0.9, 0.97):
        end = decoding(sent, 2.0, share)
        flying = [np.searchsorted(sent, at) - np.searchsorted(end, at) for at in (20, 60, 110)]
        assert flying[0] < flying[1] <= flying[2], share
        assert stopped(sent, end) is None, share
    assert stopped(sent, decoding(sent, 2.0, 1.6)) is not None


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=TRUTH)], ids=["two", "many"])
def test_a_machine_that_stands_still_or_is_slow_for_a_while_is_not_overloaded(seeds):
    for machine in ("stall", "slow start", "drift", "slow spell"):
        for seed in seeds:
            sent = poisson(9, 900, seed)
            serve = disturbed(queue(np.full(900, 0.1), 1), machine, float(sent[-1]), np.random.default_rng(seed))
            end = ends(serve, sent)
            assert machine == "drift" or end.max() < sent[-1] + 20
            assert stopped(sent, end) is None, (machine, seed)


@TRUTH
def test_planted_runs_of_every_kind_have_no_false_stop():
    found = [judged((number, 5)) for number in range(120) if number % 4]  # without engines, whose truth takes long
    plain = [each for each in found if each["why"] == "grows" and each["growth"] > 0.4]
    assert not [each for each in found if each["stopped"] is not None and each["why"] not in ("grows", "short")]
    assert sum(each["stopped"] is not None for each in plain) > len(plain) / 2


# A run that is stopped

# The rule waits for ten seconds; a test need not.
QUICK = "import bench.load.overload as rule; rule._SHORTEST_S = 1.0; from bench.load.__main__ import main; main()"


@pytest.fixture
def server():
    with fake_server(first_s=0.04, gap_s=0.0, slots=asyncio.Semaphore(1)) as running:  # 25 requests/s at most
        yield running


def measured(server, folder, rate, *, requests=300):
    """The run's record and its summary."""
    folder.mkdir()
    content = {"arrival": "constant", "prompt_tokens": 16, "output_tokens": 2, "num_requests": requests}
    workload = load_workload({**content, "stop_overloaded": True}, source="here")
    definition = {
        "deployment": "a",
        "run": f"r{rate}",
        "workload": "w",
        **workload.model_dump(mode="json", exclude_defaults=True),
    }
    header = records.header(definition={**definition, "axis": "request_rate", "level": rate, "repeat": 1, "seed": 0})
    load = Load(workload, rate, f"s{rate}", timeout_s=60.0)
    record_run(Target(server.base_url, "m"), load, folder, header=header, scrape_interval_s=None)
    tables = {name: folder / f"{name}.parquet" for name in ("requests", "telemetry")}
    summary = parse_run(folder, **tables, wide=folder / "metrics.csv", summary=folder / "summary.json")
    return read_record(folder / "run.json"), summary


def test_an_overloaded_run_is_stopped_drained_recorded_and_read_as_one_that_grows(server, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "PROCESS", (sys.executable, "-c", QUICK))
    record, summary = measured(server, tmp_path / "much", 60.0)
    assert record.stopped is not None
    assert (record.stopped.why, record.stopped.planned) == ("overloaded", 300)
    assert 100 <= record.stopped.sent < 250
    assert record.stopped.sent == pytest.approx(60 * record.stopped.at_s, abs=30)  # a busy machine is late
    sent = list(read_requests(tmp_path / "much" / "requests.jsonl"))
    assert [each.index for each in sent] == list(range(record.stopped.sent))
    assert {each.outcome for each in sent} == {"ok"}
    assert len(server.arrivals) == record.stopped.sent
    assert record.duration_s > record.stopped.at_s + 1  # until the last answer
    assert (summary["requests"], summary["ok"], summary["num_requests"]) == (record.stopped.sent, record.stopped.sent, 300)
    assert (summary["steady_why"], summary["steady_needs_s"], summary["stopped_at_s"]) == ("grows", None, record.stopped.at_s)
    assert summary["steady_growth"] > 0.3
    assert stopped_text(summary).startswith(
        f"stopped after {record.stopped.at_s:.0f} s: requests pile up ({record.stopped.sent} of 300"
    )
    few, carried = measured(server, tmp_path / "few", 10.0, requests=40)
    assert few.stopped is None
    assert (carried["stopped_at_s"], carried["num_requests"], carried["steady_why"]) == (None, 40, None)
    rows = [{**each, **goodput(each, judged_requests(each, pl.read_parquet(tmp_path / name / "requests.parquet")), [SLO])}
            for name, each in (("much", summary), ("few", carried))]  # fmt: skip
    frame = summary_frame(rows, {}, {}, Thresholds(**LENIENT))  # other tests run beside it
    assert frame["valid"].to_list() == [True, True]
    point = operating_points(frame, [SLO]).row(0, named=True)
    assert (point["c_max"], point["missed_at"]) == (10.0, 60.0)


def test_a_run_without_the_key_or_of_several_load_processes_is_sent_whole():
    content = {"arrival": "constant", "prompt_tokens": 8, "output_tokens": 2, "num_requests": 40}
    for asked, processes, stops in ((True, 1, [True]), (True, 2, [False, False]), (False, 1, [False])):
        workload = load_workload({**content, "stop_overloaded": asked}, source="here")
        load = Load(workload, 10.0, "s", processes=processes)
        planned = client.schedule(workload, 10.0, "0")
        exchanges = [client.Exchange(each.index, due_s=each.due_s) for each in planned]
        assigned = client._assignments(Target("http://h:1", "m"), load, planned, exchanges)
        assert [each.stop_overloaded for each in assigned] == stops, (asked, processes)


# What a search makes of it


def row(level, growth, *, why, judged=60, **columns):
    requests = [{"ok": True, "ttft": 0.1, "tpot": None, "e2e": 0.5}] * judged
    return {"level": level, "arrival": "poisson", "judged": requests, "requests": judged, "steady_why": why, "steady_from_s": 1.0,
            "steady_growth": growth, "steady_growth_error": 0.02, **columns}  # fmt: skip


def test_a_run_that_was_stopped_is_believed_however_few_it_sent():
    """Else the search would take a load that no limit on a latency misses for one that is carried, and look above it."""
    aim = Aim([SLO], 0.01, held=False, precision=0.1, start=4.0, highest=512.0)
    carried = observed(row(4.0, 0.0, why=None), [SLO], 0.01)
    few = observed(row(8.0, 0.5, why="grows"), [SLO], 0.01)
    assert GROWTH not in few.excesses
    early = observed(row(8.0, 0.5, why="grows", stopped_at_s=12.0), [SLO], 0.01)
    assert early.grows
    assert early.excesses[GROWTH].value > 1
    step = place([carried, early], aim)
    assert isinstance(step, Step)
    assert step.load < 8.0


# The key


def test_searched_runs_of_open_loops_end_early_and_those_measured_whole_stay_known(content, tmp_path):
    config = searching(content)
    closed = Plan.of(load_config(config, source="test"), results=tmp_path).searches[0]
    assert not closed.run(4, 50, 1).workload.stop_overloaded
    config["study"]["ladders"] = [{"deployment": "a", "workload": "w", "request_rate": "auto"}]
    config["workloads"]["w"]["arrival"] = "poisson"
    opened = Plan.of(load_config(config, source="test"), results=tmp_path).searches[0]
    run = opened.run(4.0, 50, 1)
    assert run.definition["stop_overloaded"]
    whole = replace(run, workload=run.workload.model_copy(update={"stop_overloaded": False}))
    assert whole.digest != run.digest
    assert whole.schedule_seed == run.schedule_seed
    assert [opened.measured(each.definition, each.digest) for each in (run, whole)] == [run, whole]


# What others see of it


def test_latencies_are_not_compared_where_both_runs_were_stopped(summary):
    """They show how long each of the two lasted. Of one alone, they show which side is slower."""
    values = {8: [100.0, 101.0, 99.0]}
    sides = [
        runs(summary, values, deployment=name, ttft_p50_s=ttft, stopped_at_s=at)
        for name, ttft, at in (("a", 1.0, 10.0), ("b", 2.0, 20.0))
    ]
    assert set(compare(*sides).effects["metric"]) == {TOKENS}
    assert "ttft_p50_s" in set(compare(*(side.with_columns(stopped_at_s=None) for side in sides)).effects["metric"])
    assert "ttft_p50_s" in set(compare(sides[0].with_columns(stopped_at_s=None), sides[1]).effects["metric"])


def test_a_search_asks_for_no_run_twice_though_fewer_requests_are_sent():
    """The nth run of a load and a number of requests is another one than the first: it is known by what was asked for."""
    asked = []

    def measure(load, requests, time):
        asked.append((load, requests, time))
        found = row(load, 0.4, why="grows", stopped_at_s=12.0)
        return Measured({**found, "steady_growth_error": 0.1, "requests": 120, "num_requests": requests, "duration_s": 9.0})

    aim = Aim([SLO], 0.01, held=True, precision=0.1, start=1.0, highest=512.0)  # below which there is none
    search(aim, Budget(4, 1e9), measure)
    assert len({each[:2] for each in asked}) < len(asked) == len(set(asked))
