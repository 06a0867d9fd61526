"""What was scraped during a run, as OpenMetrics with times: Prometheus takes it in, and Grafana shows it beside production."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl

from bench.parse.fleet import FLEET
from bench.parse.server import labels_of


def open_metrics(row: Mapping[str, Any], telemetry: pl.DataFrame) -> Iterator[str]:
    """The lines of a run's samples, series by series in the order of time.

    Each series has the labels `job` (the deployment), `instance` (what was scraped) and `run`; one that it has of its own under these
    names is called `exported_job`, as Prometheus does. Sums over a fleet's workers are left out, or they would count twice. Of each
    sample's type nothing is known by now, so it is `unknown`.

    Source: openmetrics.io, specification 1.0.

    Args:
        row: of the summary. telemetry: of the run, with `TELEMETRY_SCHEMA`.
    """
    began = datetime.fromisoformat(row["started"]).timestamp()
    known = telemetry.filter(pl.col("endpoint") != FLEET).sort("name", "endpoint", "labels", "elapsed_s")
    for (name,), samples in known.group_by("name", maintain_order=True):
        yield f"# TYPE {name} unknown"
        for (endpoint, labels), series in samples.group_by("endpoint", "labels", maintain_order=True):
            given = {"job": row["deployment"], "instance": _instance(str(endpoint)), "run": row["run"]}
            own = {f"exported_{key}" if key in given else key: value for key, value in labels_of(str(labels)).items()}
            marks = ",".join(f'{key}="{_escaped(value)}"' for key, value in sorted({**own, **given}.items()))
            for elapsed, value in series.select("elapsed_s", "value").iter_rows():
                yield f"{name}{{{marks}}} {_number(value)} {began + elapsed:.3f}"
    yield "# EOF"


def _instance(endpoint: str) -> str:
    """The name that Prometheus has for it: `http://10.0.0.5:8000/metrics` is 10.0.0.5:8000; GPUs keep the scraper's."""
    return endpoint.split("://", 1)[1].split("/", 1)[0] if "://" in endpoint else endpoint


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))
