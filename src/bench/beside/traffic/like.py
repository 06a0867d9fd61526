"""Workloads of a log: one that replays it, and bursts of its median lengths."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from bench.beside.traffic.log import Log
from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.read import load_config

_BURSTS = (1, 8, 64)  # requests of each: `bench fleet` predicts no steps that are far larger than those measured; convention


def write_load(log: Log, folder: Path, base: Mapping[str, Any], scale: float, *, template: bool) -> list[Path]:
    """Write a trace, a workload that replays it, bursts that show what large steps cost, and a study of both.

    Args:
        base: a study, whose servers, decision and first workload's endpoint are taken. scale: times as fast as the log.
        template: whether the study is to be edited.

    Returns:
        The files.

    Raises:
        BenchError: the folder cannot be written, or the servers cannot take the load.
    """
    first: Mapping[str, Any] = next(iter((base.get("workloads") or {}).values()), {})
    sent = {"endpoint": first["endpoint"]} if "endpoint" in first else {}
    prompt, output = (max(1, round(float(np.median(lengths)))) for lengths in (log.prompt_tokens, log.output_tokens))
    trace, note = folder / "trace.csv", f"Made by `bench traffic {log.path}`."
    workloads: dict[str, Any] = {
        "replay": {"arrival": "trace", "trace": os.fspath(trace), **sent},
        "burst": {"arrival": "burst", "prompt_tokens": prompt, "output_tokens": output, **sent},
    }
    levels: dict[str, Any] = {"replay": {"time_scale": [scale]}, "burst": {"concurrency": [*_BURSTS]}}
    ladders = [
        {"deployment": deployment, "workload": name, **levels[name]}
        for deployment in base.get("deployments") or {}
        for name in workloads
    ]
    title = f"What does the traffic of {Path(log.path).name} get?"
    study = {key: value for key, value in base.items() if key != "select"}
    study |= {"study": {"title": title, "ladders": ladders}, "workloads": workloads}
    change = " CHANGE models, engines and deployments to those of your server." if template else ""
    texts = {name: (note, workload) for name, workload in workloads.items()} | {"study": (note + change, study)}
    columns = {"arrival_s": log.arrival_s, "prompt_tokens": log.prompt_tokens, "output_tokens": log.output_tokens}
    written = [trace]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pl.DataFrame(columns | ({} if log.users is None else {"user": log.users})).write_csv(trace, float_precision=6)
        for name, (head, content) in texts.items():
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
            written.append(folder / f"{name}.yaml")
            written[-1].write_text(f"# {head}\n{text}", encoding="utf-8")
    except OSError as error:
        raise BenchError(f"{error.filename or folder}: {error.strerror or error}. Name a writable folder.") from None
    Plan.of(load_config(study, source=os.fspath(written[-1])), source=os.fspath(written[-1]))
    return written
