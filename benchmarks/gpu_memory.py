"""What vLLM keeps of a GPU beside weights and KV cache: by our rules, and by logs of its starts.

    python -m benchmarks.gpu_memory          # a second
    python -m benchmarks.gpu_memory --all    # each log

`tests/data/vllm_memory.jsonl` has what each log says, and where it was published. `assumed` names what the log does not say, and is
taken as that version's default or, of the GPU's memory, as logs of the same GPU have it. What was fitted to which of them:
docs/explanation/memory.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.models.catalogue import catalogue
from bench.models.config_json import geometry_of
from bench.models.geometry import Geometry
from bench.servers.kind import OnGpu
from bench.servers.vllm_memory import kept

_ROOT = Path(__file__).resolve().parents[1]
_GIB = 2**30


@dataclass(frozen=True)
class Start:
    """A start of vLLM as its log has it.

    Attributes:
        row: what the log says. predicted, logged: what is kept beside weights and KV cache (GiB).
    """

    row: Mapping[str, Any]
    predicted: float
    logged: float

    @property
    def error(self) -> float:
        """Share of the KV cache by which the predicted one is larger."""
        return (self.logged - self.predicted) / self.row["kv_gib"]


def starts() -> list[Start]:
    """All of them, by version."""
    lines = (_ROOT / "tests/data/vllm_memory.jsonl").read_text().splitlines()
    found = (_ROOT / "tests/data/model_facts/configs.jsonl").read_text().splitlines()
    configs = {row["name"]: row["config"] for row in map(json.loads, found)}
    known = {key: entry.config for key, entry in catalogue().items()}
    return [_start(row, geometry_of(known.get(row["config"]) or configs[row["config"]])) for row in map(json.loads, lines)]


def _start(row: Mapping[str, Any], geometry: Geometry) -> Start:
    on = OnGpu(
        memory=round(row["gpu_memory_gib"] * _GIB),
        bytes_each=row.get("bytes_each", 2),
        max_num_seqs=row["max_num_seqs"],
        step_tokens=row["max_num_batched_tokens"],
        tensor_parallel=row["tensor_parallel"],
        version=row["vllm"],
        graphs=not row.get("enforce_eager"),
    )
    terms = kept(geometry, on)
    predicted = (sum(terms.values()) - terms["driver"]) / _GIB  # a log has the memory that vLLM sees
    return Start(row, predicted, row["gpu_memory_gib"] * row["gpu_memory_utilization"] - row["weights_gib"] - row["kv_gib"])


def _era(start: Start) -> str:
    """Minor version, and whether the log says all."""
    version = ".".join(start.row["vllm"].split(".")[:2])
    return f"{version}{', in part assumed' if start.row.get('assumed') else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="each log")
    options = parser.parse_args()
    found = starts()
    if options.all:
        print("| vLLM | model | GPU | tp | sequences | tokens a step | kept, GiB | predicted | KV cache off by |")
        print("|---|---|---|--:|--:|--:|--:|--:|--:|")
        for each in found:
            cells = [
                each.row[key] for key in ("vllm", "model", "gpu", "tensor_parallel", "max_num_seqs", "max_num_batched_tokens")
            ]
            print("|", " | ".join(map(str, cells)), f"| {each.logged:.2f} | {each.predicted:.2f} | {each.error:+.1%} |")
        return
    print("| vLLM | starts | kept, GiB | off by, GiB: median, worst | KV cache off by |\n|---|--:|--:|--:|--:|")
    for era in dict.fromkeys(map(_era, found)):
        of = [each for each in found if _era(each) == era]
        off = sorted(abs(each.predicted - each.logged) for each in of)
        logged, errors = [each.logged for each in of], [each.error for each in of]
        print(
            f"| {era} | {len(of)} | {min(logged):.1f} to {max(logged):.1f} | {statistics.median(off):.2f}, {off[-1]:.2f} | "
            f"{min(errors):+.1%} to {max(errors):+.1%} |"
        )


if __name__ == "__main__":
    main()
