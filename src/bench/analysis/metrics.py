"""What is compared, what it is called, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["METRICS", "Metric"]


@dataclass(frozen=True)
class Metric:
    """What a metric is called, and which way is better."""

    title: str
    higher_is_better: bool


METRICS = {
    "throughput_tokens_per_s": Metric("output tokens/s", True),
    "throughput_requests_per_s": Metric("requests/s", True),
    "ttft_p50_s": Metric("TTFT P50", False),
    "ttft_p99_s": Metric("TTFT P99", False),
    "tpot_p50_s": Metric("TPOT P50", False),
    "e2e_p50_s": Metric("E2E P50", False),
    "tokens_per_joule": Metric("tokens a joule", True),
}
