"""Workloads of a log: one that replays it, and bursts of its median lengths."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from bench.beside.traffic.arrivals import Described
from bench.beside.traffic.log import Log, Whole
from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.read import load_config

_BURSTS, _MOST_BURST = (1, 8, 16), 64  # requests of each burst, the largest of 16 to 64; convention


def write_load(
    log: Log, found: Described, folder: Path, base: Mapping[str, Any], scale: float, *, template: bool
) -> list[Path]:
    """Write a trace, a workload that replays it, bursts that show what large steps cost, and a study of both.

    Args:
        base: a study, whose servers, decision and first workload's endpoint are taken. scale: times as fast as the log.
        template: whether the study is to be edited.

    Returns:
        The files.

    Raises:
        BenchError: the folder cannot be written, or the servers cannot take the load.
    """
    workload: Mapping[str, Any] = next(iter((base.get("workloads") or {}).values()), {})
    sent = {key: workload[key] for key in ("endpoint",) if key in workload}
    note = f"Made by `bench traffic {log.path}`."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / "trace.csv"]
        columns = {"arrival_s": log.arrival_s, "prompt_tokens": log.prompt_tokens, "output_tokens": log.output_tokens}
        columns |= {} if log.users is None else {"user": log.users}
        pl.DataFrame(columns).write_csv(written[0], float_precision=6)
        medians = {"prompt_tokens": _median(log.prompt_tokens), "output_tokens": _median(log.output_tokens)}
        workloads: dict[str, Any] = {
            "replay": {"arrival": "trace", "trace": os.fspath(written[0]), **sent},
            "burst": {"arrival": "burst", **medians, **sent},
        }
        levels: dict[str, Any] = {"replay": {"time_scale": [scale]}, "burst": {"concurrency": _bursts(log, found, scale)}}
        written += [_write(folder / f"{name}.yaml", workload, note) for name, workload in workloads.items()]
        ladders = [
            {"deployment": deployment, "workload": name, **levels[name]}
            for deployment in base.get("deployments") or {}
            for name in workloads
        ]
        title = f"What does the traffic of {Path(log.path).name} get?"
        study = {key: value for key, value in base.items() if key != "select"}
        study |= {"study": {"title": title, "ladders": ladders}, "workloads": workloads}
        change = " CHANGE models, engines and deployments to those of your server." if template else ""
        written.append(_write(folder / "study.yaml", study, note + change))
    except OSError as error:
        raise BenchError(f"{error.filename or folder}: {error.strerror or error}. Name a writable folder.") from None
    Plan.of(load_config(study, source=os.fspath(written[-1])), source=os.fspath(written[-1]))
    return written


def _bursts(log: Log, found: Described, scale: float) -> list[int]:
    """Requests of bursts, within bounds as many as the log's fullest second has, or as make its longest prompt of median ones.

    A replay has steps of so many tokens, and `bench fleet` predicts none that are far larger than those that were measured.
    """
    *fewer, least = _BURSTS
    fullest = found.windows[0].peak * found.windows[0].seconds * scale if found.windows else 0.0
    longest = log.prompt_tokens.max() / _median(log.prompt_tokens)
    return [*fewer, min(_MOST_BURST, math.ceil(max(least, fullest, longest)))]


def _median(lengths: Whole) -> int:
    return max(1, round(float(np.median(lengths))))


def _write(file: Path, content: Mapping[str, Any], note: str) -> Path:
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    file.write_text(f"# {note}\n{text}", encoding="utf-8")
    return file
