"""Several engines behind a router, measured as one: sums that are whole or not known, and what sets a worker apart, by its name."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.findings.capacity.points import operating_points
from bench.findings.workers import Efficiency, efficiencies, efficiency, sentences, worker_rows
from bench.parse.fleet import FLEET, fleet_telemetry, worker_verdicts, workers_of_runs
from bench.parse.scrapes import scrape_tables
from bench.parse.server import server_figures
from bench.parse.table import summary_frame
from bench.parse.validity import reason_text, verdict
from bench.runs.run import DECODE, PREFILL, Worker
from bench.study.config import Thresholds
from bench.study.slo import Slo
from tests.support.fleets import PREFILLS_S, SERVES_S, Disaggregated, Fleet
from tests.support.planted import steady_row, summary_row, summary_rows
from tests.support.study import METRICS, ROOT

THRESHOLDS = Thresholds()


def apart(fleet, folder):
    """The run's summary, and what sets its workers apart, as (worker's number, check)."""
    summary = fleet.parsed(folder)
    found = worker_verdicts(summary["workers"], THRESHOLDS.scrape_gap_s)
    return summary, [(fleet.names.index(each.worker), each.check) for each in found]


def judged(summary, *parts):
    """The run's verdict, and the reasons that speak against these parts of it."""
    found = verdict(summary, THRESHOLDS)
    return found, [each for each in found.found if each.part in parts]


def in_turn(_, i):
    return i % 2


def test_a_fleets_numbers_are_the_sums_of_its_workers(tmp_path):
    sizes = {0: 10000, 1: 20000, 2: 10000}
    fleet = Fleet(workers=3, router=lambda _, i: i % 3, usage={0: 0.9, 1: 0.3, 2: 0.0}, kv_tokens=sizes)
    summary, found = apart(fleet, tmp_path)
    hits = sum(4 * (i + 1) * (fleet.at == i).sum() for i in range(3))
    told = {
        "server_generation_tokens": fleet.tokens.sum(), "server_prompt_tokens": 16 * fleet.requests,
        "running_peak": 20,  # 10 requests/s of 2 s each
        "kv_usage_peak": pytest.approx(0.375),  # 9,000 and 6,000 of 40,000 tokens; the mean of the shares would be 0.4
        "prefix_hit_rate": pytest.approx(hits / (16 * fleet.requests)), "metrics_missing": [], "counters_fell": [],
        "scrape_endpoint": FLEET,
    }  # fmt: skip
    assert {name: summary[name] for name in told} == told
    assert (found, judged(summary, "telemetry")[1]) == ([], [])
    each = {row["worker"]: row for row in summary["workers"]}
    for i, name in enumerate(fleet.names):
        served = ((fleet.at == i).sum(), fleet.tokens[fleet.at == i].sum(), pytest.approx(fleet.usage[i]),
                  pytest.approx((i + 1) / 4))  # fmt: skip
        columns = ("requests", "generation_tokens", "kv_usage_mean", "prefix_hit_rate")
        assert tuple(each[name][column] for column in columns) == served, name
    drawn = pl.read_parquet(tmp_path / "telemetry").filter(endpoint=FLEET)
    assert drawn["scrape"].n_unique() == summary["scrapes"]


def test_what_one_worker_lacks_is_no_smaller_sum(tmp_path):
    # Of caches of unknown size the usage of all is not known.
    summary, _ = apart(Fleet(router=in_turn, kv_tokens={0: None}), tmp_path)
    assert summary["kv_usage_peak"] is None
    assert [row["kv_usage_peak"] for row in summary["workers"]] == [0.25, 0.25]
    assert summary["server_generation_tokens"] is not None
    summary, _ = apart(Fleet(router=in_turn, lacks={1: "server_generation_tokens"}), tmp_path)
    assert summary["server_generation_tokens"] is None
    assert summary["server_prompt_tokens"] is not None
    (missing,) = summary["metrics_missing"]
    assert "10.0.0.2" in missing
    assert "generation_tokens" in missing
    # Two engines of 5,000 tokens each: 4,500 and 500 of 20,000 tokens, beside 2,500 of the other worker.
    summary, _ = apart(Fleet(router=in_turn, usage={0: (0.9, 0.1)}, kv_tokens={0: 10000, 1: 10000}), tmp_path)
    assert summary["kv_usage_peak"] == pytest.approx(0.375)
    assert [row["kv_usage_peak"] for row in summary["workers"]] == [0.9, 0.25]  # of a worker the fullest engine's


def test_each_way_to_be_apart_is_found_and_named_alone(tmp_path):
    for i, (planted, expected) in enumerate((
        ({}, []),
        ({"silent": {1: (8.0, 20.0)}}, [(1, "silent")]),
        ({"silent": {0: (-1.0, 99.0)}}, [(0, "silent")]),
        ({"restarts": {1: 10.0}}, [(1, "restarted")]),
        ({"restarts": {0: 10.0}, "start_times": False}, [(0, "restarted")]),
        ({"versions": {1: "0.30.0"}}, [(1, "version")]),
        ({"versions": {1: None}}, []),  # not known is not different
    )):  # fmt: skip
        fleet = Fleet(**{"router": in_turn, **planted})
        (folder := tmp_path / str(i)).mkdir()
        summary, found = apart(fleet, folder)
        # Of a worker that is silent to the end, or started again, it is not known what it served.
        assert found == expected, planted
        _, told = judged(summary, "telemetry")
        if {check for _, check in expected} & {"silent", "restarted"}:
            assert {each.check for each in told} <= {"worker_silent", "worker_restarted", "metrics_missing"}, planted
            of_worker = next(each for each in told if each.check.startswith("worker_"))
            assert fleet.names[expected[0][0]] in reason_text(of_worker), planted
        else:
            assert not told, planted  # a note


def test_a_fleet_without_any_scrape_is_parsed_and_its_workers_are_silent(tmp_path):
    summary, found = apart(Fleet(router=in_turn, scraped=False), tmp_path)
    assert found == [(0, "silent"), (1, "silent")]
    assert summary["server_generation_tokens"] is None


def test_what_vllm_s_workers_counted_of_thirty_requests_is_summed_by_role():
    """Recorded of two servers of vLLM's CPU build with ExampleConnector behind vLLM's router, which got 30 prompts of 390 tokens."""
    scrapes, samples = scrape_tables(ROOT / "tests/data/vllm-0.32.0-disaggregated.jsonl.gz", 0.0)
    workers = [
        Worker(name=role, endpoint=f"http://{role}:8000/metrics", role=role, kv_blocks=128, block_size=32, kv_tokens=4096)
        for role in (PREFILL, DECODE)
    ]
    together, arrived = fleet_telemetry(samples, scrapes, workers)
    found = server_figures(together, scraped=True, version="0.32.0")
    assert len(arrived) == 3
    assert (found["server_prompt_tokens"], found["server_generation_tokens"]) == (11_700, 666)
    assert (found["prefix_queries"], found["prefix_hits"], found["preemptions"]) == (11_700, 0, 0)
    assert (found["running_peak"], found["waiting_peak"], found["counters_fell"]) == (4, None, [])
    prefill, decode = (server_figures(samples.filter(endpoint=each.endpoint), scraped=True) for each in workers)
    assert found["kv_usage_peak"] == decode["kv_usage_peak"] > 0
    for name in ("server_ttft", "server_e2e", "server_queue_time"):
        assert found[f"{name}_mean_s"] == pytest.approx(prefill[f"{name}_mean_s"] + decode[f"{name}_mean_s"])
    assert found["server_itl_mean_s"] == decode["server_itl_mean_s"]
    # Without roles each counts twice.
    both, _ = fleet_telemetry(samples, scrapes, [replace(worker, role=None) for worker in workers])
    twice = server_figures(both, scraped=True)
    assert (twice["server_prompt_tokens"], twice["server_generation_tokens"]) == (23_400, 696)


def test_sums_by_role_count_each_request_once(tmp_path):
    for workers in (2, 4):
        fleet = Disaggregated(workers=workers, prefill=workers // 2, router=lambda _, i, workers=workers: i % workers)
        (folder := tmp_path / str(workers)).mkdir()
        summary, found = apart(fleet, folder)
        n = fleet.requests
        told = {
            "server_prompt_tokens": 16 * n, "server_generation_tokens": fleet.tokens.sum(), "preemptions": 3 * n,
            "prefix_hit_rate": pytest.approx(0.25),  # of the prefill workers
            "running_peak": 14,  # 10 requests/s of 1.4 s each
            "kv_usage_peak": pytest.approx(0.25), "server_ttft_mean_s": pytest.approx(PREFILLS_S + 0.1),
            "server_e2e_mean_s": pytest.approx(SERVES_S), "server_in_flight_mean": None, "held_back_share": None,
            # Requests that wait for a KV cache count as waiting, so that a queue does not show at which stage it stands.
            **dict.fromkeys(("waiting_peak", "waiting_standing", "kv_usage_queued", "steady_waiting", "steady_queued_share")),
            "prefix_hit_rate_expected": None,  # and so no verdict on hits
        }  # fmt: skip
        assert {name: summary[name] for name in told} == told, workers
        known = {(row["role"], row["kv_usage_mean"], row["running_mean"] is None) for row in summary["workers"]}
        assert known == {("prefill", None, True), ("decode", 0.25, False)}, workers
        assert (found, judged(summary, "telemetry", "content")[1]) == ([], []), workers


def test_several_processes_of_a_worker_are_no_restart(tmp_path, monkeypatch):
    """They began at different times."""
    begun = 'process_start_time_seconds{pid="1"} 1000.0\nprocess_start_time_seconds{pid="2"} 1010.0'
    told = Fleet.exposition
    monkeypatch.setattr(Fleet, "exposition", lambda *of: told(*of).replace("process_start_time_seconds 1000.0", begun))
    summary, found = apart(Fleet(router=in_turn), tmp_path)
    assert (found, [row["restarts"] for row in summary["workers"]]) == ([], [0, 0])


def test_restarts_are_counted_by_the_sums_of_counters(tmp_path, monkeypatch):
    """A sum fell twice; and a label set that counted nothing goes away, which is no restart."""
    told = Fleet.exposition
    name = METRICS["preemptions"]

    def exposed(fleet, worker, at):
        falls, goes = f"{name} {5 if at < 8 else 4 if at < 12 else 2}", f'{name}{{a="1"}} 0' if at < 10 else ""
        return told(fleet, worker, at).replace(f"{name} 0", f'{goes}\n{name}{{a="2"}} 3' if worker else falls)

    monkeypatch.setattr(Fleet, "exposition", exposed)
    summary, found = apart(Fleet(router=in_turn, start_times=False), tmp_path)
    assert (found, [row["restarts"] for row in summary["workers"]]) == ([(0, "restarted")], [2, 0])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A balanced run, and one whose second worker got more and is of another version."""
    rows = []
    for number, planted in enumerate(
        ({"router": in_turn}, {"router": lambda rng, _: int(rng.random() < 0.8), "versions": {1: "0.30.0"}})
    ):
        folder = tmp_path_factory.mktemp(f"run{number}")
        summary = Fleet(**planted).parsed(folder)
        rows.append({**json.loads((folder / "summary").read_text()), "run": f"r{number}", "level": 10.0 + number})
        assert summary["ok"] == 200
    return summary_frame(rows, {}, {}, THRESHOLDS)


def test_the_report_names_each_worker_and_those_that_differ(runs, tmp_path):
    assert len(worker_rows(runs)) == 4
    (apart,) = workers_of_runs(runs, 1.0).values()
    assert "http://10.0.0.2:8000 runs version 0.30.0, the others 0.32.0." in sentences(apart)
    assert sentences({"r": []}) == []
    # A single worker is no matter of balance.
    alone = runs.with_columns(pl.col("workers").list.head(1))
    assert worker_rows(alone) == []
    # Shares are those of a role.
    Disaggregated(workers=4, prefill=2, router=lambda _, i: i % 4).parsed(tmp_path)
    runs = summary_frame([{**json.loads((tmp_path / "summary").read_text()), "run": "r"}], {}, {}, THRESHOLDS)
    assert [round(row["requests_share"], 2) for row in worker_rows(runs)] == [0.5] * 4


# What a fleet sustains against as many times what one replica does

SLO = Slo("ttft", "p90", 1.0)
LEVELS = [2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32]


def curve(deployment, limit, replicas, random, levels=LEVELS, **settings):
    """Runs of a closed loop of which 10 % of the requests are late at `limit`, more above it and fewer below."""
    row = summary_row(
        deployment=deployment, workload="w", family="w", model="m", engine="e", axis="concurrency", repeat=1, turns=1, valid=True,
        counts_valid=True, telemetry_valid=True, replicas=replicas, max_num_seqs=8,
        **{"router": "haproxy" if replicas > 1 else None, **settings},
    )  # fmt: skip
    runs = []
    for repeat in (1, 2):
        for level in levels:
            speed = random.normal(0.0, 0.03)  # of a run
            late = 0.1 * np.exp(6.0 * (np.log(level / limit) + speed))
            slow = int(random.binomial(400, min(0.95, late)))
            runs.append({**steady_row(row, level, slow=slow), "repeat": repeat, "run": f"{deployment}-{level}-{repeat}"})
    return runs


def made(seed, *, true=0.9, one=9.0, replicas=2, levels=LEVELS):
    random = np.random.default_rng(seed)
    rows = curve("one", one, 1, random) + curve("two", true * replicas * one, replicas, random, levels=levels)
    return summary_rows(rows)


def test_the_interval_holds_the_planted_efficiency():
    for seed in range(2):
        (found,) = efficiencies(made(seed), [SLO])
        assert found.low < 0.9 < found.high < found.low + 0.5, seed


@pytest.mark.long(part="truth")
def test_the_interval_holds_the_planted_efficiency_as_often_as_it_says():
    found = [efficiencies(made(seed), [SLO])[0] for seed in range(20)]
    held = [each.low is not None and each.high is not None and each.low <= 0.9 <= each.high for each in found]
    assert sum(held) >= 17  # of 20 at 95 %: fewer have a probability of 1.6 %
    assert np.median([each.value for each in found]) == pytest.approx(0.9, abs=0.05)
    assert np.median([each.high - each.low for each in found]) < 0.4


def test_a_fleet_that_no_load_limits_has_a_lower_end_alone():
    (found,) = efficiencies(made(1, levels=[2, 4, 6, 8]), [SLO])
    assert found.value is None
    assert found.high is None
    for each, said in (
        (found, "at least" if found.low else "not known"),
        (Efficiency("w", "two", "one", 2, 0.93, 0.85, 1.01), "93 % (85 % to 101 %) of 2 times what one sustains."),
        (Efficiency("w", "two", "one", 2, None, None, None), "not known"),
    ):
        assert said in efficiency(each), each


def of_two_classes(row, missing):
    """The run with two classes of requests; Args: missing: which of its answers have no TTFT, by class and load."""
    names = ("chat", "batch")
    judged = [{**each, "request_class": names[i % 2]} for i, each in enumerate(row["judged"])]
    judged = [{**each, "ttft": None} if missing(each["request_class"], row["level"]) else each for each in judged]
    return {**row, "classes": json.dumps({name: {} for name in names}), "judged": judged}


def test_of_a_class_whose_latency_was_not_measured_nothing_is_said():
    """As C_max of the same runs: there is none where an SLO cannot be judged."""
    for missing, known in (
        (lambda name, load: name == "batch", True),  # noqa: ARG005
        (lambda name, load: name == "chat", False),  # noqa: ARG005
        (lambda name, load: name == "chat" and load == 8, False),
    ):
        rows = [of_two_classes(row, missing) for row in made(2).to_dicts()]
        slo = replace(SLO, request_class="chat")
        (found,) = efficiencies(summary_rows(rows), [slo])
        assert (found.low is not None) == known, missing
        assert (set(operating_points(summary_rows(rows), [slo])["kind"]) == {"unjudged"}) != known, missing


def test_only_what_differs_in_nothing_else_is_compared():
    random = np.random.default_rng(0)
    rows = curve("one", 9.0, 1, random, prefix_caching=True) + curve("two", 16.0, 2, random, prefix_caching=False)
    assert efficiencies(summary_rows(rows), [SLO]) == []
    assert efficiencies(summary_rows(curve("two", 16.0, 2, random)), [SLO]) == []
    # A fleet is held against one replica behind its own router.
    random = np.random.default_rng(0)
    alone = [
        curve(name, 9.0, 1, random, router=router) for name, router in (("bare", None), ("h", "haproxy"), ("v", "vllm-router"))
    ]
    fleets = [curve(f"two-{router}", 16.0, 2, random, router=router) for router in ("vllm-router", "haproxy", "sglang-router")]
    runs = [row for rows in (*alone, *fleets) for row in rows]
    assert {each.fleet: each.one for each in efficiencies(summary_rows(runs), [SLO])} == {
        "two-vllm-router": "v", "two-haproxy": "h", "two-sglang-router": "h",
    }  # fmt: skip
