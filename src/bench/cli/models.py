"""`bench models`: the catalogue, and what of each model a GPU would hold."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from bench.cli.common import refuse_wrong_share
from bench.cli.output import print_json, print_table
from bench.engines.vllm import VLLM
from bench.errors import BenchError
from bench.fields import parse_size
from bench.models import (
    Geometry,
    geometry_of,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
    kv_pool,
    predicted_saturation,
    weight_bytes,
)
from bench.published import CatalogueEntry, catalogue

__all__ = ["run"]

_DTYPE = "bfloat16"
_GIB = 2**30


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise BenchError(f"--gpu-memory {text}: {error}.") from None


def run(options: SimpleNamespace) -> None:
    refuse_wrong_share(options.gpu_memory_utilization)
    options.gpu_memory = options.gpu_memory and _size(options.gpu_memory)
    rows = [_row(key, entry, options) for key, entry in catalogue().items()]
    if options.json:
        print_json(rows)
        return
    columns = _columns(options)
    heads, sides, texts = zip(*columns, strict=True)
    print_table([heads, *([text(row) for text in texts] for row in rows)], "".join(sides))
    if any(map(_bounded, rows)):
        print(
            f"\n> {options.max_num_seqs:,}: the KV cache would hold more requests than --max-num-seqs lets run at once; the others "
            "wait in the queue, and the cache never fills."
        )


def _row(key: str, entry: CatalogueEntry, options: SimpleNamespace) -> dict[str, Any]:
    """One model as plain data."""
    g = geometry_of(entry.config)
    tokens = options.tokens
    row = {
        "key": key,
        "hub": entry.hub,
        "licence": entry.licence,
        "source": entry.source,
        "parameters": g.parameters,
        "published_parameters": entry.parameters,
        "active_parameters": g.active_parameters,
        "attention": g.attention,
        "layers": g.layers,
        "window_layers": sum(window is not None for window in g.windows),
        "window": max((window for window in g.windows if window), default=None),
        "heads": g.heads,
        "kv_heads": g.kv_heads,
        "head_dim": g.head_dim,
        "vocabulary": g.vocabulary,
        "context": g.context,
        "kv_bytes_per_token": kv_bytes_of_sequence(g, tokens, _DTYPE) / tokens if tokens else kv_bytes_per_token(g, _DTYPE),
        "weight_bytes": weight_bytes(g, _DTYPE),
    }
    return row | (_capacity(g, options) if options.gpu_memory else {})


def _capacity(g: Geometry, options: SimpleNamespace) -> dict[str, Any]:
    """What one GPU holds; null where the weights leave nothing, or where requests are beyond the model's context."""
    overhead = VLLM().gpu_overhead(g.vocabulary, options.max_num_seqs, options.tensor_parallel)
    overhead += VLLM().gpu_padding(g, options.tensor_parallel)
    budget = int(options.gpu_memory * options.gpu_memory_utilization)
    left = budget - weight_bytes(g, _DTYPE) // options.tensor_parallel - overhead
    pool = kv_pool(g, dtype=_DTYPE, tensor_parallel=options.tensor_parallel)
    slots = pool.tokens(left)
    capacity: dict[str, Any] = {
        "overhead_bytes": overhead,
        "kv_cache_bytes": left if slots else None,
        "kv_tokens": slots // sum(count for _, count in pool.groups) if slots else None,
    }
    if options.tokens:
        full = predicted_saturation(slots, options.tokens, pool.block_size, pool.groups)
        capacity["predicted_saturation"] = full if slots and options.tokens <= g.context else None
        capacity["at_once"] = None if capacity["predicted_saturation"] is None else min(full, options.max_num_seqs)
    return capacity


def _columns(options: SimpleNamespace) -> Sequence[tuple[str, str, Any]]:
    """Head, alignment, and the cell's text from a row."""
    columns = [
        ("model", "<", lambda r: r["key"]),
        ("parameters", ">", lambda r: _count(r["parameters"])),
        ("active", ">", lambda r: _count(r["active_parameters"]) if r["active_parameters"] != r["parameters"] else ""),
        ("attention", "<", _attention),
        ("layers", ">", lambda r: str(r["layers"])),
        ("heads/KV", ">", lambda r: f"{r['heads']}/{r['kv_heads']}"),
        ("head_dim", ">", lambda r: str(r["head_dim"])),
        ("vocabulary", ">", lambda r: f"{r['vocabulary']:,}"),
        ("context", ">", lambda r: f"{r['context']:,}"),
        ("KV B/token", ">", lambda r: f"{r['kv_bytes_per_token']:,.0f}"),
        ("weights GiB", ">", lambda r: f"{r['weight_bytes'] / _GIB:.2f}"),
    ]
    if options.gpu_memory:
        columns.append(("KV tokens", ">", lambda r: f"{r['kv_tokens']:,}" if r["kv_tokens"] else "–"))
        if options.tokens:
            columns.append((f"requests of {options.tokens:,}", ">", _saturation))
    return [*columns, ("licence", "<", lambda r: r["licence"])]


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"


def _attention(row: dict[str, Any]) -> str:
    if not row["window_layers"]:
        return str(row["attention"])
    return f"{row['attention']}, {row['window_layers']} layers ≤ {row['window']:,}"


def _saturation(row: dict[str, Any]) -> str:
    full = row["predicted_saturation"]
    if full is None:
        return "–"
    text = f"{full:,.0f}" if full >= 10 else f"{full:.1f}"
    return f"{text} > {row['at_once']:,}" if _bounded(row) else text


def _bounded(row: dict[str, Any]) -> bool:
    """Whether `max_num_seqs` bounds the requests at once, and not the KV cache."""
    return row.get("predicted_saturation") is not None and row["predicted_saturation"] > row["at_once"]
