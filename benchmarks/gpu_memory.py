"""What vLLM keeps of a GPU beside weights and KV cache: by our rules, and by logs of its starts.

`tests/data/vllm_memory.jsonl` has what each log says, and where it was published. `assumed` names what the log does not say, and is
taken as that version's default or, of the GPU's memory, as logs of the same GPU have it. What was fitted to which of them:
docs/explanation/memory.md.
"""

from __future__ import annotations

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
from benchmarks.harness import Referee, print_table

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
    Referee(__doc__).options()
    found, lines = starts(), []
    for era in dict.fromkeys(map(_era, found)):
        of = [each for each in found if _era(each) == era]
        off = sorted(abs(each.predicted - each.logged) for each in of)
        logged, errors = [each.logged for each in of], [each.error for each in of]
        lines.append([era, len(of), f"{min(logged):.1f} to {max(logged):.1f}", f"{statistics.median(off):.2f}, {off[-1]:.2f}",
                      f"{min(errors):+.1%} to {max(errors):+.1%}"])  # fmt: skip
    print_table(["vLLM", "starts", "kept, GiB", "off by, GiB: median, worst", "KV cache off by"], lines)


if __name__ == "__main__":
    main()
