"""What a real vLLM exposes."""

from __future__ import annotations

import re
from pathlib import Path

from bench.servers.metrics import find_catalogue

__all__ = ["sample_name", "with_catalogue"]

_EXPOSITION = Path(__file__).parent.parent / "tests/data/vllm-0.32.0.prom"


def with_catalogue(series: int) -> list[str]:
    """The lines of an exposition of `series` series, all that we read among them: of the rest the last ones are left out."""
    lines = _EXPOSITION.read_text().splitlines()
    exposed = {sample_name(line) for line in lines if not line.startswith("#")}
    needed = set(find_catalogue(exposed).sample_names().values())
    spare = [i for i, line in enumerate(lines) if not line.startswith("#") and sample_name(line) not in needed]
    excess = sum(not line.startswith("#") for line in lines) - series
    dropped = set(spare[-excess:]) if excess > 0 else set()
    return [line for i, line in enumerate(lines) if i not in dropped]


def sample_name(line: str) -> str:
    """The name before a sample's labels or value."""
    return re.split(r"[{ ]", line, maxsplit=1)[0]
