"""What guards a server in production by what a study measured: Prometheus rules, a dashboard, limits of admission and scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.guard.admission import envoy, haproxy, vllm_router
from bench.guard.dashboard import dashboard
from bench.guard.measured import Curve, Measured, read_curve, read_measured
from bench.guard.rules import rules_file
from bench.guard.scaling import scaled_object

__all__ = ["FILES", "Curve", "Measured", "read_curve", "read_measured"]

#: What writes each file: its text, None where nothing in it is known, and a line on each thing that is left out.
FILES: Mapping[str, Callable[[Measured], tuple[str | None, list[str]]]] = {
    "rules.yaml": rules_file,
    "dashboard.json": dashboard,
    "haproxy.cfg": haproxy,
    "envoy.yaml": envoy,
    "vllm-router.sh": vllm_router,
    "keda.yaml": scaled_object,
}
