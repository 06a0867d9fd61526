"""What a real vLLM exposes, as the benchmarks of the scraper and the parser serve it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["first_series"]

_EXPOSITION = Path(__file__).parent.parent / "tests/data/vllm-0.32.0.prom"


def first_series(series: int) -> list[str]:
    """The lines of an exposition up to its first `series` series, comments among them."""
    lines: list[str] = []
    for line in _EXPOSITION.read_text().splitlines():
        lines.append(line)
        series -= not line.startswith("#")
        if not series:
            break
    return lines
