"""Several engines behind a router as one: their series added up, a row for each of them, and which were not as the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.server import gauges, marked, requests_served, server_figures
from bench.runs.run import DECODE, PREFILL, Worker, of_role
from bench.servers.engines import MANAGED
from bench.servers.metrics import GAUGES, HISTOGRAMS, MEANS, SHARES, Catalogue, find_catalogue

FLEET = "fleet"  # stands for an endpoint: the series of all workers together
# Of workers with roles: whose samples are the fleet's; all others are those of the decode workers.
# vLLM counts requests that wait for their KV cache to arrive as waiting, too: such a queue shows no lack of room.
_OF_NONE = ("waiting",)
_OF_PREFILL = ("server_prompt_tokens", "prefix_queries", "prefix_hits")
_OF_BOTH = ("preemptions", *(f"{name}_sum" for name in HISTOGRAMS))
_LABEL = "saturate_worker"  # which keeps the workers' series apart, as an engine's own labels do those of its ranks


def fleet_telemetry(
    samples: pl.DataFrame, scrapes: pl.DataFrame, workers: Sequence[Worker]
) -> tuple[pl.DataFrame, list[float]]:
    """The workers' samples as those of one endpoint, `FLEET`, and when its scrapes arrived (s since the start).

    Each series has its worker as one more label, so that whatever adds up an engine's series adds up the fleet's. The share of the KV
    cache in use is one series, of what all caches hold together. No sum is one of some workers alone: a scrape counts if every worker
    answered, a gauge in it if every worker has it, and a counter if every worker exposes it or had nothing to count.

    Where workers have roles, no request counts twice. Prompts, and what prefix caches had of them, are the prefill workers'. Requests,
    tokens and KV caches are the decode workers'. Preemptions and times add up, as each request is at one and then at the other: the
    mean of a time is what a request took at both. Their queue is not known.

    Args:
        samples, scrapes: of all endpoints, as `scrape_tables` gives them.
    """
    places = _answered(scrapes, [worker.endpoint for worker in workers])
    received = places.unique("slot").sort("slot")["received_s"].to_list()
    names = [_names(samples, worker) for worker in workers]
    kinds = {found.kind for found in names}
    if places.is_empty() or len(kinds) > 1:
        return pl.DataFrame(schema=TELEMETRY_SCHEMA), received
    shared = samples.filter(pl.col("value").is_not_nan()).join(places, on=["endpoint", "scrape"], maintain_order="left")
    spelled = _spelled(names)
    parts = []
    for worker, found in zip(workers, names, strict=True):
        theirs = {
            name: spelled[ours] for ours, name in found.sample_names().items() if ours in spelled and _counting(ours, [worker])
        }
        parts.append(
            shared.filter(pl.col("endpoint") == worker.endpoint, pl.col("name").is_in(list(theirs))).with_columns(
                scrape="slot", name=pl.col("name").replace(theirs), labels=_labelled(worker), worker=pl.lit(worker.name)
            )
        )
    together = pl.concat(parts)
    moments = together.unique(["scrape", "worker"]).group_by("scrape").agg(pl.col("elapsed_s").mean())
    together = together.drop("elapsed_s").join(moments, on="scrape", maintain_order="left")
    of_each_scrape = {spelled[gauge]: len(_counting(gauge, workers)) for gauge in (*GAUGES, *MEANS) if gauge in spelled}
    shares = {spelled[gauge] for gauge in SHARES if gauge in spelled}
    needed = pl.col("name").replace_strict(of_each_scrape, default=0, return_dtype=pl.UInt32)
    together = together.filter(pl.col("worker").n_unique().over("scrape", "name") >= needed)
    summed = pl.concat(
        [
            together.filter(~pl.col("name").is_in(list(shares))),
            _shares(marked(together.filter(pl.col("name").is_in(list(shares))), kinds.pop()), of_role(workers, DECODE)),
        ],
        how="diagonal",
    )
    return summed.with_columns(endpoint=pl.lit(FLEET)).select(*TELEMETRY_SCHEMA).sort("scrape", maintain_order=True), received


def _answered(scrapes: pl.DataFrame, endpoints: Sequence[str]) -> pl.DataFrame:
    """Each worker's scrapes that all of them answered: `endpoint`, `scrape`, `slot` (the number that they share) and `received_s` (the
    latest of all; s).

    They share their numbers but for the last one, which each has as soon as it can after the load.
    """
    theirs = scrapes.filter(pl.col("endpoint").is_in(list(endpoints)))
    slot = pl.when("last").then(pl.lit(theirs["scrape"].max(), pl.Int32)).otherwise("scrape")
    answered = theirs.filter(pl.col("error").is_null()).select("endpoint", "scrape", "received_s", slot=slot)
    return answered.filter(pl.col("endpoint").n_unique().over("slot") == len(endpoints)).with_columns(
        pl.col("received_s").max().over("slot")
    )


def _names(samples: pl.DataFrame, worker: Worker) -> Catalogue:
    own = samples.filter(pl.col("endpoint") == worker.endpoint)
    return find_catalogue(own["name"].unique().to_list(), worker.engine_version)


def _spelled(found: Sequence[Catalogue]) -> dict[str, str]:
    """The one name of each sample that the fleet has: those that every worker exposes, or has nothing to count for."""
    spelled: dict[str, str] = {}
    for names in found:
        for ours, name in names.sample_names().items():
            metric = next((m for m in names.names if ours in (m, f"{m}_sum", f"{m}_count")), ours)
            if all(metric in each.names or metric in each.zero for each in found):
                spelled.setdefault(ours, name)
    return spelled


def _counting(ours: str, workers: Sequence[Worker]) -> list[Worker]:
    if ours in _OF_NONE and any(worker.role for worker in workers):
        return []
    if ours in _OF_BOTH:
        return list(workers)
    return of_role(workers, PREFILL if ours in _OF_PREFILL else DECODE)


def _labelled(worker: Worker) -> pl.Expr:
    own = f"{_LABEL}={json.dumps(worker.name, ensure_ascii=False)}"
    return pl.when(pl.col("labels") == "").then(pl.lit(own)).otherwise(pl.concat_str("labels", pl.lit(f",{own}")))


def _shares(samples: pl.DataFrame, workers: Sequence[Worker]) -> pl.DataFrame:
    """The share of all KV caches together that is in use; nothing where it is not known what each holds.

    Engines of one worker, each with a cache of its own, have caches of one size: what they hold together is the mean of their shares.

    Args:
        samples: with the column `apart` of `marked`.
    """
    sizes = _sizes(workers)
    if sizes is None or samples.is_empty():
        return samples.clear()
    whole = sum(sizes.values())
    return (
        samples.filter("apart")
        .group_by("scrape", "name", "worker")
        .agg(pl.col("value").mean(), pl.col("elapsed_s").first())
        .with_columns(held=pl.col("value") * pl.col("worker").replace_strict(sizes, return_dtype=pl.Float64) / whole)
        .group_by("scrape", "name")
        .agg(value=pl.col("held").sum(), elapsed_s=pl.col("elapsed_s").first())
        .with_columns(labels=pl.lit(""))
    )


def _sizes(workers: Sequence[Worker]) -> dict[str, float] | None:
    """What each worker's KV cache holds (tokens, or blocks of one size); None where it is not known of all."""
    tokens = {worker.name: worker.kv_tokens for worker in workers}
    blocks = {worker.name: worker.kv_blocks for worker in workers}
    alike = len({worker.block_size for worker in workers}) == 1 and workers[0].block_size is not None
    for sizes in (tokens, *([blocks] if alike else [])):
        known = {name: float(size) for name, size in sizes.items() if size}
        if len(known) == len(workers):
            return known
    return None


def worker_rows(
    samples: pl.DataFrame, times: Mapping[str, float | None], workers: Sequence[Worker], window: tuple[float, float]
) -> list[dict[str, Any]]:
    """A row for each worker, as `bench.runs.columns.WORKER_FIELDS` has it; null where a worker does not show it.

    Args:
        samples: of all endpoints. times: the longest time without a scrape of each endpoint (s). window: of the load (s); means are
            taken over it.
    """
    return [
        _row(samples.filter(pl.col("endpoint") == worker.endpoint), times.get(worker.endpoint), worker, window)
        for worker in workers
    ]


def _row(own: pl.DataFrame, gap_s: float | None, worker: Worker, window: tuple[float, float]) -> dict[str, Any]:
    figures = server_figures(own, scraped=not own.is_empty(), version=worker.engine_version)
    course = gauges(own).filter(pl.col("elapsed_s").is_between(*window)) if len(own) else None
    means = dict(course.group_by("gauge").agg(pl.col("value").mean()).iter_rows()) if course is not None else {}
    usage, peak = means.get("kv_usage"), figures["kv_usage_peak"]
    running = means.get("running")
    if worker.role == PREFILL:  # vLLM's gauges are those after a step, which ended its requests
        running = usage = peak = None
    if (kind := MANAGED.get(worker.kind or "")) and kind.slots and worker.kv_blocks:
        # Each request holds a slot of the KV cache.
        usage, peak = (None if n is None else n / worker.kv_blocks for n in (means.get("running"), figures["running_peak"]))
    hits, queries = figures["prefix_hits"], figures["prefix_queries"]
    return {
        "worker": worker.name,
        "role": worker.role,
        "requests": requests_served(own),
        "prompt_tokens": figures["server_prompt_tokens"],
        "generation_tokens": figures["server_generation_tokens"],
        "running_mean": running,
        "waiting_mean": means.get("waiting"),
        "kv_usage_mean": usage,
        "kv_usage_peak": peak,
        "prefix_hit_rate": hits / queries if queries and hits is not None else None,
        "version": worker.engine_version,
        "kv_tokens": worker.kv_tokens,
        "kv_blocks": worker.kv_blocks,
        "restarts": _restarts(own),
        "scrape_gap_s": gap_s,
        "metrics_missing": figures["metrics_missing"],
    }


def _restarts(own: pl.DataFrame) -> int | None:
    """How often it was started again during the run: its start time changed, or a counter's sum fell; None without a scrape."""
    if own.is_empty():
        return None
    begun = own.filter(pl.col("name") == "process_start_time_seconds").sort("scrape")
    moved = pl.col("value").diff().over("labels").abs() > 1.0  # a worker may show several processes, each with its own start
    samples = find_catalogue(own["name"].unique().to_list()).sample_names()
    counters = [name for ours, name in samples.items() if ours not in (*GAUGES, *MEANS)]
    sums = own.filter(pl.col("name").is_in(counters)).group_by("scrape", "name").agg(pl.col("value").sum()).sort("scrape")
    falls: list[int] = sums.group_by("name").agg(n=(pl.col("value").diff() < 0).sum())["n"].to_list()
    return max(begun.filter(moved)["scrape"].n_unique(), *falls)


Check = Literal["silent", "restarted", "version"]


@dataclass(frozen=True)
class WorkerVerdict:
    """One way in which a worker was not as the others of its fleet.

    Attributes:
        worker: its name. check: which way. value: longest time without a scrape (s; None: none at all), number of restarts, or
            version. usual: the version that most others have.
    """

    worker: str
    check: Check
    value: float | str | None
    usual: str | None = None


def worker_verdicts(workers: Sequence[Mapping[str, Any]], scrape_gap_s: float) -> list[WorkerVerdict]:
    """What sets workers of one run apart.

    Args:
        workers: rows of `bench.runs.columns.WORKER_FIELDS`. scrape_gap_s: longest time without a scrape that is not a gap.
    """
    found = []
    for row in workers:
        if row["scrape_gap_s"] is None or row["scrape_gap_s"] > scrape_gap_s:
            found.append(WorkerVerdict(row["worker"], "silent", row["scrape_gap_s"]))
        if row["restarts"]:
            found.append(WorkerVerdict(row["worker"], "restarted", row["restarts"]))
    versions = Counter(row["version"] for row in workers if row["version"] is not None)
    for usual, _ in versions.most_common(1):
        others = [row for row in workers if row["version"] not in (None, usual)]
        found += [WorkerVerdict(row["worker"], "version", row["version"], usual) for row in others]
    return found


def workers_of_runs(runs: pl.DataFrame, scrape_gap_s: float) -> dict[str, dict[str, list[WorkerVerdict]]]:
    """What sets workers apart, by deployment and run; a fleet's deployment is there even if nothing does."""
    found: dict[str, dict[str, list[WorkerVerdict]]] = {}
    for row in runs.filter(pl.col("workers").is_not_null()).select("deployment", "run", "workers").iter_rows(named=True):
        found.setdefault(row["deployment"], {})[row["run"]] = worker_verdicts(row["workers"], scrape_gap_s)
    return found
