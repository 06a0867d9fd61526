"""A run's numbers as a benchmark report 0.2 of llm-d-benchmark, which inference-perf writes too.

Source: schema_v0_2.py of llm-d-benchmark (llmdbenchmark/analysis/benchmark_report); inference-perf 0.7 has a copy of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import yaml

from bench import __version__
from bench.errors import BenchError
from bench.report.render import render
from bench.runs.files import digest

_DESCRIPTION = (
    "Measured by Saturate. Times begin when the bytes of a request are sent, and end with its last token. TPOT is "
    "(E2E - TTFT) / (n - 1); percentiles are nearest ranks. Throughput is that of answered requests from the first one sent to "
    "the last token."
)
_GPU = re.compile(r"\d+ × (.+)")  # as `Hardware.in_short` has it
# What a deployment is, for the hash of its configuration; and a load.
_SERVER = ["model", "engine", "engine_version", "hardware"]
_CONFIGURED = [*_SERVER, "dtype", "kv_cache_dtype", "max_model_len", "max_num_seqs", "environment"]
_LOAD = ["workload", "arrival", "axis", "level", "repeat", "seed", "endpoint", "stream"]
_NEEDS = {"units": "mean", "component_label": "aggregate"}  # keys, and those without which they say nothing
_EMPTY = ("native", "metadata")  # which the schema asks for


def benchmark_report(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The report of one run, as plain data. What is not known is left out; without one known kind of GPU the server is generic.

    Args:
        figures: a row of the summary table.

    Raises:
        BenchError: another tool measured it, or it is a fleet's.
    """
    row = defaultdict(lambda: None, figures)
    if row["prompts"] == "imported":
        raise BenchError(
            f"{row['run']}: another tool measured it, by its own definitions. Give its result file to llm-d-benchmark, "
            "which makes the report."
        )
    if row["workers"]:
        raise BenchError(
            f"{row['run']}: a fleet answered it, but the report can name only one engine. Name a run of one server."
        )
    gpus = {found[1] for part in str(row["hardware"]).split(", ") if (found := _GPU.fullmatch(part))}
    rate, prompt, made = row["throughput_requests_per_s"], row["counted_prompt_tokens"], row["throughput_tokens_per_s"]
    read = None if rate is None or prompt is None else rate * prompt
    numbers = {
        "row": row,
        "uid": row["digest"] or digest([row["deployment"], row["run"]]),
        "cfg_id": digest({name: row[name] for name in _CONFIGURED}),
        "config": {name: row[name] for name in _LOAD},
        "gpu": gpus.pop() if row["gpus"] and len(gpus) == 1 else None,
        "duration": None if row["duration_s"] is None else f"PT{row['duration_s']:.6f}S",
        "description": _DESCRIPTION,
        "version": __version__,
        "prompt": prompt,
        "read": read,
        "made": made,
        "both": None if read is None or made is None else read + made,
    }
    text = render("bench.beside.interop.export", "benchmark-report.j2", **numbers)
    report: dict[str, Any] = _known(yaml.safe_load(text))
    return report


def _known(content: Any) -> Any:
    """Without nulls, and what is empty without them."""
    if isinstance(content, list):
        return [each for each in map(_known, content) if each not in (None, {}, [])]
    if not isinstance(content, dict):
        return content
    known = {key: _known(value) for key, value in content.items()}
    known = {key: value for key, value in known.items() if value not in (None, {}, []) or key in _EMPTY}
    return {} if any(key in known and needed not in known for key, needed in _NEEDS.items()) else known
