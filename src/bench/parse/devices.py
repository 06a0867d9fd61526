"""What the GPUs reported during a run: how busy they were, what they held and what they drew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from bench.parse.server import FEWEST_SCRAPES
from bench.servers.gpu_metrics import DEVICE_NAMES, NO_VALUE, is_nvml

DEVICE_SERIES = ("gpu_utilisation", "gpu_memory_bytes", "gpu_power_w")  # over time, a series a GPU
_SAMPLES = {"elapsed_s": pl.Float64, "gpu": pl.String, "metric": pl.String, "value": pl.Float64}


def device_samples(telemetry: pl.DataFrame) -> pl.DataFrame:
    """What GPUs reported, one row a moment, GPU and metric: `elapsed_s` (s), `gpu`, `metric` (our name), `value` (in our unit).

    `gpu` is its index, with its MIG instance where it is one (`0`, `0:7`), and before it the host or the UUID where two share that.
    The scraper's own look at NVML knows the server's GPUs; where it reported anything, exporters, which may report all of the
    machine's, are left out. Of several exporters that report a GPU the first counts, and of one that reports a GPU and its instances
    the whole GPU.

    Args:
        telemetry: the samples of all endpoints.
    """
    reported = telemetry.filter(
        pl.col("name").is_in(list(DEVICE_NAMES)) & (pl.col("value") < NO_VALUE) & pl.col("value").is_not_nan()
    )
    local = [endpoint for endpoint in reported["endpoint"].unique() if is_nvml(endpoint)]
    if local:
        reported = reported.filter(pl.col("endpoint").is_in(local))
    if reported.is_empty():
        return pl.DataFrame(schema=_SAMPLES)
    identity = ["endpoint", "name", "labels"]
    return (
        reported.join(_series(reported.select(identity).unique(maintain_order=True)), on=identity, maintain_order="left")
        .with_columns(value=pl.col("value") * pl.col("factor"))
        .group_by("elapsed_s", "gpu", "metric", maintain_order=True)
        .agg(pl.col("value").first())  # a GPU that several containers share may be reported once for each
        .select(*_SAMPLES)
        .sort("elapsed_s", maintain_order=True)
    )


def _series(identities: pl.DataFrame) -> pl.DataFrame:
    """The label sets that count, each with its `metric`, `factor` and `gpu`."""
    card, instance = ["card"], pl.col("instance")
    known = identities.with_columns(
        metric=pl.col("name").replace_strict({name: ours for name, (ours, _) in DEVICE_NAMES.items()}),
        factor=pl.col("name").replace_strict({name: factor for name, (_, factor) in DEVICE_NAMES.items()}),
        index=_label("gpu").fill_null("?"),
        instance=_label("GPU_I_ID"),
        host=_label("Hostname", "hostname"),
        card=_label("UUID", "uuid", "gpu_uuid", "gpu").fill_null("?"),
    )
    known = known.filter(instance.is_null() | instance.is_not_null().all().over(card))
    known = known.filter(pl.col("endpoint") == pl.col("endpoint").first().over("card", "instance", "metric"))
    name = pl.concat_str(["index", instance.fill_null("")], separator=":").str.strip_suffix(":")
    devices = known.select("card", "instance", "host", name=name).unique(["card", "instance"], maintain_order=True)
    shared = pl.len().over("name") > 1
    apart = pl.when(pl.col("host").n_unique().over("name") == pl.len().over("name")).then("host").otherwise("card")
    devices = devices.with_columns(gpu=pl.when(shared).then(pl.format("{}:{}", apart, "name")).otherwise("name"))
    return known.join(
        devices.select("card", "instance", "gpu"), on=["card", "instance"], nulls_equal=True, maintain_order="left"
    )


def _label(*names: str) -> pl.Expr:
    return pl.coalesce(pl.col("labels").str.extract(rf'(?:^|,){name}="((?:[^"\\]|\\.)*)"') for name in names)


def device_figures(devices: pl.DataFrame, window: tuple[float, float], tokens: int | None) -> dict[str, Any]:
    """The GPUs over the load, from the first request sent to the last token.

    A value is null where one of the GPUs does not report it, and a mean or an energy also where one was read fewer than five times: an
    exporter that reads its GPUs every 30 s repeats itself until then, which shows in its energy counter: that should always rise.

    Args:
        devices: of `device_samples`. window: when the load began and ended (s). tokens: output tokens of the load; None where
            they are not known.

    Returns:
        The summary's columns: utilisation (0–1; over GPUs and samples, and the least and most of the GPUs' means), memory of the
        fullest (bytes), power (W) and energy (J) of all GPUs together, tokens per joule. Nothing where no GPU reported anything.
    """
    if devices.is_empty():
        return {}
    gpus = [_Gpu(rows, window) for rows in devices.partition_by("gpu", maintain_order=True)]
    busy = _of_all([gpu.mean("gpu_utilisation") for gpu in gpus])
    held = _of_all([gpu.peak("gpu_memory_bytes") for gpu in gpus])
    drawn = _of_all([gpu.mean("gpu_power_w") for gpu in gpus])
    used = _of_all([gpu.energy() for gpu in gpus])
    energy = sum(used) if used else None
    return {
        "gpu_count_seen": len(gpus),
        "gpu_utilisation_mean": sum(busy) / len(busy) if busy else None,
        "gpu_utilisation_min": min(busy, default=None),
        "gpu_utilisation_max": max(busy, default=None),
        "gpu_memory_peak_bytes": max(held, default=None),
        "gpu_power_mean_w": sum(drawn) if drawn else None,
        "gpu_energy_j": energy,
        "tokens_per_joule": tokens / energy if energy and tokens is not None else None,
    }


def _of_all(values: Sequence[float | None]) -> list[float]:
    """The values, where every GPU has one; none otherwise: a sum or a mean over some of the GPUs would be another quantity."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


class _Gpu:
    """The course of one GPU: of each metric its moments (s) and values; `_during`, its values during the load alone."""

    def __init__(self, rows: pl.DataFrame, window: tuple[float, float]) -> None:
        self._window = window
        self._course = {str(metric): group["elapsed_s", "value"] for (metric,), group in rows.group_by("metric")}
        if not (self._of("gpu_energy_j")["value"] > 0).any():
            self._course.pop("gpu_energy_j", None)  # a counter that was never fed

    def _of(self, metric: str) -> pl.DataFrame:
        return self._course.get(metric, pl.DataFrame(schema=["elapsed_s", "value"], schema_overrides=_SAMPLES))

    def _during(self, metric: str) -> pl.Series:
        return self._of(metric).filter(pl.col("elapsed_s").is_between(*self._window))["value"]

    def _read_enough(self, metric: str) -> bool:
        fresh = self._during("gpu_energy_j").n_unique() if "gpu_energy_j" in self._course else FEWEST_SCRAPES
        return min(len(self._during(metric)), fresh) >= FEWEST_SCRAPES

    def peak(self, metric: str) -> float | None:
        """The highest value during the load."""
        return self._during(metric).max()  # type: ignore[return-value]

    def mean(self, metric: str) -> float | None:
        """The mean of the samples during the load."""
        return self._during(metric).mean() if self._read_enough(metric) else None  # type: ignore[return-value]

    def energy(self) -> float | None:
        """What it drew during the load (J): by its counter, or, where it has none or it fell, by its power, integrated.

        Between two samples a line. Null where the load began before the first sample or ended after the last: nothing is extrapolated.
        """
        counted = "gpu_energy_j" in self._course and (self._course["gpu_energy_j"]["value"].diff().drop_nulls() >= 0).all()
        metric = "gpu_energy_j" if counted else "gpu_power_w"
        at, values = (self._of(metric)[name].to_numpy() for name in ("elapsed_s", "value"))
        begin, end = self._window
        if not self._read_enough(metric) or begin < at[0] or end > at[-1]:
            return None
        moments = np.array([begin, *at[(at > begin) & (at < end)], end])
        drawn = np.interp(moments, at, values)
        return float(drawn[-1] - drawn[0] if counted else np.trapezoid(drawn, moments))
