"""Workloads that are like a log: one that replays it, and one with its rate, burstiness and lengths."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.beside.traffic.describe import Described, Lengths
from bench.beside.traffic.log import Log, Whole
from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.precision import enough_requests
from bench.study.read import load_config, load_workload
from bench.study.slo import Slo, parse_slo
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.workload import Workload

#: What is written, by what it holds.
FILES = {
    "trace": "trace.csv",
    "replay": "replay.yaml",
    "resembling": "resembling.yaml",
    "study": "study.yaml",
}
_MOST_LINES = 10_000  # most lengths that a file of an empirical distribution has; of more, as many quantiles; convention


def write_load(
    log: Log, found: Described, folder: Path, base: Mapping[str, Any], scale: float, *, endpoint: str | None, template: bool
) -> list[Path]:
    """Write a trace, two workloads and a study of both.

    Args:
        base: a study, whose servers and decision are taken. scale: times as fast as the log.
        endpoint: to which requests are sent; None takes that of the study's workloads. template: whether the study is to be edited.

    Returns:
        The files. `resembling.yaml` is not among them where the log is too short to be fitted.

    Raises:
        BenchError: the folder cannot be written, or the servers cannot take the load.
    """
    sent = {"endpoint": endpoint or _endpoint(base)}
    known = ENDPOINTS.get(sent["endpoint"])
    if known and not known.work.generates:
        whose = "--endpoint" if endpoint else "The study's workloads go to"
        raise BenchError(
            f"{whose} {known.name}: its answers have no tokens, as those of the log do. Say where requests go, as --endpoint chat."
        )
    sent = sent if sent["endpoint"] != Workload.model_fields["endpoint"].default else {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / FILES["trace"]]
        with written[0].open("w", newline="", encoding="utf-8") as stream:
            lines = csv.writer(stream, lineterminator="\n")
            lines.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
            moments = (f"{moment:.6f}" for moment in log.arrival_s.tolist())
            lines.writerows(zip(moments, log.prompt_tokens.tolist(), log.output_tokens.tolist(), strict=True))
        workloads: dict[str, Any] = {"replay": {"arrival": "trace", "trace": os.fspath(written[0]), **sent}}
        levels: dict[str, Any] = {"replay": {"time_scale": [scale]}}
        if found.rate is not None and found.burstiness is not None:
            lengths = {}
            for name, of, each in (
                ("prompt_tokens", found.prompts, log.prompt_tokens),
                ("output_tokens", found.outputs, log.output_tokens),
            ):
                file = folder / f"{name.partition('_')[0]}-lengths.csv"
                lengths[name] = _distribution(of, each, file)
                written += [file] if file.exists() and isinstance(lengths[name], dict) and "file" in lengths[name] else []
            like = _arrivals(found) | sent | lengths | {"num_requests": log.count}
            # As long as the log, unless so few requests could not show that the SLOs are met.
            fewest = enough_requests(load_workload(like, source="the log"), _slos(base))
            workloads["resembling"] = like | {"num_requests": max(log.count, fewest)}
            levels["resembling"] = {"request_rate": [float(f"{found.rate * scale:.4g}")]}
        for name, workload in workloads.items():
            written.append(_write(folder / FILES[name], workload, f"A workload made by `bench traffic {log.path}`."))
        study = _study(log, base, workloads, levels)
        note = f"Made by `bench traffic {log.path}`."
        note += " CHANGE models, engines and deployments to those of your server." if template else ""
        written.append(_write(folder / FILES["study"], study, note))
    except OSError as error:
        raise BenchError(f"{error.filename or folder}: {error.strerror or error}. Name a folder that can be written.") from None
    Plan.of(load_config(study, source=os.fspath(written[-1])), source=os.fspath(written[-1]))
    return written


def _endpoint(base: Mapping[str, Any]) -> str:
    default = Workload.model_fields["endpoint"].default
    found = {str(each.get("endpoint", default)) for each in (base.get("workloads") or {}).values()} or {default}
    if len(found) > 1:
        raise BenchError(
            f"The study's workloads go to several endpoints: {', '.join(sorted(found))}. Say which with --endpoint."
        )
    return found.pop()


def _slos(base: Mapping[str, Any]) -> list[Slo]:
    return [parse_slo(str(text)) for text in (base.get("decision") or {}).get("slo") or ()]


def _arrivals(found: Described) -> dict[str, Any]:
    assert found.burstiness
    if found.burstiness.poisson:
        return {"arrival": "poisson"}
    return {"arrival": "gamma", "burstiness": float(f"{found.burstiness.shape:.3g}")}


def _distribution(of: Lengths, lengths: Whole, file: Path) -> Any:
    """The fitted distribution where it is close; else the lengths themselves, in `file`."""
    if of.percentiles["min"] == of.percentiles["max"]:
        return int(of.percentiles["min"])
    if of.fit and of.fit.close:
        fit = of.fit
        return {
            "distribution": "lognormal",
            "median": min(float(fit.high), max(float(fit.low), float(f"{fit.median:.4g}"))),  # rounded, within the ends
            "sigma": float(f"{fit.sigma:.4g}"),
            "min": fit.low,
            "max": fit.high,
        }
    kept = np.sort(lengths)
    if len(kept) > _MOST_LINES:
        kept = np.quantile(kept, (np.arange(_MOST_LINES) + 0.5) / _MOST_LINES, method="inverted_cdf").astype(np.int64)
    file.write_text("".join(f"{length}\n" for length in kept.tolist()), encoding="utf-8")
    return {"distribution": "empirical", "file": os.fspath(file)}


def _study(log: Log, base: Mapping[str, Any], workloads: Mapping[str, Any], levels: Mapping[str, Any]) -> dict[str, Any]:
    deployments = base.get("deployments") or {}
    ladders = [{"deployment": deployment, "workload": name, **levels[name]} for deployment in deployments for name in workloads]
    servers = {key: value for key, value in base.items() if key != "select"}
    title = f"What does the traffic of {Path(log.path).name} get?"
    return {**servers, "study": {"title": title, "ladders": ladders}, "workloads": dict(workloads)}


def _write(file: Path, content: Mapping[str, Any], note: str) -> Path:
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    file.write_text(f"# {note}\n{text}", encoding="utf-8")
    return file
