"""Predicted beside measured: KV capacity, saturation, and the ceilings of speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import polars as pl

from bench.analysis.level_values import level_values
from bench.axes import CONCURRENCY
from bench.models.accelerators import Accelerator
from bench.models.geometry import BLOCK_BYTES, DTYPE_BYTES, Geometry
from bench.servers.demand import Demand, Setting
from bench.servers.deployment import Deployment
from bench.servers.plan import plan

Quantity = Literal["kv_capacity", "saturation", "decode", "prefill"]


@dataclass(frozen=True)
class Prediction:
    """One quantity of one deployment.

    Attributes:
        quantity: KV capacity (tokens), saturation (requests), or the speed of one request's decoding or prefill (tokens/s). predicted,
            measured: its values. workload: None for the KV capacity. below: of a saturation, the highest level that did not fill the
            cache; None where there is none. levels_apart: of a saturation, how many levels above the predicted one it was measured.
    """

    deployment: str
    quantity: Quantity
    predicted: float
    measured: float
    workload: str | None = None
    below: float | None = None
    levels_apart: int | None = None

    @property
    def ceiling(self) -> bool:
        """Whether the prediction is one that nothing can exceed, and `ratio` a share of it."""
        return self.quantity in ("decode", "prefill")

    @property
    def ratio(self) -> float:
        """Measured ÷ predicted."""
        return self.measured / self.predicted


def predictions(
    runs: pl.DataFrame,
    saturation: pl.DataFrame,
    *,
    geometries: Mapping[str, Geometry],
    deployments: Mapping[str, Deployment],
    device: Accelerator | None,
) -> list[Prediction]:
    """What was predicted before the runs and measured in them; nothing where either is not known.

    KV capacity: of the launch plan, and as the server reports it. Saturation: KV tokens ÷ tokens a request, and the lowest level that
    filled the cache. Ceilings: of `bench plan`, for `device`, beside the speed of a request that was alone: 1 ÷ TPOT P50, and
    prompt ÷ TTFT P50, where no prefix came from the cache.

    Args:
        runs: summary rows. saturation: of `saturation`. geometries, deployments: by deployment. device: that all of them ran on.
    """
    found = []
    for name, part in ((str(key[0]), group) for key, group in runs.group_by("deployment", maintain_order=True)):
        planned, reported = part["kv_tokens_planned"].drop_nulls(), part["kv_tokens"].drop_nulls()
        if len(planned) and len(reported):
            found.append(Prediction(name, "kv_capacity", planned[0], reported[0]))
        known = saturation.filter((pl.col("deployment") == name) & pl.col("predicted").is_not_null())
        for row in known.drop_nulls("measured").iter_rows(named=True):
            found.append(
                Prediction(
                    name,
                    "saturation",
                    row["predicted"],
                    row["measured"],
                    row["workload"],
                    below=row["below"],
                    levels_apart=row["levels_apart"],
                )
            )
        if device is not None and name in geometries:
            found += _speeds(name, part, geometries[name], deployments[name], device)
    return found


def _speeds(name: str, runs: pl.DataFrame, geometry: Geometry, deployment: Deployment, device: Accelerator) -> list[Prediction]:
    """The speeds of requests that were alone, beside their ceilings."""
    alone = runs.filter(pl.col("valid") & (pl.col("axis") == CONCURRENCY) & (pl.col("level") == 1))
    weights = "bfloat16" if deployment.dtype == "auto" else deployment.dtype
    cache = weights if deployment.kv_cache_dtype == "auto" else deployment.kv_cache_dtype
    # A request that is alone passes one pipeline stage after the other, in one engine: the devices of a stage are all that it has.
    setting = Setting(
        dtype=weights,
        kv_dtype=cache if cache in {*DTYPE_BYTES, *BLOCK_BYTES} else weights,
        tensor_parallel=deployment.tensor_parallel,
    )
    found = []
    for workload, part in ((str(key[0]), group) for key, group in alone.group_by("workload", maintain_order=True)):
        prompt, output = (cast("float", part[f"{key}_tokens"].mean()) for key in ("prompt", "output"))
        ceilings = plan(geometry, device, Demand(round(prompt), round(output)), setting)["ceilings"]
        computed = part.filter(pl.col("prefix_hit_rate").fill_null(0) == 0)  # a prompt that a cache served was not
        (tpot,), (ttft,) = (
            level_values(rows, [column])[column].to_list() or [None]
            for rows, column in ((part, "tpot_p50_s"), (computed, "ttft_p50_s"))
        )
        speeds: list[tuple[Quantity, float | None, float]] = [
            ("decode", tpot and 1 / tpot, ceilings["decode_tokens_per_s_at_context"]),
            ("prefill", ttft and prompt / ttft, prompt / ceilings["ttft_s"]),
        ]
        found += [Prediction(name, quantity, ceiling, speed, workload) for quantity, speed, ceiling in speeds if speed]
    return found
