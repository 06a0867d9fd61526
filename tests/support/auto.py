"""A project whose ladder is searched for."""

from __future__ import annotations


def searching(content, url="http://127.0.0.1:1", **search):
    """`content` with a search for the highest concurrency in place of its ladder."""
    content["study"]["ladders"] = [{"deployment": "a", "workload": "w", "concurrency": "auto", "search": search}]
    content["workloads"] = {"w": {"arrival": "closed", "prompt_tokens": 16, "output_tokens": 4, "num_requests": "auto"}}
    content["engines"]["e"] = {"source": "external", "base_url": url, "metrics": "none"}
    content["deployments"]["a"] = {"model": "m", "engine": "e", "served_name": "m"}
    content["decision"] = {"slo": ["ttft_p90=500ms"]}
    # A quiet machine is no condition of these tests.
    content["thresholds"] = dict.fromkeys(("client_delay_p99_s", "client_cpu_share", "drift"), 30) | {"other_share": 1}
    content["measurement"] = {"warmup_requests": 3, "reference_requests": 0}
    return content
