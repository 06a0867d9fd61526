"""`bench models`: the catalogue, and what of each model a GPU would hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from bench.cli import defaults
from bench.cli.checks import refuse_wrong_share
from bench.cli.entry import command
from bench.cli.options import GpuMemoryUtilization, Json, MaxNumSeqs, TensorParallel, at_least_one, option
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, shown_gib

if TYPE_CHECKING:
    from bench.models import Geometry
    from bench.published import CatalogueEntry

_DTYPE = "bfloat16"


@command(
    "bench models",
    "bench models --gpu-memory 80GiB --tokens 2048",
    "bench models --gpu-memory 93.6GiB --max-num-seqs 1024 --tokens 640 --json",
)
@dataclass(frozen=True, kw_only=True)
class Models:
    """`models.NAME.catalogue` of a study takes these names. Parameters, KV bytes a token and weights are computed from each model's
    published config.json, for 16-bit weights (a quantised checkpoint keeps its own) and a 16-bit KV cache.
    """

    gpu_memory: Annotated[
        str | None, option("SIZE", "Memory of one GPU, such as 80GiB: adds the tokens that its KV cache would hold.")
    ] = None
    tokens: Annotated[
        int | None,
        option(
            "N",
            "Prompt + output of a request. KV bytes a token are those of such a sequence, fewer where layers have a window; with "
            "--gpu-memory, adds the number of requests at which the KV cache is full.",
            parser=at_least_one,
        ),
    ] = None
    gpu_memory_utilization: GpuMemoryUtilization = defaults.GPU_MEMORY_UTILIZATION
    tensor_parallel: TensorParallel = defaults.TENSOR_PARALLEL
    max_num_seqs: MaxNumSeqs = defaults.MAX_NUM_SEQS
    json: Json = False

    def run(self) -> None:
        """Print the catalogue."""
        from bench.published import catalogue

        refuse_wrong_share(self.gpu_memory_utilization)
        memory = _size(self.gpu_memory) if self.gpu_memory else None
        rows = [self._row(key, entry, memory) for key, entry in catalogue().items()]
        if self.json:
            print_json(rows)
            return
        heads, sides, texts = zip(*self._columns(), strict=True)
        print_table([heads, *([text(row) for text in texts] for row in rows)], "".join(sides))
        if any(map(_bounded, rows)):
            print(
                f"\n> {self.max_num_seqs:,}: the KV cache would hold more requests than --max-num-seqs lets run at once; the others "
                "wait in the queue, and the cache never fills."
            )

    def _row(self, key: str, entry: CatalogueEntry, memory: int | None) -> dict[str, Any]:
        """One model as plain data."""
        from bench.models import geometry_of_entry, kv_bytes_of_sequence, kv_bytes_per_token, weight_bytes

        g = geometry_of_entry(entry)
        tokens = self.tokens
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
        return row | (self._capacity(g, memory) if memory else {})

    def _capacity(self, g: Geometry, memory: int) -> dict[str, Any]:
        """What one GPU holds; null where the weights leave nothing, or where requests are beyond the model's context."""
        from bench.engines.kind import OnGpu
        from bench.engines.vllm import VLLM
        from bench.models import DTYPE_BYTES, kv_pool, predicted_saturation, weight_bytes

        on = OnGpu(memory, DTYPE_BYTES[_DTYPE], self.max_num_seqs, tensor_parallel=self.tensor_parallel)
        overhead = VLLM().gpu_overhead(g, on)
        overhead += VLLM().gpu_padding(g, self.tensor_parallel)
        budget = int(memory * self.gpu_memory_utilization)
        left = budget - weight_bytes(g, _DTYPE) // self.tensor_parallel - overhead
        pool = kv_pool(g, dtype=_DTYPE, tensor_parallel=self.tensor_parallel)
        slots = pool.tokens(left)
        capacity: dict[str, Any] = {
            "overhead_bytes": overhead,
            "kv_cache_bytes": left if slots else None,
            "kv_tokens": slots // sum(count for _, count in pool.groups) if slots else None,
        }
        if self.tokens:
            full = predicted_saturation(slots, self.tokens, pool.block_size, pool.groups)
            capacity["predicted_saturation"] = full if slots and self.tokens <= g.context else None
            capacity["at_once"] = None if capacity["predicted_saturation"] is None else min(full, self.max_num_seqs)
        return capacity

    def _columns(self) -> Sequence[tuple[str, str, Any]]:
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
            ("weights GiB", ">", lambda r: shown_gib(r["weight_bytes"])),
        ]
        if self.gpu_memory:
            columns.append(("KV tokens", ">", lambda r: f"{r['kv_tokens']:,}" if r["kv_tokens"] else "–"))
            if self.tokens:
                columns.append((f"requests of {self.tokens:,}", ">", _saturation))
        return [*columns, ("licence", "<", lambda r: r["licence"])]


def _size(text: str) -> int:
    from bench.fields import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise BenchError(f"--gpu-memory {text}: {error}.") from None


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
