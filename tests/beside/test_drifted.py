"""Production beside a study, on planted servers."""

import json
import math
import re
import time
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import parse_qsl

import numpy as np
import polars as pl
import pytest
from requests import Response

from bench.beside.production.drifted import DIFFERS, SAME, UNKNOWN, advice, compared_version, find_drift
from bench.beside.production.drifted.served import Window, served
from bench.beside.production.drifted.studied import Line, Ratio, ratio
from bench.errors import BenchError
from bench.servers.metrics import find_catalogue
from bench.statistics.textbook import student_t
from tests.support import guard
from tests.support.command import bench
from tests.support.planted import steady_row
from tests.support.production import CASES, HOUR_S, LLAMA, NAMES, WAS, production, study, tried
from tests.support.prometheus import BEGIN, open_metrics, prometheus, samples
from tests.support.study import bare_summary


def judged(name, seed):
    """What differs, of which nothing may but what was planted, and the verdict on the whole."""
    verdicts, whole = tried(name, seed)
    differing = {each for each, verdict in verdicts.items() if verdict == DIFFERS}
    assert differing <= (CASES[name][1] or set()), (name, seed)
    assert (whole == DIFFERS) == bool(differing), (name, seed)
    return differing, whole


def test_what_is_planted_is_found_and_nothing_else():
    for name, whole in (
        ("nothing changed, no TTFT, ITL or hits", SAME),
        ("nothing changed, 20 % and ten minutes of scrapes missing, a restart", SAME),
        ("hit rate 0.45 in place of 0.30", DIFFERS),
        ("slower by a third, scrapes missing, a restart", DIFFERS),
        ("another version: a metric of an older one", DIFFERS),
        ("output 25 % longer, llama.cpp", DIFFERS),
    ):
        assert judged(name, 0)[1] == whole, name


@pytest.mark.long(part="truth")
def test_what_is_planted_is_found_in_any_case():
    """Changes that are too small for an hour, or too far from what was measured, may be not known; nothing else is missed."""
    faint = {"slower by a fifth"}
    missed, known = set(), set()
    for name, (_, wanted) in CASES.items():
        for seed in (0, 1):
            differing, whole = judged(name, seed)
            missed |= {name} if wanted and not differing else set()
            known |= {name} if whole == SAME else set()
    assert missed <= faint
    assert len(known) >= 5


def found_of(seed, *, was=WAS, **now):
    random = np.random.default_rng(seed)
    return find_drift(study(random, was), production(random, replace(was, **now)))


def verdict_of(found, name):
    return next(each for each in found.compared if each.name.startswith(name))


LLAMA_WAS = replace(WAS, names=LLAMA)
NOT_KNOWN = [  # seed, the study, what production differs in, a quantity and why it is not known, and those that are the same
    # Near the limit half of the time lies beyond the measured loads, where only ITL is known.
    (1, WAS, {"rate": 5.0}, "E2E", "that were measured", ("prompt", "output", "ITL")),
    # A queue of requests that come at random is another than that of a load that is held: TTFT is longer at the same load.
    (2, WAS, {"rate": 4.2}, "TTFT", r"requests waited in \d+ % of it", ("E2E",)),
    (0, LLAMA_WAS, {"prompt": 400.0, "output": 200.0, "rate": 1.0}, "prompt", "production does not show it", ()),
    (3, WAS, {"idle": 1.0}, "output", "requests in 0 of 12 parts of the time", ()),
    (3, WAS, {"idle": 0.95}, "output", "of 12 parts of the time; it takes 4", ()),
    (1, WAS, {"rate": 6.5}, "TTFT", "that were measured", ()),
    (2, WAS, {"output": 125.0}, "E2E", "the study measured it with another output length", ()),
]


def test_what_is_not_known_is_said_with_the_reason():
    for seed, was, now, name, why, same in NOT_KNOWN:
        found = found_of(seed, was=was, **now)
        assert verdict_of(found, name).verdict == UNKNOWN and re.search(why, verdict_of(found, name).why), (now, name)
        assert [verdict_of(found, each).verdict for each in same] == [SAME] * len(same), now
        assert found.verdict != SAME or name == "TTFT", now  # which is a part of E2E
    assert not list(advice(found_of(3, idle=1.0)))


def test_a_slower_server_is_no_other_traffic():
    assert list(advice(found_of(2, slow=1.6))) == [
        "Traffic does not explain the speed: look at the machine, then measure the study again."
    ]


def test_spare_servers_hide_nothing():
    """Nine idle servers beside one: neither its load nor the doubt about its start gets less."""
    random = np.random.default_rng(10)
    curve, window = study(random, WAS), production(random, WAS)
    alone = find_drift(curve, window)
    assert alone.verdict == SAME and list(advice(alone)) == ["There is no need to measure again."]
    kept = window.kept
    spare = [
        kept.with_columns(
            instance=pl.lit(f"i{i}"), labels=pl.col("labels").str.replace('instance="x"', f'instance="i{i}"'),
            value=0.0,
        )
        for i in range(9)
    ]  # fmt: skip
    object.__setattr__(window, "kept", pl.concat([kept, *spare]))
    found = find_drift(curve, window)
    assert found.instances == 10
    for one, other in zip(alone.compared, found.compared, strict=True):
        assert one.verdict == other.verdict
        if one.low is not None:
            assert (other.production, other.low, other.high) == pytest.approx((one.production, one.low, one.high), rel=1e-6)


def test_lengths_need_no_gauges():
    gauges = pl.col("name").is_in([NAMES["running"], NAMES["waiting"]])
    for change in (
        lambda kept: kept.filter(pl.col("name") != NAMES["waiting"]),
        lambda kept: kept.with_columns(value=pl.when(gauges).then(0.0).otherwise("value")),
    ):
        found = find_drift(*changed_window(10, change))
        assert verdict_of(found, "E2E").verdict == UNKNOWN and "beside the requests in flight" in verdict_of(found, "E2E").why
        assert (found.verdict, verdict_of(found, "output").verdict) == (UNKNOWN, SAME)


def test_a_curve_between_levels_is_straight_and_errors_of_levels_partly_cancel():
    line = Line(np.array([1.0, 2, 3]), np.array([1.0, 4, 9]), np.zeros(3))
    assert line.at(np.array([0.5, 1.5, 2.5, 4.0])).tolist() == [1, 2.5, 6.5, 9]
    two = Line(np.array([1.0, 2]), np.array([1.0, 4]), np.array([0.03, 0.04]))
    assert two.error(np.array([1.0, 2]), np.ones(2)) == pytest.approx(0.025)


def test_the_error_of_a_ratio_is_of_blocks_or_of_pairs_of_them():
    """By hand: twelve blocks of 10, one off each; where neighbours are alike, six pairs that are two off have the wider error."""
    below, signs = np.full(12, 10.0), np.resize([1, -1], 12)
    assert ratio(below + signs, below) == Ratio(1.0, pytest.approx(math.sqrt(12 * 12 / 11) / 120), 11)
    assert ratio(below + np.repeat(signs[:6], 2), below) == Ratio(1.0, pytest.approx(math.sqrt(24 * 6 / 5) / 120), 5)
    assert ratio(np.ones(5), np.array([1.0, 1, 0, 0, 1])) is None


@pytest.mark.long(part="truth")
def test_intervals_of_correlated_blocks_hold_the_truth():
    """Two minutes are alike by exp(−1/3): blocks of five minutes still are."""
    random, keep, held = np.random.default_rng(4), math.exp(-1 / 3), 0
    for _ in range(400):
        noise = random.normal(size=60)
        for i in range(1, 60):
            noise[i] = keep * noise[i - 1] + math.sqrt(1 - keep**2) * noise[i]
        counts = random.poisson(100, 60).astype(float)
        above = (counts * (1 + 0.1 * noise)).reshape(12, 5).sum(axis=1)
        found = ratio(above, counts.reshape(12, 5).sum(axis=1))
        held += abs(found.value - 1) <= student_t(int(found.freedom)) * found.error
    assert held >= 0.92 * 400


GAUGES_ONE = [(name, "", [1, 1, 1, 1]) for name in (NAMES["running"], NAMES["waiting"])]


def counted(*series):
    found = samples(*series)
    return served(found, find_catalogue(found["name"].unique().to_list()))


def test_what_is_counted_between_two_scrapes():
    """Nothing across a restart or missing scrapes; ranks that share requests count once, and a late series from its first scrape."""
    tokens = ("vllm:generation_tokens_total", "", [0, 10, 20, None, None, 90, 100, 5, 15])
    gauges = [
        (name, "", [2 if value is not None else None for value in tokens[2]]) for name in (NAMES["running"], NAMES["waiting"])
    ]
    found = counted(tokens, *gauges)
    assert found["output"].to_list() == [10, 10, 10, 10]
    assert found["in_flight"].drop_nulls().to_list() == [4] * 4
    ranks = [("sglang:generation_tokens_total", f'tp_rank="{rank}"', [0, 10, 20]) for rank in (0, 1)]
    gauges = [(name, "", [1, 1, 1]) for name in ("sglang:num_running_reqs", "sglang:num_queue_reqs")]
    assert counted(*ranks, *gauges)["output"].to_list() == [10, 10]
    # A label that is added in mid-time: what was counted since the start of the server is not one interval's.
    counted_so_far = [(NAMES["output"], "", [1000, 1010, None, None]), (NAMES["output"], 'team="a"', [None, None, 1020, 1030])]
    found = counted(*counted_so_far, *GAUGES_ONE)
    assert found["output"].to_list() == [10, 0, 10]
    names = ("num_running_reqs", "num_queue_reqs", "prompt_tokens_total", "generation_tokens_total")
    known = samples(*((f"sglang:{name}", "", [0, 10, 20]) for name in names))
    found = served(known, find_catalogue(known["name"].unique().to_list(), "0.5.9"))
    assert found.select("hits", "queries").rows() == [(0, 10), (0, 10)]
    series = {"prompt": [0, 10, 20, 30], "output": [0, 5, 10, 15], "hits": [0, 0, 0, 0], "queries": [0, 0, 0, 0]}
    found = counted(*((NAMES[ours], "", values) for ours, values in series.items()), *GAUGES_ONE)
    assert found.select("hits", "queries").rows() == [(0, 10)] * 3
    found = counted(
        *((name, "", [0, value, 2 * value]) for name, value in zip(LLAMA.values(), (1, 0, 30, 70, 20), strict=True))
    )
    assert found.select("prompt", "hits", "queries", "output").rows() == [(100, 70, 100, 20)] * 2
    assert found["requests"].null_count() == 2


def changed_window(seed, change):
    random = np.random.default_rng(seed)
    curve, window = study(random, WAS), production(random, WAS)
    object.__setattr__(window, "kept", change(window.kept))
    return curve, window


def test_a_single_scrape_is_refused():
    with pytest.raises(BenchError, match="no server has two scrapes in this time"):
        find_drift(*changed_window(10, lambda kept: kept.filter(pl.col("at_s") == pl.col("at_s").min())))


def test_servers_may_follow_each_other():
    def rolled(kept):
        after = pl.col("at_s") > HOUR_S / 2
        return kept.with_columns(instance=pl.when(after).then(pl.lit("y")).otherwise(pl.lit("x")))

    found = find_drift(*changed_window(10, rolled))
    assert found.instances == 2


def test_another_server_is_named():
    before = sorted(NAMES.values())
    for seen, verdict, said in (
        (before, UNKNOWN, "no name among its metrics"),
        ([*before, "vllm:gpu_cache_usage_perc"], DIFFERS, "gpu_cache_usage_perc, which vLLM 0.32.0 does not have"),
        ([*before, "vllm:new_total", "up", "python_info"], UNKNOWN, ""),
        ([*before, "vllm:gpu_cache_usage_perc:rate5m"], UNKNOWN, ""),
        (["sglang:num_running_reqs", "sglang:num_queue_reqs"], DIFFERS, "another engine"),
    ):
        found = compared_version("0.32.0", before, seen)
        assert found.verdict == verdict and said in found.why, seen
    # Which parts of a metric are exposed is its client's matter.
    had = [*before, "vllm:gpu_cache_usage_perc_total"]
    assert compared_version("0.32.0", had, [*before, "vllm:gpu_cache_usage_perc_created"]).verdict == UNKNOWN


# Through a real Prometheus that holds planted series


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results with the telemetry of a planted study."""
    folder, found = tmp_path_factory.mktemp("study"), study(np.random.default_rng(5), WAS)
    runs = {run["level"]: run for run in found.runs.iter_rows(named=True)}
    names = ("steady_from_s", "steady_until_s", "prompt_tokens", "output_tokens", "session")

    def row(summary, level, **more):
        own = {name: runs[level][name] for name in names}
        return steady_row(summary, level, rps=runs[level]["steady_requests_per_s"], **own, **more)

    levels = [int(level) for level in runs]
    guard.study(
        folder, bare_summary(), levels=levels, exposed=levels, row=row, scraped=lambda _, level, *__: found.tables[f"r{level}"]
    )
    return folder / "results"


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


def drifted(results, address, *options):
    return bench("drifted", results, "--prometheus", address, *HOUR, *options)


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
    assert found["instances"] == 1
    # Prometheus lists names by blocks of its storage: the series of another hour are there too.
    names = Window(address, {"job": "late"}, BEGIN + HOUR_S, BEGIN + HOUR_S + 60).names()
    assert names == [NAMES["running"]]
    with pytest.raises(BenchError, match="has no series with"):
        Window(address, {"job": "late"}, BEGIN, BEGIN + 60).names()
    done = drifted(results, address, "--label", "job=long")
    assert done.returncode == 1 and "Production differs from what was measured: output length." in " ".join(done.stdout.split())
    done = drifted(results, address, "--label", "job=nobody")
    assert done.returncode == 2 and 'no series with {job="nobody"} in this time. Its /targets' in done.stderr


def test_what_prometheus_is_asked_for_and_how_its_answers_are_read(monkeypatch):
    """By hand: every series once, and every sample once."""
    asked, answers = [], {}

    def get(url, timeout_s):
        assert timeout_s > 1
        place, _, query = url.partition("?")
        path, given = place.removeprefix("http://p/api/v1/"), dict(parse_qsl(query))
        asked.append(given)
        text = answers.get(given.get("query", path).split("[")[0], '{"status": "success", "data": {"result": []}}')
        return SimpleNamespace(
            json=lambda: Response.json(SimpleNamespace(encoding="", content="", text=text)), status_code=200, text=text
        )

    def says(data):
        return json.dumps({"status": "success", "data": data})

    monkeypatch.setattr("bench.http.get", get)
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
    with pytest.raises(BenchError, match="give the label"):
        window.names()
    for text, said in (
        ('{"status": "error", "errorType": "bad", "error": "no"}', "/api/v1/query: .*bad"),
        ("[]", "/api/v1/query: "),
        ("<", "/api/v1/query: status 200, '<'"),
    ):
        answers[f"b{chosen}"] = text
        with pytest.raises(BenchError, match=f"{said}.*Give the address that has /api/v1"):
            window.samples(["b"])
