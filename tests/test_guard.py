"""Rules for Prometheus, judged by promtool on planted series."""

import shutil
import subprocess

import pytest
import yaml

from bench.guard import load_rules

NAMES = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting"}
POINT = {"deployment": "a", "workload": "w", "axis": "concurrency", "basis": "steady", "kind": "found", "c_max": 16.0, "low": 14.5, "high": 19.0, "slos": ["TTFT P95 ≤ 1 s"]}  # fmt: skip


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not here")
@pytest.mark.parametrize(("held", "fires"), [(12, ()), (15, ("Warning",)), (24, ("Warning", "Critical"))])
def test_an_overload_fires_and_a_sustained_load_stays_silent_for_an_hour(tmp_path, held, fires):
    rules, left = load_rules(POINT, NAMES, "d")
    assert not left
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": rules}]}))
    series = [{"series": f'{name}{{job="a",instance="x"}}', "values": f"{value}x240"} for name, value in zip(NAMES.values(), (10, held - 10), strict=True)]  # fmt: skip
    asked = [
        {"expr": f'count(ALERTS{{alertstate="firing",alertname="SaturateLoad{name}"}}) or vector(0)', "eval_time": "60m", "exp_samples": [{"labels": "{}", "value": float(name in fires)}]}
        for name in ("Warning", "Critical")
    ]  # fmt: skip
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [{"interval": "15s", "input_series": series, "promql_expr_test": asked}]}  # fmt: skip
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    for arguments in (("check", "rules", "rules.yaml"), ("test", "rules", "test.yaml")):
        done = subprocess.run(["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("change", [{"kind": "above"}, {"basis": "burst"}])
def test_a_limit_that_is_not_known_makes_no_rule(change):
    rules, left = load_rules({**POINT, **change}, NAMES, "d")
    assert not rules and len(left) == 1
