"""How near a request that is alone comes to what its device allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import polars as pl

from bench.axes import CONCURRENCY
from bench.models.catalogue import Accelerator
from bench.models.geometry import BLOCK_BYTES, DTYPE_BYTES, Geometry
from bench.models.model import Model
from bench.parse.windows import level_values
from bench.servers.deployment import Deployment
from bench.servers.plan import Demand, Setting, plan
from bench.servers.spec import DeploymentSpec


@dataclass(frozen=True, kw_only=True)
class Server:
    """A deployment, for the ceilings of its speed."""

    geometry: Geometry
    settings: Deployment


@dataclass(frozen=True)
class Ceiling:
    """The speed of one request, as a share (0–1) of the highest that bandwidth and FLOP/s allow; None where it is not known."""

    deployment: str
    workload: str
    decode: float | None
    prefill: float | None


def servers_of(specs: Iterable[DeploymentSpec], geometry: Callable[[Model], Geometry | None]) -> dict[str, Server]:
    """The deployments whose model's geometry is known, by name."""
    return {
        spec.name: Server(geometry=shape, settings=spec.deployment)
        for spec in specs
        if (shape := geometry(spec.model)) is not None
    }


def ceilings(runs: pl.DataFrame, servers: Mapping[str, Server], device: Accelerator) -> Iterator[Ceiling]:
    """The speeds of requests that were alone beside their ceilings: 1 ÷ TPOT P50, and prompt ÷ TTFT P50, where no prefix came from the
    cache. Args: runs: summary rows. device: that all of them ran on.
    """
    alone = runs.filter("valid", axis=CONCURRENCY, level=1)
    for (name, workload), part in alone.group_by("deployment", "workload", maintain_order=True):
        if (server := servers.get(str(name))) is None:
            continue
        prompt, output = (cast("float", part[f"{key}_tokens"].mean()) for key in ("prompt", "output"))
        allowed = plan(server.geometry, device, Demand(round(prompt), round(output)), _setting(server.settings))["ceilings"]
        computed = part.filter(pl.col("prefix_hit_rate").fill_null(0) == 0)  # a prompt that a cache served was not
        (tpot,), (ttft,) = (
            level_values(rows, [column])[column].to_list() or [None]
            for rows, column in ((part, "tpot_p50_s"), (computed, "ttft_p50_s"))
        )
        decode = tpot and 1 / tpot / allowed["decode_tokens_per_s_at_context"]
        prefill = ttft and allowed["ttft_s"] / ttft
        if decode or prefill:
            yield Ceiling(str(name), str(workload), decode, prefill)


def _setting(deployment: Deployment) -> Setting:
    """A request that is alone passes one pipeline stage after the other, in one engine: the devices of a stage are all that it has."""
    weights = "bfloat16" if deployment.dtype == "auto" else deployment.dtype
    cache = weights if deployment.kv_cache_dtype == "auto" else deployment.kv_cache_dtype
    kv_dtype = cache if cache in {*DTYPE_BYTES, *BLOCK_BYTES} else weights
    return Setting(dtype=weights, kv_dtype=kv_dtype, tensor_parallel=deployment.tensor_parallel)
