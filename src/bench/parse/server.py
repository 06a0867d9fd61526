"""What the server counted during a run: its own figures, the tokens of its answers, and how much of what it drafted it kept."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from bench.servers.kind import Kind
from bench.servers.metrics import COUNTERS, GAUGES, HISTOGRAMS, MEANS, SHARES, apart, exposition_names, find_catalogue
from bench.workloads.endpoints.kind import Work

_LABEL = re.compile(r'([^=,]+)=("(?:[^"\\]|\\.)*")')  # as `bench.parse.scrapes` writes it
FEWEST_SCRAPES = 5  # fewest scrapes that support a mean or a share; convention


def gauges(telemetry: pl.DataFrame) -> pl.DataFrame:
    """The gauges over time, one row a scrape and gauge: `scrape`, `elapsed_s`, `gauge` (our name), `value`.

    Of several engines behind one endpoint the values add up, and of ranks that share their requests one counts; of shares the highest
    of all counts. NaN does not count.
    """
    exposed = telemetry.filter(pl.col("name").is_in(exposition_names(GAUGES)) & pl.col("value").is_not_nan())
    found = find_catalogue(exposed["name"].unique().to_list())
    ours = {found.names[gauge]: gauge for gauge in GAUGES if gauge in found.names}
    return (
        marked(exposed.filter(pl.col("name").is_in(list(ours))), found.kind)
        .with_columns(gauge=pl.col("name").replace(ours))
        .group_by("scrape", "elapsed_s", "gauge")
        .agg(total=pl.col("value").filter("apart").sum(), highest=pl.col("value").max())
        .with_columns(value=pl.when(pl.col("gauge").is_in(SHARES)).then("highest").otherwise("total"))
        .select("scrape", "elapsed_s", "gauge", "value")
        .sort("scrape", "gauge")
    )


def gauge_table(telemetry: pl.DataFrame, begin: float, end: float) -> pl.DataFrame:
    """The gauges between two moments (s), one row a scrape, in order: `running`, `waiting`, `kv_usage`; null where there is none."""
    within = gauges(telemetry).filter(pl.col("elapsed_s").is_between(begin, end))
    return within.pivot("gauge", on_columns=list(GAUGES), index="scrape", values="value").sort("scrape")


def server_means(telemetry: pl.DataFrame, metric: str) -> pl.DataFrame:
    """A gauge of means over time, one row a scrape that has it: `scrape`, `elapsed_s`, `value`, the mean over a server's engines.

    Args:
        metric: one of `MEANS`.
    """
    names, shown = _shown(telemetry, [metric])
    return shown.filter(name=names.get(metric, "")).group_by("scrape", "elapsed_s").agg(pl.col("value").mean()).sort("scrape")


def rises(telemetry: pl.DataFrame, samples: Sequence[str]) -> list[float | None]:
    """What each of these counters, or of histograms `…_sum` and `…_count`, rose by from the first scrape to the last; None of one that
    is not there or that fell.
    """
    names, shown = _shown(telemetry, samples)
    rose = _rises(shown, telemetry["scrape"])[0]
    return [rose.get(names.get(sample, "")) for sample in samples]


def _shown(telemetry: pl.DataFrame, samples: Sequence[str]) -> tuple[dict[str, str], pl.DataFrame]:
    """What the server calls our samples; and the series of these that count each request once."""
    found = find_catalogue(telemetry["name"].unique().to_list())
    names = found.sample_names()
    wanted = [names[sample] for sample in samples if sample in names]
    known = telemetry.filter(pl.col("name").is_in(wanted) & pl.col("value").is_not_nan())
    return names, marked(known, found.kind).filter("apart").drop("apart")


def requests_served(telemetry: pl.DataFrame) -> float | None:
    """Requests that the server ended, or else began to answer, between the first scrape and the last; None without its histograms."""
    ended, begun = rises(telemetry, ("server_e2e_count", "server_ttft_count"))
    return begun if ended is None else ended


def marked(samples: pl.DataFrame, kind: Kind | None) -> pl.DataFrame:
    """The samples, with a column `apart`: whether a series is one of those that add up (`bench.servers.metrics.apart`)."""
    series = samples.select("name", "labels").unique(maintain_order=True)
    if kind is None or not (kind.repeats or kind.totals):
        return samples.with_columns(apart=pl.lit(True))
    parts = []
    for (_,), group in series.group_by("name", maintain_order=True):
        places = set(apart([labels_of(text) for text in group["labels"]], kind))
        parts.append(group.with_columns(apart=pl.Series([place in places for place in range(len(group))], dtype=pl.Boolean)))
    marks = pl.concat(parts) if parts else series.with_columns(apart=pl.lit(True))
    return samples.join(marks, on=["name", "labels"], how="left", maintain_order="left")


def labels_of(text: str) -> dict[str, str]:
    """The labels of a series, of their text in a table of telemetry."""
    return {name: json.loads(value) for name, value in _LABEL.findall(text)}


def server_figures(telemetry: pl.DataFrame, *, scraped: bool, version: str | None = None) -> dict[str, Any]:
    """Our metrics over the run: gauges as their peak, counters and histograms as what they rose by; null where the engine has none,
    and where every gauge was 0 at every scrape though the engine generated tokens, or may have: none came while it did.

    A metric that it should expose and that no scrape has, or that one lacks (or has as NaN) after it was first there, is named in
    `metrics_missing`. A counter that falls, or one of whose label sets goes away, has lost what it counted: it is null here, and
    named in `counters_fell`. Both make the run invalid. Of ranks that share their requests one counts.

    Args:
        telemetry: the samples of the engine's endpoint. scraped: whether any scrape succeeded, though it may have been empty.
        version: the engine's, where it is known.
    """
    scrapes = telemetry["scrape"].unique()
    ours = exposition_names((*GAUGES, *MEANS, *COUNTERS, *HISTOGRAMS))
    exposed = telemetry.filter(pl.col("name").is_in(ours) & pl.col("value").is_not_nan())
    others = set(telemetry["name"].unique()) - set(ours)
    catalogue = find_catalogue(others | set(exposed["name"].unique()), version)
    samples = catalogue.sample_names()
    exposed = exposed.filter(pl.col("name").is_in(list(samples.values())))
    counted = marked(exposed, catalogue.kind).filter("apart").drop("apart")
    seen = {name: (n, first) for name, n, first in
            exposed.group_by("name").agg(n=pl.col("scrape").n_unique(), first=pl.col("scrape").min()).iter_rows()}  # fmt: skip
    missing = list(catalogue.missing) if scraped else []
    for metric, name in catalogue.names.items():
        n, first = seen[f"{name}_sum" if metric in HISTOGRAMS else name]
        if n < (scrapes >= first).sum() and not catalogue.late:
            missing.append(f"{metric} ({name} was there at first)")
    rises, fell = _rises(
        counted.filter(~pl.col("name").is_in([samples[g] for g in (*GAUGES, *MEANS) if g in samples])), scrapes
    )
    peaks = dict(gauges(exposed).group_by("gauge").agg(pl.col("value").max()).iter_rows())
    figures: dict[str, Any] = {f"{gauge}_peak": peaks.get(gauge) for gauge in GAUGES}
    figures |= {name: 0.0 if name in catalogue.zero else rises.get(samples.get(name, "")) for name in COUNTERS}
    if (figures["server_generation_tokens"] or catalogue.late) and not any(peaks.values()):  # no scrape fell into a request
        figures |= {f"{gauge}_peak": None for gauge in GAUGES}
    for name in HISTOGRAMS:
        count, total = (rises.get(samples.get(f"{name}_{part}", "")) for part in ("count", "sum"))
        figures[f"{name}_mean_s"] = total / count if count and total is not None else None
    figures["server_ttft_n"] = rises.get(samples.get("server_ttft_count", ""))
    return {**figures, "metrics_missing": sorted(missing), "counters_fell": fell}


def _rises(counters: pl.DataFrame, scrapes: pl.Series) -> tuple[dict[str, float], list[str]]:
    """What each counter rose by from the first scrape to the last, over all of its label sets, and the names of those that fell.

    A label set that comes later counts from 0.
    """
    if counters.is_empty():
        return {}, []
    first, last = scrapes.min(), scrapes.max()
    series = (
        counters.sort("scrape")
        .group_by("name", "labels")
        .agg(
            rise=pl.col("value").last()
            - pl.when(pl.col("scrape").first() == first).then(pl.col("value").first()).otherwise(0.0),
            fell=(pl.col("value").diff() < 0).any() | (pl.col("scrape").last() != last),
        )
        .group_by("name")
        .agg(pl.col("rise").sum(), pl.col("fell").any())
        .sort("name")
    )
    return dict(series.filter(~pl.col("fell")).select("name", "rise").iter_rows()), series.filter("fell")["name"].to_list()


FULL = 0.99  # KV usage from which a cache is full; convention
_PINNED = 0.02  # relative range of running requests below which an unknown limit holds them; tuned: benchmarks.capacity, seed 5


def saturated() -> pl.Expr:
    """Whether a run filled the KV cache: a request could not be admitted, or had to be preempted; null where that is not known.

    Definition: docs/reference/metrics.md. vLLM preempts only when no block is free, and the counter sees what the gauge, scraped five
    times a second, can miss. It admits a prompt whole or not at all, and keeps a block for itself.

    Args (columns):
        `kv_usage_peak`, `kv_usage_queued` (0–1), `waiting_standing`, `running_peak`, `max_num_seqs` (requests), `preemptions`,
        `kv_tokens`, `kv_blocks` (of all `engines` together, whose fullest one the usage is of), `prompt_tokens_p90` (null where
        unknown).
    """
    engines = pl.col("engines").fill_null(1)
    block = pl.col("kv_tokens") / pl.col("kv_blocks")
    free = (1 - pl.col("kv_usage_queued")) * pl.col("kv_tokens") / engines
    slots = pl.col("running_peak") < pl.col("max_num_seqs").fill_null(math.inf) * engines
    refused = (pl.col("waiting_standing") > 0) & (free < pl.col("prompt_tokens_p90") + 2 * block.fill_null(0)) & slots
    signs = (pl.col("preemptions") > 0, pl.col("kv_usage_peak") >= FULL, refused)
    # Any sign decides; without one, it is not known where the gauge or the counter is missing.
    return (
        pl.when(pl.any_horizontal(sign.fill_null(False) for sign in signs))
        .then(True)
        .otherwise(pl.when(pl.col("kv_usage_peak").is_not_null()).then(False))
    )


def pinned(running: float, high: float) -> bool:
    """Whether an unknown bound holds the requests that run while others wait. Args: running, high: their mean, and the most."""
    return high <= (1 + _PINNED) * running + 0.5


def counted_tokens(answered: pl.DataFrame, work: Work) -> int | None:
    """Tokens of answered requests that `work` counts; None where the server did not count those of each one."""
    counts = answered[work.counts]
    return None if counts.null_count() else int(counts.sum())


def counted_bounds(requests: pl.DataFrame, telemetry: pl.DataFrame) -> dict[str, int | None]:
    """The least and the most that the counter of generated tokens may have risen by from the first scrape to the last.

    An answer was certainly counted if its request left after the first scrape and it ended before what the last one shows. Requests
    that failed may have cost as many tokens as they asked for, or none. Prompt tokens are no such measure: some engines leave cached
    ones out, others count them again after a preemption.

    Args:
        requests: `outcome`, `sent_s`, `end_s`, `completion_tokens`, `output_asked`. telemetry: the samples of the engine's endpoint.
    """
    if telemetry.is_empty():
        return {"server_tokens_least": None, "server_tokens_most": None}
    first, last = telemetry["elapsed_s"].min(), telemetry["elapsed_s"].max()
    sent = requests.filter(pl.col("sent_s").is_not_null())
    ok = pl.col("outcome") == "ok"
    certain = sent.filter(ok & (pl.col("sent_s") >= first) & (pl.col("end_s") <= last))
    least = int(certain["completion_tokens"].sum() or 0)
    each = sent.select(pl.when(ok).then(pl.coalesce("completion_tokens", "output_asked")).otherwise("output_asked")).to_series()
    most = None if each.null_count() else int(each.sum() or 0)  # a natural answer that failed may have cost any number
    return {"server_tokens_least": least or None, "server_tokens_most": most}


def speculation_figures(telemetry: pl.DataFrame) -> dict[str, float | None]:
    """Acceptance between the first and the last of these scrapes; null where the server reports nothing, or drafted nothing.

    A server with a gauge alone, SGLang, has the mean of its values while requests ran. The value that stood at first is older than
    these scrapes, and is left out until it changes.

    Args:
        telemetry: the samples of the engine's endpoint.

    Source: vLLM's vllm/v1/spec_decode/metrics.py (0.32), whose mean acceptance length counts the token that the model itself adds.
    """
    drafts, drafted, accepted = rises(telemetry, ("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"))
    rate = accepted / drafted if accepted is not None and drafted else None
    length = 1 + accepted / drafts if accepted is not None and drafts else None
    return {"acceptance_rate": rate, "accepted_length": _mean_length(telemetry) if drafts is None else length}


def _mean_length(telemetry: pl.DataFrame) -> float | None:
    shown = server_means(telemetry, "spec_accepted_length")
    fresh = shown.with_columns(changed=(pl.col("value") != pl.col("value").first()).cum_max()).filter("changed")
    busy = gauges(telemetry).filter((pl.col("gauge") == "running") & (pl.col("value") > 0))
    values = fresh.join(busy.select("scrape"), on="scrape").filter(pl.col("value") > 0)["value"]
    return float(values.mean()) if len(values) >= FEWEST_SCRAPES else None  # type: ignore[arg-type]
