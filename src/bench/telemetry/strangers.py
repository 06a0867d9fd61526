"""Expositions that are no supported engine's: who makes them, by names that nobody else has.

Sources: each one's own list of metrics. vLLM's production stack: src/vllm_router/services/metrics_service. The routers of SGLang and
vLLM, and SMG: their metrics.rs. Gateway API Inference Extension and llm-d: pkg/epp/metrics. NIM: "Observability" of its manual. KServe:
python/kserve/kserve/metrics.py. The others: their pages on Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_ROUTER, _PROXY, _ENGINE = "a router", "a proxy", "an engine that is not read here"


@dataclass(frozen=True)
class Stranger:
    """Attributes: title: for readers. role: what it is, in words. marks: matches the names of its samples."""

    title: str
    role: str
    marks: str


# The first that matches names the exposition; a router's own names come before those of what it runs on.
_STRANGERS = (
    Stranger(
        "vLLM production stack's router", _ROUTER, r"vllm:(?:current_qps|healthy_pods_total|num_prefill_requests|avg_latency)$"
    ),
    Stranger("vLLM's router", _ROUTER, r"vllm_router_"),
    Stranger("SGLang's router", _ROUTER, r"sgl_router_|sglang_router_"),
    Stranger("SMG", _ROUTER, r"smg_"),
    Stranger("Gateway API Inference Extension", _ROUTER, r"inference_(?:pool|model|objective|extension)_"),
    Stranger("llm-d's scheduler", _ROUTER, r"llm_d_(?:router|inference_scheduler|epp)_"),
    Stranger("AIBrix", _ROUTER, r"aibrix[_:]"),
    Stranger("Dynamo's frontend", _ROUTER, r"dynamo_frontend_"),
    Stranger("llama.cpp's router", _ROUTER, r"llamacpp_router[:_]"),
    Stranger("llama-swap", _ROUTER, r"llamaswap_|llama_swap_"),
    Stranger("Ray Serve", _ROUTER, r"ray_serve_"),
    Stranger("LiteLLM", _PROXY, r"litellm_"),
    Stranger("Envoy AI Gateway", _PROXY, r"gen_ai_"),
    Stranger("Envoy", _PROXY, r"envoy_"),
    Stranger("Istio", _PROXY, r"istio_"),
    Stranger("Kong", _PROXY, r"kong_"),
    Stranger("HAProxy", _PROXY, r"haproxy_"),
    Stranger("nginx", _PROXY, r"nginx_"),
    Stranger("Traefik", _PROXY, r"traefik_"),
    Stranger("Caddy", _PROXY, r"caddy_"),
    Stranger("NVIDIA NIM", _ENGINE, r"num_requests_running$|num_request_max$|gpu_cache_usage_perc$"),
    Stranger("Triton", _ENGINE, r"nv_(?:inference|trt_llm|model|gpu|cpu|cache|pinned)_"),
    Stranger("Text Embeddings Inference", _ENGINE, r"te_(?:request|embed|queue|batch)_"),
    Stranger("KServe", _ENGINE, r"request_(?:predict|preprocess|postprocess|explain)_seconds"),
    Stranger("OpenVINO Model Server", _ENGINE, r"ovms_"),
    Stranger("LightLLM", _ENGINE, r"lightllm_"),
    Stranger("MAX", _ENGINE, r"maxserve[_.]"),
    Stranger("Xinference", _ENGINE, r"xinference[:_]"),
    Stranger("BentoML", _PROXY, r"bentoml_"),
    Stranger("DCGM's exporter", "of GPUs", r"DCGM_FI_"),
    Stranger("node_exporter", "of a machine", r"node_(?:cpu|memory|load)"),
)


def strangers(names: Collection[str]) -> list[Stranger]:
    """Those whose samples are among `names`."""
    return [each for each in _STRANGERS if any(map(re.compile(each.marks).match, names))]
