"""What was meant by a key or a word that is none: by what other tools call it, and else by how it is spelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Our keys and words with what vLLM, llama.cpp, SGLang, GuideLLM, AIPerf, inference-perf and a model's config.json call them. A name may
# stand with several; the first that there is at its place is meant.
_ELSEWHERE = {
    "kv_cache_memory": ("kv_cache_size", "kv_cache_memory_bytes", "kv_cache_space", "kv_cache", "kv_memory"),
    "kv_cache_dtype": ("kv_dtype", "cache_type_k", "cache_type_v"),
    "gpu_memory_utilization": ("gpu_memory_utilisation", "gpu_memory_fraction", "mem_fraction_static"),
    "max_num_seqs": ("max_batch_size", "max_running_requests", "max_concurrency", "parallel", "n_parallel", "np"),
    "concurrency": ("max_concurrency", "concurrencies", "streams"),
    "request_rate": ("rate", "rates", "rps", "qps", "requests_per_second"),
    "peak_rps": ("rps", "qps", "peak_qps", "peak"),
    "tensor_parallel": ("tensor_parallel_size", "tp", "tp_size"),
    "pipeline_parallel": ("pipeline_parallel_size", "pp", "pp_size"),
    "data_parallel": ("data_parallel_size", "dp", "dp_size"),
    "prompt_tokens": ("isl", "input_len", "input_length", "input_tokens", "prompt_len", "prompt_length", "random_input_len"),
    "output_tokens": ("osl", "output_len", "output_length", "max_tokens", "random_output_len"),
    "num_requests": ("num_prompts", "request_count", "max_requests", "requests"),
    "duration_s": ("duration", "max_seconds", "max_duration"),
    "context": ("max_model_len", "ctx_size", "n_ctx", "max_position_embeddings"),
    "flags": ("max_model_len", "max_num_batched_tokens", "args", "extra_args", "server_args"),
    "environment": ("env",),
    "prefix_caching": ("enable_prefix_caching", "prefix_cache"),
    "served_name": ("served_model_name",),
    "base_url": ("url", "target", "host"),
    "hub": ("hf_id", "model_id", "repo"),
    "layers": ("num_hidden_layers", "num_layers"),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "vocabulary": ("vocab_size",),
    "slo": ("slos", "goodput"),
    # Words that keys take.
    "closed": ("concurrent", "concurrency"),
    "poisson": ("rate", "request_rate", "open"),
    "cuda": ("gpu",),
    "float16": ("fp16", "half"),
    "float32": ("fp32",),
    "fp8": ("fp8_e4m3", "fp8_e5m2"),
    "chat": ("chat_completions", "chat/completions", "v1/chat/completions"),
}


def meant(key: str, known: Iterable[str]) -> str | None:
    """The one of the `known` keys or words that was meant; None where none comes near."""
    known, written = list(known), key.lower().replace("-", "_")
    if written in known:
        return written
    elsewhere = next((ours for ours, theirs in _ELSEWHERE.items() if written in theirs and ours in known), None)
    return elsewhere or next(iter(difflib.get_close_matches(key, known, n=1)), None)
