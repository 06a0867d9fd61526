"""What guards production by a study: the limits of a server, and what is left out where one is not known."""

import json
import re
import shutil
from itertools import pairwise

import numpy as np
import pytest
import yaml

from bench.beside.production.curve import read_curve
from bench.beside.production.drifted.studied import read_studied
from bench.beside.production.guard import FILES
from bench.parse.exposition import reference_samples
from tests.support import snapshots
from tests.support.command import bench
from tests.support.guard import LLAMA, alerts, checked, course, fleet, guarded, study
from tests.support.planted import rate_row
from tests.support.study import ROOT

BELOW = {"kind": "below", "c_max": None, "missed_at": 2.0}
ABOVE = {"kind": "above", "c_max": 24.0, "high": None, "missed_at": None}
RATE = {"axis": "request_rate", "unit": "requests/s", "c_max": 3.0, "low": 2.5, "operate_at": 3.0, "usable_rps": 3.0}
SHARED = {"prefix_hit_rate": 0.5, "prefix_hit_rate_expected": 0.5, "cache": "shared"}
SINGLE = {"LoadNearLimit", "LoadAboveLimit", "Queue", "KvUsage", "Preemptions", "Slow"}


def names_of(files):
    return {name.removeprefix("Saturate") for name, _ in alerts(files)} if "rules.yaml" in files else set()


def limits_of(files):
    """By panel."""
    panels = json.loads(files["dashboard.json"])["panels"]
    return {
        each["title"]: [step["value"] for step in each["fieldConfig"]["defaults"]["thresholds"]["steps"]] for each in panels
    }


def test_rules_of_a_server(tmp_path, summary):
    """Each rule as promtool's tests judged it; the queries of every panel are on what is recorded."""
    study(tmp_path, summary, **SHARED)
    files, printed = guarded(tmp_path)
    assert "Left out" not in printed
    (group,) = yaml.safe_load(files["rules.yaml"])["groups"]
    lines = [group["name"]]
    for rule in group["rules"]:
        labels = " ".join(f"{name}={value}" for name, value in rule.get("labels", {}).items())
        lines.append(f"  {rule.get('record') or rule['alert']} [{labels}] {rule.get('for', '')}: {rule['expr']}")
    recorded = {rule.get("record") for rule in group["rules"]}
    panels = json.loads(files["dashboard.json"])["panels"]
    assert {target["expr"].split("{")[0] for panel in panels for target in panel["targets"]} <= recorded
    for (_, slo), rule in alerts(files).items():
        said = rule["annotations"]["measured"]
        assert (
            "The limit of short" in said
            and "14 to 21 requests in flight" in said
            and "vLLM 0.32.0" in said
            and (slo or "") in said
        )
        assert rule["annotations"]["study"] == "d1" and rule["for"]
    limits = limits_of(files)
    assert limits["Requests in flight, by server"] == [None, 14, 16]
    assert limits["KV-cache usage"] == [None, pytest.approx(0.4)]
    assert limits["TTFT, quantiles (TTFT P95 ≤ 2 s)"] == [None, 2]
    snapshots.same("guard-rules", lines)


def test_a_rate_s_limit_is_on_requests_that_come(tmp_path, summary):
    given = {"row": rate_row, "levels": (1, 2, 3, 4), "exposed": (3,)}
    study(tmp_path, summary, point=RATE, **given)
    files, _ = guarded(tmp_path)
    assert alerts(files)["SaturateLoadAboveLimit", None]["expr"] == 'saturate:requests:rate5m{job="a"} > 3'


def test_rules_have_the_names_that_the_measured_server_exposes(tmp_path, summary):
    for exposition, shown in (
        (LLAMA, {"llamacpp:requests_deferred"}),
        ("vllm-0.8.5", {"vllm:gpu_cache_usage_perc", "vllm:time_to_first_token_seconds_bucket"}),
        ("sglang-0.5.23", {"sglang:num_queue_reqs", "sglang:e2e_request_latency_seconds_bucket"}),
        ("tgi-3.3.7", {"tgi_queue_size"}),
    ):
        folder = tmp_path / exposition
        folder.mkdir()
        study(folder, summary, exposition=exposition, exposed=(16,))
        (group,) = yaml.safe_load(guarded(folder)[0]["rules.yaml"])["groups"]
        named = {name for rule in group["rules"] for name in re.findall(r"([a-z][a-z_0-9:]+)\{", rule["expr"])}
        exposed = {sample.name for sample in reference_samples((ROOT / f"tests/data/{exposition}.prom").read_text())}
        assert shown <= named <= exposed | {rule.get("record") for rule in group["rules"]}, exposition


def test_admission_and_scaling_follow_the_limit(tmp_path, summary):
    study(tmp_path, summary)
    files, _ = guarded(tmp_path)
    assert set(files) == set(FILES)
    assert "maxconn 16\n" in files["haproxy.cfg"]
    assert "timeout queue 2000ms  # at most as long as the SLO on TTFT, prefill not counted\n" in files["haproxy.cfg"]
    assert (
        "avg_queue(a) ge 64 }" in files["haproxy.cfg"]
    )  # at 32 requests/s the last one of more waits longer than the SLO's 2 s
    scaled = yaml.safe_load(files["keda.yaml"])
    (trigger,) = scaled["spec"]["triggers"]
    assert (scaled["kind"], trigger["type"], trigger["metricType"]) == ("ScaledObject", "prometheus", "AverageValue")
    assert trigger["metadata"]["query"] == 'sum(saturate:requests_in_flight{job="a"})'
    assert float(trigger["metadata"]["threshold"]) == 11.2  # of 14


LOAD, SLOW = {"LoadNearLimit", "LoadAboveLimit"}, {"Slow"}
HITS = {"prefix_hit_rate": 0.38, "prefix_hit_rate_expected": 0.38}
UNKNOWN = [  # what the study lacks, the alerts that are left out, and what is said of them
    ({"exposition": LLAMA}, {"KvUsage", "Preemptions", *SLOW}, "No alert SaturateKvUsage"),
    ({"exposed": ()}, SINGLE, "no sustained run of a has telemetry of a known engine"),
    ({"point": ABOVE}, LOAD, "its limit is not known; C_max is 24 or more"),
    ({"point": {"low": None}}, LOAD, "No alert on the load: the lower end of C_max's interval is not established."),
    ({"point": {"low": 0.0}}, LOAD, "No alert on the load: the lower end of C_max's interval is 0,"),
    ({"point": {"low": 18.0}}, {"LoadNearLimit"}, "its interval begins no lower"),
    ({"point": {"unit": "users"}}, LOAD, "do not show users"),
    ({"kv": 16}, {"KvUsage"}, "No alert SaturateKvUsage"),
    ({"preemptions": 2}, {"Preemptions"}, "No alert SaturatePreemptions"),
    ({"preemptions": None}, {"Preemptions"}, "No alert SaturatePreemptions"),
    ({"exposition": LLAMA, "cache": "shared", **HITS}, {"KvUsage", "Preemptions", *SLOW}, "No alert SaturatePrefixHits"),
    (HITS, set(), "No alert SaturatePrefixHits"),
    ({"cache": "shared", "prefix_hit_rate": None}, set(), "No alert SaturatePrefixHits"),
    ({"cache": "shared", "prefix_hit_rate": 0.0}, set(), "No alert SaturatePrefixHits"),
    ({"steady_from_s": None}, {"Queue", "KvUsage"}, "No alert SaturateQueue"),
    ({"exposed": (2, 4, 8)}, {"Queue", "KvUsage"}, "No alert SaturateKvUsage"),  # the highest load's would be exceeded
    ({"slos": ["ttft_p95=9999s"]}, SLOW, "no histogram of that latency with a bucket beyond it"),
    ({"point": {"slos": ["TTFT P99 of chat ≤ 2 s"]}}, SLOW, "the study has none of all requests"),
]


def test_what_is_not_known_makes_no_rule_and_says_so(tmp_path, summary):
    for place, (change, lost, why) in enumerate(UNKNOWN):
        folder = tmp_path / str(place)
        folder.mkdir()
        study(folder, summary, **change)
        files, printed = guarded(folder)
        assert names_of(files) == SINGLE - lost, why
        assert why in printed
        limited = dict(change.get("point", ()))
        assert ("keda.yaml" in files) == ("LoadAboveLimit" not in lost), why
        assert ("haproxy.cfg" in files) == (limited.get("kind") != "above" and bool(limited.get("low", 1))), why


def test_what_cannot_be_guarded_is_refused(tmp_path, summary):
    two = "it has 2 curves. Choose one server and one workload: "
    for number, (change, options, said) in enumerate([
        ({"point": BELOW}, (), "no load is known to be sustained"),
        ({"point": {"basis": "burst"}}, (), "no capacity under a continuous load"),
        ({"others": [{"deployment": "b"}, {"deployment": "c", **BELOW}]}, (), two),
        ({}, ("results:b",), "results has no deployment 'b'. There are: a"),
        ({}, ("--workload", "b"), "--workload b: not in results, which has: short"),
    ]):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        study(folder, summary, **change)
        done = bench("guard", *options, cwd=folder)
        assert done.returncode == 2 and said in done.stderr, said
    (tmp_path / "fleet").mkdir()
    fleet(tmp_path / "fleet", summary, 2)
    for command in (["guard"], ["drifted", "--prometheus", "http://127.0.0.1:9", "--label", "job=a"]):
        done = bench(*command, cwd=tmp_path / "fleet")
        assert done.returncode == 2 and "a is a fleet, but production is held against one server" in done.stderr


def test_another_study_leaves_no_limits_of_the_last_one(tmp_path, summary):
    """A curve that shows nothing to guard by is not meant, and needs no name."""
    study(tmp_path, summary, others=[{"workload": "long", **BELOW}])
    assert "14 to 21 requests in flight" in guarded(tmp_path)[0]["rules.yaml"]
    shutil.rmtree(tmp_path / "results")
    study(tmp_path, summary, point=ABOVE)
    assert set(guarded(tmp_path)[0]) == {"rules.yaml", "dashboard.json"}


def test_a_file_that_is_a_link_stays_one(tmp_path, summary):
    study(tmp_path, summary)
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard/rules.yaml").symlink_to(tmp_path / "loaded.yaml")
    guarded(tmp_path)
    assert (tmp_path / "guard/rules.yaml").is_symlink() and (tmp_path / "loaded.yaml").exists()


def test_one_worker_is_a_server(tmp_path, summary):
    """Behind a router, or as the one address of `workers`: its telemetry has it as a fleet, too."""
    fleet(tmp_path, summary, 1)
    assert names_of(guarded(tmp_path)[0]) == SINGLE
    studied = read_studied(read_curve(tmp_path / "results"))
    assert studied.loads == (2, 24)  # nothing counts twice


# Judged by the programs that load it: rules by promtool, on planted series of a server


GOOD = {"load": 12, "waits": 0, "kv": 0.35, "slow": 0.005, "preempted": 0, "hits": 500}
ALL = ("LoadNearLimit", "LoadAboveLimit", "Queue", "KvUsage", "Preemptions", "PrefixHits", "Slow")
LATENCIES = {"time_to_first_token": "2.5", "request_time_per_output_token": "0.05", "e2e_request_latency": "20.0"}
prometheus = pytest.mark.long(part="prometheus")


def series(phases):
    """A server's series. Args: phases: minutes, and what it has in each."""
    found = []

    def add(name, values, labels="", **kind):
        found.append(course(name, values, labels and f',engine="0",model_name="m"{labels[1:]}', **kind))

    def of(key):
        return [(m, each[key]) for m, each in phases]

    add("vllm:num_requests_running", [(m, each["load"] - each["waits"]) for m, each in phases], "+")
    add("vllm:num_requests_waiting", of("waits"), "+")
    add("vllm:kv_cache_usage_perc", of("kv"), "+")
    add("vllm:num_preemptions_total", of("preempted"), "+", counter=True)
    add("vllm:prefix_cache_queries_total", [(m, 1000) for m, _ in phases], "+", counter=True)
    add("vllm:prefix_cache_hits_total", of("hits"), "+", counter=True)
    for family, le in LATENCIES.items():
        good = [(m, 60 * (1 - each["slow"])) for m, each in phases]
        add(f"vllm:{family}_seconds_bucket", good, f'+,le="{le}"', counter=True)
        add(f"vllm:{family}_seconds_count", [(m, 60) for m, _ in phases], "+", counter=True)
    return found


def fires(at, names, phases):
    """A test of promtool's: exactly these alerts fire at a minute."""
    asked = [
        {"expr": f'count(ALERTS{{alertstate="firing",alertname="Saturate{name}"}}) > bool 0 or vector(0)', "eval_time": f"{at}m",
         "exp_samples": [{"labels": "{}", "value": float(name in names)}]}
        for name in ALL
    ]  # fmt: skip
    return {"interval": "1m", "input_series": series(phases), "promql_expr_test": asked}


def asks(interval, phases, expr, at, **sample):
    """A test of promtool's: what an expression is at a moment."""
    asked = [{"expr": expr, "eval_time": at, "exp_samples": [{"labels": "{}", **sample}]}]
    return {"interval": interval, "input_series": series(phases), "promql_expr_test": asked}


def told(folder, tests, interval="1m"):
    """Have promtool check the rules, and run these tests on them."""
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": interval, "tests": tests}
    (folder / "guard/test.yaml").write_text(yaml.safe_dump(content))
    checked("promtool", "check", "rules", "rules.yaml", cwd=folder / "guard")
    checked("promtool", "test", "rules", "test.yaml", cwd=folder / "guard")


@prometheus
def test_an_hour_of_sustained_load_is_silent_and_each_fault_fires_in_its_time(tmp_path, summary):
    """Alerts' series are of one server, minute by minute: an hour of what the study sustained, then a fault."""
    study(tmp_path, summary, **SHARED)
    _, printed = guarded(tmp_path)
    assert "Left out" not in printed

    def after(at, names, **fault):
        return fires(20 + at, names, [(20, GOOD), (at + 2, {**GOOD, **fault})])

    whole = {"load": 30, "waits": 6, "kv": 0.75, "slow": 1.0, "preempted": 3}
    tests = [
        fires(59, (), [(60, GOOD)]),
        fires(59, (), [(60, {**GOOD, "load": 14, "kv": 16 / 40, "hits": 480})]),
        fires(21, (), [(20, GOOD), (2, {**GOOD, **whole})]),  # two bad minutes are no overload yet
        *(fires(at, (), [(20, GOOD), (1, {**GOOD, "load": 40}), (9, GOOD)]) for at in (21, 22, 23)),  # a burst that passes
        after(5, ("LoadNearLimit", "LoadAboveLimit"), load=24),
        after(10, ("LoadNearLimit",), load=16),
        after(4, (), waits=3),
        after(6, ("Queue",), waits=3),
        after(6, ("KvUsage",), kv=0.55),
        after(4, ("Preemptions",), preempted=1),
        after(50, ("PrefixHits",), hits=300),
        after(3, (), slow=1.0),
        after(20, ("Slow",), slow=1.0),
        after(10, ("LoadNearLimit", "LoadAboveLimit", "Queue", "KvUsage", "Preemptions"), **{**whole, "slow": 0.0}),
    ]
    told(tmp_path, tests)


@prometheus
def test_two_hours_of_a_sustained_load_that_varies_raise_nothing(tmp_path, summary):
    """Twelve in flight in the mean, as many as a Poisson process has, of which some wait."""
    study(tmp_path, summary)
    guarded(tmp_path)
    random = np.random.default_rng(7)
    held = random.poisson(12, 480)
    waits = np.minimum(held, random.poisson(0.3, 480))
    drawn = [(1, {**GOOD, "load": load, "waits": wait}) for load, wait in zip(held.tolist(), waits.tolist(), strict=True)]
    fired = 'count(count_over_time(ALERTS{alertstate="firing"}[2h])) or vector(0)'
    told(tmp_path, [asks("15s", drawn, fired, "119m", value=0)], "15s")


@prometheus
def test_a_rate_is_what_ends_and_what_piles_up(tmp_path, summary):
    """Of 4 requests/s that come 3 end each second, and the rest is in flight a minute later."""
    study(tmp_path, summary, point=RATE | {"in_flight": 10.0}, row=rate_row, levels=(1, 2, 3, 4), exposed=(3,))
    guarded(tmp_path)
    own = 'saturate:requests:rate5m{job="a"}'
    test = asks("1m", [], f"round({own}, 0.01)", "30m", labels='{job="a",instance="x"}', value=4)
    test["input_series"] = [
        course("vllm:num_requests_running", [(60, 5)]) | {"values": "5+60x60"},
        course("vllm:num_requests_waiting", [(61, 0)]),
        course("vllm:e2e_request_latency_seconds_count", [(61, 180)], counter=True),
    ]
    told(tmp_path, [test])


@prometheus
def test_every_panel_and_every_engine_s_rules_are_what_prometheus_reads(tmp_path, summary):
    for exposition in (LLAMA, "vllm-0.8.5", "vllm-0.32.0", "sglang-0.5.23", "tgi-3.3.7"):
        folder = tmp_path / exposition
        folder.mkdir()
        study(folder, summary, exposition=exposition, exposed=(16,))
        files, _ = guarded(folder)
        board = json.loads(files["dashboard.json"])
        queries = [target["expr"].replace("$job", "a") for panel in board["panels"] for target in panel["targets"]]
        rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
        (folder / "guard/panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
        checked("promtool", "check", "rules", "rules.yaml", "panels.yaml", cwd=folder / "guard")
        places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in board["panels"]]
        assert all(before < after for before, after in pairwise(places))
        assert alerts(files)


@pytest.mark.long(part="fleets")
def test_haproxy_takes_its_backend_without_a_warning(tmp_path, summary):
    study(tmp_path, summary)
    guarded(tmp_path)
    lines = ("frontend all", "mode http", "timeout client 10m", "maxconn 100", "bind 127.0.0.1:9", "default_backend a", "")
    (tmp_path / "guard/main.cfg").write_text("\n    ".join(lines).rstrip(" "))
    checked("haproxy", "-c", "-dW", "-f", "main.cfg", "-f", "haproxy.cfg", cwd=tmp_path / "guard")
