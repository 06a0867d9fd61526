"""What guards a fleet by its study: rules judged by promtool on planted series of two and three workers."""

import json
import re

import numpy as np
import polars as pl
import pytest
import yaml

from bench.analysis import Limits
from bench.drifted.curve import read_studied
from bench.errors import BenchError
from bench.guard import Measured, read_curve
from bench.guard.admission import haproxy, vllm_router
from bench.guard.measured import Sustained, read_measured
from bench.parse.fleet import fleet_telemetry
from bench.parse.scrapes import SCRAPE_SCHEMA
from bench.records.run import Worker
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
    workers,
)
from tests.support.guard import telemetry as telemetry_of_one
from tests.support.planted import rate_row

SINGLE = ("LoadNearLimit", "LoadAboveLimit", "Queue", "KvUsage", "Preemptions", "PrefixHits", "BurnFast", "BurnSlow")
ALL = (*SINGLE, "WorkerSilent", "WorkerUneven", "FleetSize")
GOOD = {"load": 12, "waits": 0, "kv": 0.35}


def scraped_of(number):
    """What is scraped of a fleet: each worker has its part, and the last one of them half as much of its KV cache more."""

    def scraped(exposition, running, waiting, kv_usage, spelt):
        names = [f"http://10.0.0.{i}:8000/metrics" for i in range(1, number + 1)]
        parts = [
            telemetry_of_one(
                exposition, running / number, waiting, (1.5 if name == names[-1] else 1) * kv_usage, spelt
            ).with_columns(endpoint=pl.lit(name))
            for name in names
        ]
        samples = pl.concat(parts)
        rows = samples.select("endpoint", "scrape", due_s="elapsed_s", sent_s="elapsed_s", received_s="elapsed_s").unique()
        rows = rows.with_columns(last=pl.col("scrape") == pl.col("scrape").max(), error=pl.lit(None, pl.String))
        scrapes = rows.select(*(name for name in SCRAPE_SCHEMA if name in rows.columns))
        known = [
            Worker(name=name, endpoint=name, kind="vllm", engines=1, kv_blocks=None, block_size=16, kv_tokens=1600)
            for name in names
        ]
        return pl.concat([samples, fleet_telemetry(samples, scrapes, known)[0]])

    return scraped


def fleet(folder, summary, number, shares=None, **more):
    study(folder, summary, workers=workers(number, shares), scraped=scraped_of(number), **more)


def series(number, phases):
    """The workers' series. Args: phases: minutes, and what all of them have in each; a list has each worker's own, None is silence."""
    found = []
    for i in range(number):
        worker = f"w{i + 1}"

        def of(key, i=i, *, part=number):
            return [(m, each[key][i] if isinstance(each[key], list) else each[key] / part) for m, each in phases]

        load, waits = of("load"), of("waits")
        for name, values in (
            ("num_requests_running", [(m, None if n is None else n - w) for (m, n), (_, w) in zip(load, waits, strict=True)]),
            ("num_requests_waiting", [(m, None if n is None else w) for (m, n), (_, w) in zip(load, waits, strict=True)]),
            ("kv_cache_usage_perc", of("kv", part=1)),
        ):
            found.append(course(f"vllm:{name}", values, instance=worker))
        found.append(course("up", [(m, 0 if n is None else 1) for m, n in load], instance=worker))
        for name, each in (
            ("num_preemptions_total", 0),
            ("prefix_cache_queries_total", 1000),
            ("prefix_cache_hits_total", 500),
        ):
            found.append(course(f"vllm:{name}", [(m, each) for m, _ in phases], instance=worker, counter=True))
        for family, le in (
            ("time_to_first_token", "2.5"),
            ("request_time_per_output_token", "0.05"),
            ("e2e_request_latency", "20.0"),
        ):
            for suffix, rise in ((f'_bucket{{le="{le}"', 60), ("_count{", 60)):
                name, labels = f"vllm:{family}_seconds{suffix}".split("{")
                found.append(
                    course(name, [(m, rise) for m, _ in phases], f",{labels}" if labels else "", counter=True, instance=worker)
                )
    return found


def fires(number, at, names, phases):
    asked = [
        {"expr": f'count(ALERTS{{alertstate="firing",alertname="Saturate{name}"}}) > bool 0 or vector(0)', "eval_time": f"{at}m",
         "exp_samples": [{"labels": "{}", "value": float(name in names)}]}
        for name in ALL
    ]  # fmt: skip
    return {"interval": "1m", "input_series": series(number, phases), "promql_expr_test": asked}


@needs_promtool
@pytest.mark.parametrize("number", [2, 3])
def test_a_fleet_s_alerts_are_silent_in_an_hour_of_valid_load_and_each_fault_fires_its_own(tmp_path, summary, number):
    """C_max of all workers together is 16, at least 14: what is too much for one of them alone is not for the fleet."""
    fleet(tmp_path, summary, number, prefix_hit_rate=0.5, prefix_hit_rate_expected=0.5, cache="shared")
    files, printed = guarded(tmp_path)
    assert "Left out" not in printed

    def after(at, names, **fault):
        return fires(number, 20 + at, names, [(20, GOOD), (at + 2, {**GOOD, **fault})])

    rest = [12 / number] * (number - 1)
    tests = [
        fires(number, 59, (), [(60, GOOD)]),
        fires(number, 59, (), [(60, {**GOOD, "load": 13.8, "kv": 0.6})]),
        # One worker has more than others, as a router may have it; or all of a load that one can take.
        fires(number, 59, (), [(60, {**GOOD, "load": [12 / number * 1.4, *rest[1:], 12 / number * 0.6]})]),
        fires(number, 59, (), [(60, {**GOOD, "load": [14 / number - 0.5, *[0] * (number - 1)]})]),
        after(5, ("LoadNearLimit", "LoadAboveLimit"), load=24),
        after(30, ("LoadNearLimit", "LoadAboveLimit"), load=40),  # evenly
        after(10, ("LoadNearLimit",), load=16),
        after(6, ("Queue",), waits=3),
        after(6, ("KvUsage",), kv=[0.65, *[0.1] * (number - 1)]),  # of one worker, more than any of the study had
        after(1, (), load=[None, *rest]),
        after(5, ("WorkerSilent",), load=[None, *rest], kv=[None, *[0.35] * (number - 1)]),
        after(40, ("WorkerUneven",), load=[12, *[0] * (number - 1)]),
    ]
    # Of another number the limits are not known: a load or queue beyond them pages nobody.
    tests += [
        fires(others, 40, ("FleetSize",), [(45, {**GOOD, "load": 24, "waits": 3})]) for others in (number - 1, number + 1)
    ]
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "guard/test.yaml").write_text(yaml.safe_dump(content))
    checked(PROMTOOL, "check", "rules", "rules.yaml", cwd=tmp_path / "guard")
    checked(PROMTOOL, "test", "rules", "test.yaml", cwd=tmp_path / "guard")
    measured = {rule["annotations"]["measured"] for rule in alerts(files).values()}
    assert all(f"requests in flight of {number} workers together" in text for text in measured)
    assert alerts(files)["SaturateFleetSize", None]["labels"]["severity"] == "info"  # KEDA scales each night
    panels = {panel["title"]: panel for panel in json.loads(files["dashboard.json"])["panels"]}
    limits = {
        title: [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        for title, panel in panels.items()
    }
    assert limits["Requests in flight, all workers"] == [None, 14, 16]
    assert limits["Requests in flight, by server"] == [None]
    assert limits["KV-cache usage"] == [None, pytest.approx(0.6)]


@needs_promtool
@pytest.mark.parametrize("number", [2, 3])
def test_two_hours_of_a_sustained_load_that_varies_by_worker_raise_nothing(tmp_path, summary, number):
    """Twelve in flight in the mean, dealt out by chance: as many on each worker as a Poisson process has, of which some wait."""
    fleet(tmp_path, summary, number)
    guarded(tmp_path)
    random = np.random.default_rng(7)
    held = random.poisson(12 / number, (480, number))
    waits = np.minimum(held, random.poisson(0.3 / number, (480, number)))
    drawn = [(1, {**GOOD, "load": load.tolist(), "waits": wait.tolist()}) for load, wait in zip(held, waits, strict=True)]
    fired = 'count(count_over_time(ALERTS{alertstate="firing"}[2h])) or vector(0)'
    asked = [{"expr": fired, "eval_time": "119m", "exp_samples": [{"labels": "{}", "value": 0}]}]
    test = {"interval": "15s", "input_series": series(number, drawn), "promql_expr_test": asked}
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [test]}
    (tmp_path / "guard/test.yaml").write_text(yaml.safe_dump(content))
    checked(PROMTOOL, "test", "rules", "test.yaml", cwd=tmp_path / "guard")


@needs_promtool
@pytest.mark.parametrize(("held", "fired"), [(3, 0), (4, 1)])
def test_a_small_fleet_that_holds_one_more_than_its_limit_raises_it_however_its_sums_vary(tmp_path, summary, held, fired):
    """The limit is 3. Workers are scraped at different moments, so that the sum of two is off by 2 now and then."""
    fleet(tmp_path, summary, 2, point={"c_max": 3.0, "low": 3.0})
    guarded(tmp_path)
    random, tests = np.random.default_rng(11), []
    for _ in range(5):
        # An answer that has just ended is followed by the next request: the loop holds less than it is asked to.
        parts = [np.abs(random.normal(mean / 2, 0.7, (steps, 2)).round()) for mean, steps in ((2, 40), (held - 0.3, 60))]
        drawn = [(1, {**GOOD, "load": [each[0], each[1]]}) for each in np.concatenate(parts).tolist()]
        above = 'count(count_over_time(ALERTS{alertstate="firing",alertname="SaturateLoadAboveLimit"}[25m])) or vector(0)'
        asked = [{"expr": above, "eval_time": "24m", "exp_samples": [{"labels": "{}", "value": fired}]}]
        tests.append({"interval": "15s", "input_series": series(2, drawn), "promql_expr_test": asked})
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "guard/test.yaml").write_text(yaml.safe_dump(content))
    checked(PROMTOOL, "test", "rules", "test.yaml", cwd=tmp_path / "guard")


@needs_haproxy
def test_admission_and_scaling_of_a_fleet_are_shared_out(tmp_path, summary):
    fleet(tmp_path, summary, 3, balance="header:X-Session-ID")
    files, _ = guarded(tmp_path)
    text = files["haproxy.cfg"]
    assert re.findall(r"server instance-(\d) 127.0.0.1:(\d+) maxconn (\d+)", text) == [
        (str(i), str(7999 + i), "5") for i in (1, 2, 3)
    ]
    # Of more than 64 that wait the last one waits longer than 2 s; HAProxy's avg_queue is by server.
    assert "avg_queue(a) ge 21 }" in text and "balance hdr(X-Session-ID)" in text and "`maxconn 80`" in text
    front = (
        "frontend all\n    mode http\n    timeout client 10m\n    maxconn 100\n    bind 127.0.0.1:9\n    default_backend a\n"
    )
    (tmp_path / "guard/main.cfg").write_text(front)
    checked(HAPROXY, "-c", "-dW", "-f", "main.cfg", "-f", "haproxy.cfg", cwd=tmp_path / "guard")
    (threshold,) = yaml.safe_load(files["envoy.yaml"])["circuit_breakers"]["thresholds"]
    assert threshold["max_requests"] == 16 and "of the 3 workers together" in files["envoy.yaml"]
    assert (
        "vllm-router --policy consistent_hash --max-concurrent-requests 16 --worker-urls http://CHANGE-ME-1:8000 http://CHANGE-ME-2"
        in files["vllm-router.sh"]
    )
    (trigger,) = yaml.safe_load(files["keda.yaml"])["spec"]["triggers"]
    assert trigger["metadata"]["query"] == 'sum(saturate:requests_in_flight{job="a"})'
    assert float(trigger["metadata"]["threshold"]) == pytest.approx(0.8 * 14 / 3, abs=0.01)


def of_two(admission, balance):
    """What two workers are admitted by, as the two routers have it."""
    point = {**POINT, "slos": []}
    measured = Measured(point=point, sustained=Sustained(1), limits=Limits(admission, *[None] * 5), workers=2, balance=balance)
    return haproxy(measured), vllm_router(measured)


@pytest.mark.parametrize(
    ("balance", "of_haproxy", "policy"),
    [
        ("leastconn", "balance leastconn", None),
        ("roundrobin", "balance roundrobin", "round_robin"),
        ("power-of-two", None, "power_of_two"),
        ("header:X-SMG-Routing-Key", "balance hdr(X-SMG-Routing-Key)", None),
        ("header:X-Session-ID", "balance hdr(X-Session-ID)", "consistent_hash"),
    ],
)
def test_routers_deal_out_as_measured_or_say_that_they_cannot(balance, of_haproxy, policy):
    config, command = (" ".join(text.replace("#", " ").split()) for text, _ in of_two(16, balance))
    lacks = f"measured with `balance: {balance}`, which this router does not have"
    assert (of_haproxy or "balance leastconn") in config and (lacks in config) == (of_haproxy is None)
    assert ("--policy" in command) == (policy is not None) == (lacks not in command)
    assert policy is None or f" --policy {policy} " in command


def test_a_limit_below_the_number_of_workers_is_not_raised():
    (config, left), (command, _) = of_two(1, "roundrobin")
    assert config is None and "HAProxy's maxconn is at least 1 of each" in left[0]
    assert "--max-concurrent-requests 1 " in command


@needs_promtool
def test_a_fleet_s_rate_is_the_sum_of_its_workers(tmp_path, summary):
    rate = {
        "axis": "request_rate",
        "unit": "requests/s",
        "c_max": 3.0,
        "low": 2.5,
        "operate_at": 3.0,
        "usable_rps": 3.0,
        "in_flight": 10.0,
    }
    fleet(tmp_path, summary, 2, point=rate, row=rate_row, levels=(1, 2, 3, 4), exposed=(3,))
    files, _ = guarded(tmp_path)
    # What was measured of the balance is of requests in flight, so the alert is on these.
    uneven = alerts(files)["SaturateWorkerUneven", None]["expr"]
    assert uneven.startswith('avg_over_time(saturate:requests_in_flight{job="a"}[15m]) > 5 and') and ":rate5m" not in uneven
    assert alerts(files)["SaturateLoadAboveLimit", None]["expr"] == (
        'saturate:fleet_requests:rate5m{job="a"} > 3 and count by (job) (up{job="a"}) == 2'
    )
    asked = [{"expr": "saturate:fleet_requests:rate5m", "eval_time": "30m", "exp_samples": [{"labels": 'saturate:fleet_requests:rate5m{job="a"}', "value": 2}]}]  # fmt: skip
    test = {"interval": "1m", "input_series": series(2, [(60, GOOD)]), "promql_expr_test": asked}
    (tmp_path / "guard/test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]})
    )
    checked(PROMTOOL, "test", "rules", "test.yaml", cwd=tmp_path / "guard")


@pytest.mark.parametrize(
    ("change", "lost", "why"),
    [
        ({"shares": [1.0, 0.0]}, {"WorkerUneven"}, "at C_max one of them had all requests"),
        ({"point": {"low": None}}, {"LoadNearLimit", "LoadAboveLimit", "WorkerUneven"}, "that takes a limit with a lower end"),
        ({"spelt": "ray_vllm_"}, {"WorkerSilent"}, "drops those of a worker that has nothing to do"),
        ({"exposition": LLAMA}, {"KvUsage", "Preemptions", "BurnFast", "BurnSlow"}, "does not show its KV usage"),
    ],
)
def test_what_is_not_known_of_a_fleet_makes_no_rule_and_says_so(tmp_path, summary, change, lost, why):
    fleet(tmp_path, summary, 2, **change)
    files, printed = guarded(tmp_path)
    assert {name.removeprefix("Saturate") for name, _ in alerts(files)} == set(ALL) - {"PrefixHits"} - lost
    assert why in printed


def test_a_fleet_whose_workers_have_roles_is_refused(tmp_path, summary):
    apart = [{**row, "role": role} for row, role in zip(workers(2), ("prefill", "decode"), strict=True)]
    study(tmp_path, summary, workers=apart, scraped=scraped_of(2))
    with pytest.raises(BenchError, match="some workers of a only prefill"):
        read_measured(tmp_path / "results")


def test_the_balance_that_the_study_had_is_no_fault(tmp_path, summary):
    """At C_max one worker of three had twice the mean, as its sessions had it."""
    fleet(tmp_path, summary, 3, shares=[2 / 3, 1 / 6, 1 / 6])
    files, _ = guarded(tmp_path)
    assert alerts(files)["SaturateWorkerUneven", None]["expr"].endswith("> 2")


def test_one_worker_is_a_server(tmp_path, summary):
    """Behind a router, or as the one address of `workers`: its telemetry has it as a fleet, too."""
    fleet(tmp_path, summary, 1)
    files, printed = guarded(tmp_path)
    assert {name.removeprefix("Saturate") for name, _ in alerts(files)} == set(SINGLE) - {"PrefixHits"}
    assert "saturate:fleet" not in files["rules.yaml"] and "worker" not in files["rules.yaml"] + printed
    studied = read_studied(read_curve(tmp_path / "results"))
    assert studied.loads == (2, 24)  # nothing counts twice


def test_a_fleet_s_speed_is_not_compared(tmp_path, summary):
    fleet(tmp_path, summary, 2)
    done = bench("drifted", "--prometheus", "http://127.0.0.1:9", "--label", "job=a", cwd=tmp_path)
    assert done.returncode == 2 and "a is a fleet, and what is compared is the load and speed of one server" in done.stderr
