"""What guards production by a study: the limits of a server and of a fleet, and what is left out where one is not known."""

import json
import re
import shutil

import pytest
import yaml

from bench.beside.production.curve import read_curve
from bench.beside.production.drifted.studied import read_studied
from bench.beside.production.guard import FILES, written
from bench.beside.production.guard.measured import Measured, Sustained, read_measured
from bench.errors import BenchError
from bench.findings.sizing import Limits
from bench.parse.reference_samples import reference_samples
from tests.support import snapshots
from tests.support.command import bench
from tests.support.guard import LLAMA, POINT, alerts, fleet, guarded, scraped_of, study, workers
from tests.support.planted import rate_row
from tests.support.study import ROOT

BELOW = {"kind": "below", "c_max": None, "missed_at": 2.0}
ABOVE = {"kind": "above", "c_max": 24.0, "high": None, "missed_at": None}
RATE = {"axis": "request_rate", "unit": "requests/s", "c_max": 3.0, "low": 2.5, "operate_at": 3.0, "usable_rps": 3.0}
SINGLE = {"LoadNearLimit", "LoadAboveLimit", "Queue", "KvUsage", "Preemptions", "BurnFast", "BurnSlow"}
OF_FLEET = SINGLE | {"WorkerSilent", "FleetSize"}


def names_of(files):
    return {name.removeprefix("Saturate") for name, _ in alerts(files)} if "rules.yaml" in files else set()


def limits_of(files):
    """By panel."""
    panels = json.loads(files["dashboard.json"])["panels"]
    return {
        each["title"]: [step["value"] for step in each["fieldConfig"]["defaults"]["thresholds"]["steps"]] for each in panels
    }


def test_rules_of_a_server_and_of_a_fleet(tmp_path, summary):
    """Each rule as promtool's tests judged it; the queries of every panel are on what is recorded."""
    shared, lines = {"prefix_hit_rate": 0.5, "prefix_hit_rate_expected": 0.5, "cache": "shared"}, []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        fleet(folder, summary, number, **shared) if number > 1 else study(folder, summary, **shared)
        files, printed = guarded(folder)
        assert "Left out" not in printed
        (group,) = yaml.safe_load(files["rules.yaml"])["groups"]
        lines.append(f"{number} of {group['name']}")
        for rule in group["rules"]:
            labels = " ".join(f"{name}={value}" for name, value in rule.get("labels", {}).items())
            lines.append(f"  {rule.get('record') or rule['alert']} [{labels}] {rule.get('for', '')}: {rule['expr']}")
        recorded = {rule.get("record") for rule in group["rules"]}
        panels = json.loads(files["dashboard.json"])["panels"]
        assert {target["expr"].split("{")[0] for panel in panels for target in panel["targets"]} <= recorded
        for (_, slo), rule in alerts(files).items():
            said = rule["annotations"]["measured"]
            assert "C_max of short is 16 (" in said and "vLLM 0.32.0" in said and (slo or "") in said
            assert ("requests in flight of 2 workers together" in said) == (number == 2)
            assert rule["annotations"]["study"] == "d1" and rule["for"]
        limits = limits_of(files)
        assert limits["Requests in flight, by server"] == ([None, 14, 16] if number == 1 else [None])
        assert limits.get("Requests in flight, all workers") == ([None, 14, 16] if number > 1 else None)
        assert limits["KV-cache usage"] == [None, pytest.approx(0.4 if number == 1 else 0.6)]
        assert limits["TTFT, quantiles (TTFT P95 ≤ 2 s)"] == [None, 2]
    assert alerts(files)["SaturateFleetSize", None]["labels"]["severity"] == "info"  # KEDA scales each night
    snapshots.same("guard-rules", lines)


def test_a_rate_s_limit_is_on_requests_that_come(tmp_path, summary):
    given = {"row": rate_row, "levels": (1, 2, 3, 4), "exposed": (3,)}
    study(tmp_path, summary, point=RATE, **given)
    files, _ = guarded(tmp_path)
    assert alerts(files)["SaturateLoadAboveLimit", None]["expr"] == 'saturate:requests:rate5m{job="a"} > 3'
    shutil.rmtree(tmp_path / "results")
    fleet(tmp_path, summary, 2, point=RATE | {"in_flight": 10.0}, **given)
    found = {name: rule["expr"] for (name, _), rule in alerts(guarded(tmp_path)[0]).items()}
    assert found["SaturateLoadAboveLimit"] == (
        'saturate:fleet_requests:rate5m{job="a"} > 3 and count by (job) (up{job="a"}) == 2'
    )


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


def test_tpot_is_found_under_the_names_of_those_who_pass_metrics_on(tmp_path, summary):
    """Ray's sums of histograms are estimates, so that TTFT and E2E have no name there; TPOT is read by its buckets alone."""
    for spelt, others in (("vllm_", {"ttft", "e2e"}), ("ray_vllm_", set())):
        place = tmp_path / spelt
        place.mkdir()
        study(place, summary, spelt=spelt)
        files, printed = guarded(place)
        assert {slo.split()[0].lower() for _, slo in alerts(files) if slo} == {"tpot", *others}
        assert f"{spelt}request_time_per_output_token_seconds_bucket" in files["rules.yaml"]
        assert ("the results show no histogram of that latency" in printed) == (not others)


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


def test_admission_and_scaling_of_a_fleet_are_shared_out(tmp_path, summary):
    fleet(tmp_path, summary, 3, balance="header:X-Session-ID")
    files, _ = guarded(tmp_path)
    text = files["haproxy.cfg"]
    servers = [(str(i), str(7999 + i), "5") for i in (1, 2, 3)]
    assert re.findall(r"server instance-(\d) 127.0.0.1:(\d+) maxconn (\d+)", text) == servers
    # Of more than 64 that wait the last one waits longer than 2 s; HAProxy's avg_queue is by server.
    assert "avg_queue(a) ge 21 }" in text and "balance hdr(X-Session-ID)" in text and "`maxconn 80`" in text
    (trigger,) = yaml.safe_load(files["keda.yaml"])["spec"]["triggers"]
    assert trigger["metadata"]["query"] == 'sum(saturate:requests_in_flight{job="a"})'
    assert float(trigger["metadata"]["threshold"]) == pytest.approx(0.8 * 14 / 3, abs=0.01)


def of_two(admission, balance):
    """HAProxy's file of two workers, and what is left out."""
    limits = Limits(admission, *[None] * 5)
    measured = Measured(point={**POINT, "slos": []}, sustained=Sustained(1), limits=limits, workers=2, balance=balance)
    texts, left = written(measured)
    return texts.get("haproxy.cfg"), left


def test_haproxy_deals_out_as_measured():
    for balance, shown in ((None, "leastconn"), ("roundrobin", "roundrobin"), ("header:X-Session-ID", "hdr(X-Session-ID)")):
        config, _ = of_two(16, balance)
        assert f"    balance {shown}\n" in config, balance
    config, left = of_two(1, "roundrobin")
    assert config is None and any("HAProxy's maxconn is at least 1 of each" in line for line in left)


LOAD, BURNS = {"LoadNearLimit", "LoadAboveLimit"}, {"BurnFast", "BurnSlow"}
UNKNOWN = [  # what the study lacks, the alerts that are left out, and what is said of them
    ({"exposition": LLAMA}, {"KvUsage", "Preemptions", *BURNS}, "does not show its KV usage"),
    ({"exposed": ()}, SINGLE, "no sustained run of a has telemetry of a known engine"),
    ({"point": ABOVE}, LOAD, "its limit is not known; C_max is 24 or more"),
    ({"point": {"low": None}}, LOAD, "No alert on the load: the lower end of C_max's interval is not established."),
    ({"point": {"low": 0.0}}, LOAD, "No alert on the load: the lower end of C_max's interval is 0,"),
    ({"point": {"low": 18.0}}, {"LoadNearLimit"}, "its interval begins no lower"),
    ({"point": {"unit": "users"}}, LOAD, "no server counts users"),
    ({"kv": 16}, {"KvUsage"}, "sustained runs filled the cache"),
    ({"preemptions": 2}, {"Preemptions"}, "sustained runs had 8 preemptions"),
    ({"preemptions": None}, {"Preemptions"}, "No alert on preemptions"),
    ({"steady_from_s": None}, {"Queue", "KvUsage"}, "no sustained run has a steady window that shows"),
    ({"exposed": (2, 4, 8)}, {"Queue", "KvUsage"}, "No alert on KV usage"),  # the highest load's would be exceeded
    ({"slos": ["ttft_p95=9999s"]}, BURNS, "has no bucket of 9999 s or more"),
    ({"point": {"slos": ["TTFT P99 of chat ≤ 2 s"]}}, BURNS, "does not tell classes of requests apart"),
]
UNKNOWN_OF_FLEET = [
    ({"spelt": "ray_vllm_"}, {"WorkerSilent"}, "drops those of a worker that has nothing to do"),
    ({"exposition": LLAMA}, {"KvUsage", "Preemptions", *BURNS}, "does not show its KV usage"),
]


@pytest.mark.parametrize("number", [1, 2], ids=["of a server", "of a fleet"])
def test_what_is_not_known_makes_no_rule_and_says_so(tmp_path, summary, number):
    for place, (change, lost, why) in enumerate(UNKNOWN if number == 1 else UNKNOWN_OF_FLEET):
        folder = tmp_path / str(place)
        folder.mkdir()
        study(folder, summary, **change) if number == 1 else fleet(folder, summary, number, **change)
        files, printed = guarded(folder)
        assert names_of(files) == (SINGLE if number == 1 else OF_FLEET) - lost, why
        assert why in printed
        limited = dict(change.get("point", ()))
        assert ("keda.yaml" in files) == ("LoadAboveLimit" not in lost), why
        assert ("haproxy.cfg" in files) == (limited.get("kind") != "above" and bool(limited.get("low", 1))), why


def test_what_cannot_be_guarded_is_refused(tmp_path, summary):
    two = "it has 2 curves, and one server is guarded by one workload. Name both: "
    apart = [{**row, "role": role} for row, role in zip(workers(2), ("prefill", "decode"), strict=True)]
    for number, (change, options, said) in enumerate([
        ({"point": BELOW}, (), "there is nothing to guard by"),
        ({"point": {"basis": "burst"}}, (), "no capacity of a load that goes on"),
        ({"others": [{"deployment": "b"}, {"deployment": "c", **BELOW}]}, (), two),
        ({}, ("--deployment", "b"), "--deployment b: results has the capacity of: a"),
        ({}, ("--workload", "b"), "--workload b: results has the capacity of: short"),
    ]):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        study(folder, summary, **change)
        done = bench("guard", *options, cwd=folder)
        assert done.returncode == 2 and said in done.stderr, said
    (tmp_path / "roles").mkdir()
    study(tmp_path / "roles", summary, workers=apart, scraped=scraped_of(2))
    with pytest.raises(BenchError, match="some workers of a only prefill"):
        read_measured(tmp_path / "roles/results")


def test_another_study_leaves_no_limits_of_the_last_one(tmp_path, summary):
    """A curve that shows nothing to guard by is not meant, and needs no name."""
    study(tmp_path, summary, others=[{"workload": "long", **BELOW}])
    assert "C_max of short is 16" in guarded(tmp_path)[0]["rules.yaml"]
    shutil.rmtree(tmp_path / "results")
    study(tmp_path, summary, point=ABOVE)
    assert set(guarded(tmp_path)[0]) == {"rules.yaml", "dashboard.json"}


def test_one_worker_is_a_server(tmp_path, summary):
    """Behind a router, or as the one address of `workers`: its telemetry has it as a fleet, too."""
    fleet(tmp_path, summary, 1)
    files, printed = guarded(tmp_path)
    assert names_of(files) == SINGLE
    assert "saturate:fleet" not in files["rules.yaml"] and "worker" not in files["rules.yaml"] + printed
    studied = read_studied(read_curve(tmp_path / "results"))
    assert studied.loads == (2, 24)  # nothing counts twice


def test_a_fleet_s_speed_is_not_compared(tmp_path, summary):
    fleet(tmp_path, summary, 2)
    done = bench("drifted", "--prometheus", "http://127.0.0.1:9", "--label", "job=a", cwd=tmp_path)
    assert done.returncode == 2 and "a is a fleet, and what is compared is one server's load and speed" in done.stderr
