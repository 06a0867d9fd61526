"""What guards production by a study: judged by the programs that load it, on planted studies and planted series."""

import json
import re
import shutil
from itertools import pairwise

import numpy as np
import pytest
import yaml
from benchmarks.guard import loads

from bench.guard import FILES
from bench.guard.measured import Measured, Sustained
from bench.study import Slo, parse_slo
from bench.telemetry.reference import reference_samples
from tests.support.command import bench
from tests.support.guard import (
    HAPROXY,
    LLAMA,
    POINT,
    PROMTOOL,
    alerts,
    checked,
    course,
    guarded,
    needs_haproxy,
    needs_promtool,
    study,
)
from tests.support.planted import rate_row
from tests.support.study import ROOT

BELOW = {"kind": "below", "c_max": None, "missed_at": 2.0}
ABOVE = {"kind": "above", "c_max": 24.0, "high": None, "missed_at": None}


def vllm_series(phases):
    """A server's series. Args: phases: minutes, and what there is in each: in flight, waiting, KV usage, slow share, preemptions."""

    def of(key):
        return [(minutes, each[key]) for minutes, each in phases]

    engine = ',engine="0",model_name="m"'
    series = [
        course("vllm:num_requests_running", [(minutes, each["load"] - each["waits"]) for minutes, each in phases], engine),
        course("vllm:num_requests_waiting", of("waits"), engine),
        course("vllm:kv_cache_usage_perc", of("kv"), engine),
        course("vllm:num_preemptions_total", of("preempted"), engine, counter=True),
        course("vllm:prefix_cache_queries_total", [(minutes, 1000) for minutes, _ in phases], engine, counter=True),
        course("vllm:prefix_cache_hits_total", of("hits"), engine, counter=True),
    ]
    families = {
        "vllm:time_to_first_token_seconds": "2.5",
        "vllm:request_time_per_output_token_seconds": "0.05",
        "vllm:e2e_request_latency_seconds": "20.0",
    }
    for family, le in families.items():
        good = [(minutes, 60 * (1 - each["slow"])) for minutes, each in phases]
        series.append(course(f"{family}_bucket", good, f'{engine},le="{le}"', counter=True))
        series.append(course(f"{family}_count", [(minutes, 60) for minutes, _ in phases], engine, counter=True))
    return series


GOOD = {"load": 12, "waits": 0, "kv": 0.35, "slow": 0.01, "preempted": 0, "hits": 500}
ALL = ("LoadNearLimit", "LoadAboveLimit", "Queue", "KvUsage", "Preemptions", "PrefixHits", "BurnFast", "BurnSlow")


def fires(at, names, phases):
    """A test of promtool's: exactly these alerts fire at a minute."""
    asked = [
        {"expr": f'count(ALERTS{{alertstate="firing",alertname="Saturate{name}"}}) > bool 0 or vector(0)', "eval_time": f"{at}m",
         "exp_samples": [{"labels": "{}", "value": float(name in names)}]}
        for name in ALL
    ]  # fmt: skip
    return {"interval": "1m", "input_series": vllm_series(phases), "promql_expr_test": asked}


@needs_promtool
def test_an_hour_of_sustained_load_is_silent_and_each_fault_fires_in_its_time(tmp_path, summary):
    """Alerts' series are of one server, minute by minute: an hour of what the study sustained, then a fault."""
    study(tmp_path, summary, prefix_hit_rate=0.5, prefix_hit_rate_expected=0.5, cache="shared")
    files, printed = guarded(tmp_path)
    assert "Left out" not in printed

    def after(at, names, **fault):
        return fires(20 + at, names, [(20, GOOD), (at + 2, {**GOOD, **fault})])

    at_low = {**GOOD, "load": 14, "kv": 16 / 40, "hits": 480}
    whole = {"load": 30, "waits": 6, "kv": 0.75, "slow": 1.0, "preempted": 3}
    tests = [
        fires(59, (), [(60, GOOD)]),
        fires(59, (), [(60, at_low)]),
        fires(21, (), [(20, GOOD), (2, {**GOOD, **whole})]),  # two bad minutes are no overload yet
        *(fires(at, (), [(20, GOOD), (1, {**GOOD, "load": 40}), (9, GOOD)]) for at in (21, 22, 23)),  # a burst that passes
        after(5, ("LoadNearLimit", "LoadAboveLimit"), load=24),
        after(10, ("LoadNearLimit",), load=16),
        after(4, (), waits=3),
        after(6, ("Queue",), waits=3),
        after(6, ("KvUsage",), kv=0.55),
        after(4, ("Preemptions",), preempted=1),
        after(50, ("PrefixHits",), hits=300),
        after(100, (), slow=0.05),
        after(100, ("BurnSlow",), slow=0.08),  # of the P99, whose budget burns eight times as fast as it may
        after(20, ("BurnFast", "BurnSlow"), slow=1.0),
        after(10, ("LoadNearLimit", "LoadAboveLimit", "Queue", "KvUsage", "Preemptions"), **{**whole, "slow": 0.0}),
    ]
    (tmp_path / "guard/test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    checked(PROMTOOL, "check", "rules", "rules.yaml", cwd=tmp_path / "guard")
    checked(PROMTOOL, "test", "rules", "test.yaml", cwd=tmp_path / "guard")
    for (_, slo), rule in alerts(files).items():
        assert "C_max of short is 16 (" in rule["annotations"]["measured"] and "vLLM 0.32.0" in rule["annotations"]["measured"]
        assert rule["annotations"]["study"] == "d1" and rule["for"]
        assert slo is None or slo in rule["annotations"]["measured"]


@needs_promtool
def test_two_hours_of_a_sustained_load_that_varies_raise_nothing(tmp_path, summary):
    """Twelve in flight in the mean, as many as a Poisson process has, of which some wait for a moment."""
    study(tmp_path, summary)
    guarded(tmp_path)
    random = np.random.default_rng(7)
    drawn = [(1, {**GOOD, "load": load, "waits": min(load, waits)}) for load, waits in zip(random.poisson(12, 480), random.poisson(0.3, 480), strict=True)]  # fmt: skip
    fired = 'count(count_over_time(ALERTS{alertstate="firing"}[2h])) or vector(0)'
    asked = [{"expr": fired, "eval_time": "119m", "exp_samples": [{"labels": "{}", "value": 0}]}]
    test = {"interval": "15s", "input_series": vllm_series(drawn), "promql_expr_test": asked}
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [test]}
    (tmp_path / "guard/test.yaml").write_text(yaml.safe_dump(content))
    checked(PROMTOOL, "test", "rules", "test.yaml", cwd=tmp_path / "guard")


@needs_promtool
def test_every_panel_asks_what_prometheus_reads_and_shows_the_limits(tmp_path, summary):
    study(tmp_path, summary)
    files, _ = guarded(tmp_path)
    board = json.loads(files["dashboard.json"])
    queries = [target["expr"].replace("$job", "a") for panel in board["panels"] for target in panel["targets"]]
    recorded = {
        rule["record"] for group in yaml.safe_load(files["rules.yaml"])["groups"] for rule in group["rules"] if "record" in rule
    }
    assert {query.split("{")[0] for query in queries} <= recorded
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked(PROMTOOL, "check", "rules", "panels.yaml", cwd=tmp_path)
    lines = {
        panel["title"]: [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        for panel in board["panels"]
    }
    assert lines["Requests in flight, by server"] == [None, 14, 16]
    assert lines["KV-cache usage"] == [None, 0.4]
    assert lines["TTFT, quantiles (TTFT P95 ≤ 2 s)"] == [None, 2]
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in board["panels"]]
    assert all(before < after for before, after in pairwise(places))


@needs_promtool
def test_a_rate_is_what_ends_and_what_piles_up(tmp_path, summary):
    """Of 4 requests/s that come 3 end each second: the rest is in flight a minute later."""
    rate = {"axis": "request_rate", "unit": "requests/s", "c_max": 3.0, "low": 2.5, "operate_at": 3.0, "usable_rps": 3.0}
    study(tmp_path, summary, point=rate, row=rate_row, levels=(1, 2, 3, 4), exposed=(3,))
    files, _ = guarded(tmp_path)
    assert alerts(files)["SaturateLoadAboveLimit", None]["expr"] == 'saturate:requests:rate5m{job="a"} > 3'
    series = [
        course("vllm:num_requests_running", [(60, 5)]) | {"values": "5+60x60"},
        course("vllm:num_requests_waiting", [(61, 0)]),
        course("vllm:e2e_request_latency_seconds_count", [(61, 180)], counter=True),
    ]
    asked = [{"expr": 'round(saturate:requests:rate5m{job="a"}, 0.01)', "eval_time": "30m", "exp_samples": [{"labels": '{job="a",instance="x"}', "value": 4}]}]  # fmt: skip
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]}  # fmt: skip
    (tmp_path / "guard/test.yaml").write_text(yaml.safe_dump(test))
    checked(PROMTOOL, "test", "rules", "test.yaml", cwd=tmp_path / "guard")


@needs_promtool
@pytest.mark.parametrize(
    ("exposition", "shown"),
    [
        (LLAMA, {"llamacpp:requests_deferred"}),
        ("vllm-0.8.5", {"vllm:gpu_cache_usage_perc", "vllm:time_to_first_token_seconds_bucket"}),
        ("sglang-0.5.23", {"sglang:num_queue_reqs", "sglang:e2e_request_latency_seconds_bucket"}),
        ("tgi-3.3.7", {"tgi_queue_size"}),
    ],
)
def test_rules_have_the_names_that_the_measured_server_exposes(tmp_path, summary, exposition, shown):
    study(tmp_path, summary, exposition=exposition, exposed=(16,))
    files, _ = guarded(tmp_path)
    checked(PROMTOOL, "check", "rules", "rules.yaml", cwd=tmp_path / "guard")
    (group,) = yaml.safe_load(files["rules.yaml"])["groups"]
    named = {name for rule in group["rules"] for name in re.findall(r"([a-z][a-z_0-9:]+)\{", rule["expr"])}
    exposed = {sample.name for sample in reference_samples((ROOT / f"tests/data/{exposition}.prom").read_text())}
    assert shown <= named <= exposed | {rule.get("record") for rule in group["rules"]}


def test_tpot_is_found_under_the_names_of_those_who_pass_metrics_on(tmp_path, summary):
    """Ray's sums of histograms are estimates, so that TTFT and E2E have no name there; TPOT is read by its buckets alone."""
    for spelt, others in (("vllm_", {"ttft", "e2e"}), ("ray_vllm_", set())):
        place = tmp_path / spelt
        place.mkdir()
        study(place, summary, spelt=spelt)
        files, printed = guarded(place)
        slos = {slo.split()[0].lower() for _, slo in alerts(files) if slo}
        assert slos == {"tpot", *others}
        assert f"{spelt}request_time_per_output_token_seconds_bucket" in files["rules.yaml"]
        assert ("the results show no histogram of that latency" in printed) == (not others)


@needs_haproxy
def test_haproxy_takes_its_backend(tmp_path, summary):
    study(tmp_path, summary)
    files, _ = guarded(tmp_path)
    assert (
        "maxconn 16\n" in files["haproxy.cfg"]
        and "timeout queue 2000ms  # at most as long as the SLO on TTFT, prefill not counted\n" in files["haproxy.cfg"]
    )
    front = "frontend all\n    mode http\n    timeout client 10m\n    bind 127.0.0.1:9\n    default_backend a\n"
    (tmp_path / "guard/main.cfg").write_text(front)
    checked(HAPROXY, "-c", "-dW", "-f", "main.cfg", "-f", "haproxy.cfg", cwd=tmp_path / "guard")  # no warnings either


def test_admission_and_scaling_follow_the_limit(tmp_path, summary):
    study(tmp_path, summary)
    files, _ = guarded(tmp_path)
    assert set(files) == set(FILES)
    (threshold,) = yaml.safe_load(files["envoy.yaml"])["circuit_breakers"]["thresholds"]
    # At 16 in flight 32 requests/s come: of more than 64, the last one waits longer than the SLO's 2 s.
    assert threshold == {"priority": "DEFAULT", "max_connections": 16, "max_requests": 16, "max_pending_requests": 64}
    scaled = yaml.safe_load(files["keda.yaml"])
    (trigger,) = scaled["spec"]["triggers"]
    assert (scaled["kind"], trigger["type"], trigger["metricType"]) == ("ScaledObject", "prometheus", "AverageValue")
    assert trigger["metadata"]["query"] == 'sum(saturate:requests_in_flight{job="a"})'
    assert float(trigger["metadata"]["threshold"]) == 11.2  # of 14


@pytest.mark.parametrize(
    ("change", "lost", "why"),
    [
        ({"exposition": LLAMA}, {"KvUsage", "Preemptions", "BurnFast", "BurnSlow"}, "does not show its KV usage"),
        ({"exposed": ()}, {*ALL}, "no sustained run of a has telemetry of a known engine"),
        ({"point": ABOVE}, {"LoadNearLimit", "LoadAboveLimit"}, "its limit is not known; C_max is 24 or more"),
        (
            {"point": {"low": None}},
            {"LoadNearLimit", "LoadAboveLimit"},
            "No alert on the load: the lower end of C_max's interval is not established.",
        ),
        (
            {"point": {"low": 0.0}},
            {"LoadNearLimit", "LoadAboveLimit"},
            "No alert on the load: the lower end of C_max's interval is 0,",
        ),
        ({"point": {"low": 18.0}}, {"LoadNearLimit"}, "its interval begins no lower"),
        ({"point": {"unit": "users"}}, {"LoadNearLimit", "LoadAboveLimit"}, "no server counts users"),
        ({"kv": 16}, {"KvUsage"}, "sustained runs filled the cache"),
        ({"preemptions": 2}, {"Preemptions"}, "sustained runs had 8 preemptions"),
        ({"preemptions": None}, {"Preemptions"}, "No alert on preemptions"),
        ({"steady_from_s": None}, {"Queue", "KvUsage"}, "no sustained run has a steady window that shows"),
        ({"exposed": (2, 4, 8)}, {"Queue", "KvUsage"}, "No alert on KV usage"),  # the highest load's would be exceeded
        ({"slos": ["ttft_p95=9999s"]}, {"BurnFast", "BurnSlow"}, "has no bucket of 9999 s or more"),
        ({"point": {"slos": ["TTFT P99 of chat ≤ 2 s"]}}, {"BurnFast", "BurnSlow"}, "does not tell classes of requests apart"),
    ],
)
def test_what_is_not_known_makes_no_rule_and_says_so(tmp_path, summary, change, lost, why):
    study(tmp_path, summary, **change)
    files, printed = guarded(tmp_path)
    there = {name.removeprefix("Saturate") for name, _ in alerts(files)} if "rules.yaml" in files else set()
    assert there == set(ALL) - {"PrefixHits"} - lost
    assert why in printed
    limited = dict(change.get("point", ()))
    assert ("keda.yaml" in files) == ("LoadAboveLimit" not in lost)
    admits = limited.get("kind") != "above" and bool(limited.get("low", 1))
    assert [("haproxy.cfg" in files), ("envoy.yaml" in files)] == [admits, admits]


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({"point": BELOW}, (), "there is nothing to guard by"),
        ({"lost_at_s": 3.0}, (), "short kills a worker in each run, so that its C_max is not what all of them sustain."),
        ({"point": {"basis": "burst"}}, (), "no capacity of a load that goes on"),
        (
            {"others": [{"deployment": "b"}, {"deployment": "c", **BELOW}]},
            (),
            "it has 2 curves, and one server is guarded by one workload. Name both: --deployment a --workload short; "
            "--deployment b --workload short.",
        ),
        ({}, ("--deployment", "b"), "--deployment b: results has the capacity of: a"),
        ({}, ("--workload", "b"), "--workload b: results has the capacity of: short"),
        ({}, ("nowhere",), "nowhere: it has no summary.parquet"),
    ],
)
def test_what_cannot_be_guarded_is_refused(tmp_path, summary, change, options, said):
    study(tmp_path, summary, **change)
    done = bench("guard", *options, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr


def test_a_curve_that_shows_nothing_to_guard_by_is_not_meant(tmp_path, summary):
    study(tmp_path, summary, others=[{"workload": "long", **BELOW}])
    files, _ = guarded(tmp_path)
    assert "C_max of short is 16" in files["rules.yaml"]


def test_another_study_leaves_no_limits_of_the_last_one(tmp_path, summary):
    study(tmp_path, summary)
    guarded(tmp_path)
    shutil.rmtree(tmp_path / "results")
    study(tmp_path, summary, point=ABOVE)
    files, _ = guarded(tmp_path)
    assert set(files) == {"rules.yaml", "dashboard.json"}


def test_the_benchmark_sends_what_the_study_established():
    def of(**point):
        return loads(Measured(point={**POINT, **point}, sustained=Sustained(1)))

    assert (of(), of(low=None), of(low=18.0)) == ((14, 32), (16, 32), (16, 32))
    with pytest.raises(SystemExit, match="is 0: no load is established"):
        of(low=0.0)
    with pytest.raises(SystemExit, match="counted in requests/s"):
        of(unit="requests/s")


@pytest.mark.parametrize("slo", [Slo("ttft", "p99", 2.0), Slo("tpot", "p90", 0.0525), Slo("e2e", "p50", 12.5)])
def test_an_slo_is_read_as_it_is_printed(slo):
    assert parse_slo(str(slo)) == slo
