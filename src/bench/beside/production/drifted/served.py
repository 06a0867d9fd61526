"""What a server did between two scrapes: the same of a study's telemetry and of production's, so that both count alike."""

from __future__ import annotations

from itertools import combinations

import polars as pl

from bench.parse.server import labels_of, marked
from bench.servers.engines import MANAGED
from bench.servers.metrics import Catalogue

#: Columns of samples: `at_s` is seconds since whatever moment.
SAMPLES = {"instance": pl.String, "at_s": pl.Float64, "name": pl.String, "labels": pl.String, "value": pl.Float64}
#: What the table of `served` counts between two scrapes; null where the server does not expose it. Tokens, requests and seconds.
COUNTED = (
    *("requests", "prompt", "output", "hits", "queries"),
    *(f"{latency}_{part}" for latency in ("ttft", "itl", "e2e") for part in ("sum", "count")),
)
_GAP = 2.5  # times the usual time between scrapes from which on what lies between two is not used; convention: two are missing

_GAUGES = ("running", "waiting")
_TOKENS = {
    "prompt": "server_prompt_tokens",
    "output": "server_generation_tokens",
    "hits": "prefix_hits",
    "queries": "prefix_queries",
}


def read_names(catalogue: Catalogue) -> dict[str, str]:
    """The samples that `served` reads, by our names: gauges `running` and `waiting`, and of `COUNTED` those that are exposed."""
    names = catalogue.sample_names()
    found = {
        ours: names[metric]
        for ours, metric in {**dict(zip(_GAUGES, _GAUGES, strict=True)), **_TOKENS}.items()
        if metric in names
    }
    for latency in ("ttft", "itl", "e2e"):
        for part in ("sum", "count"):
            if (name := names.get(f"server_{latency}_{part}")) is not None:
                found[f"{latency}_{part}"] = name
    return found


def served(samples: pl.DataFrame, catalogue: Catalogue) -> pl.DataFrame:
    """What each instance did from one scrape to the next.

    Left out is what lies between two scrapes if some between them are missing, or if a counter fell: what was counted in between is not
    known. A series that begins later counts from its first scrape.

    Args:
        samples: as `SAMPLES` has them.

    Returns:
        One row an instance and pair of scrapes: `instance`, `at_s` (of the later one), `seconds`, `in_flight` (requests running and
        waiting at the later scrape), `running`, `restarted` (whether a counter fell; such a row has nulls) and `COUNTED`.
    """
    ours = read_names(catalogue)
    known = samples.filter(pl.col("name").is_in(list(ours.values())) & pl.col("value").is_not_nan())
    known = marked(known, catalogue.kind).filter("apart")
    scrapes = known.select("instance", "at_s").unique().sort("instance", "at_s")
    scrapes = scrapes.with_columns(seconds=pl.col("at_s").diff().over("instance"))
    usual = pl.col("seconds").median().over("instance")
    scrapes = scrapes.with_columns(whole=pl.col("seconds") <= _GAP * usual)
    series = ["instance", "name", "labels"]
    known = known.sort(*series, "at_s").with_columns(rise=pl.col("value").diff().over(series))
    counters = known.filter(~pl.col("name").is_in([ours[gauge] for gauge in _GAUGES if gauge in ours]))
    again = counters.group_by("instance", "at_s").agg(restarted=(pl.col("rise") < 0).any())
    parts = [
        known.filter(name=name)
        .group_by("instance", "at_s")
        .agg(pl.col("value" if mine in _GAUGES else "rise").sum().alias(mine))
        for mine, name in ours.items()
    ]
    table = scrapes.join(again, on=["instance", "at_s"], how="left")
    for part in parts:
        table = table.join(part, on=["instance", "at_s"], how="left")
    none_yet = {ours for ours, metric in _TOKENS.items() if metric in catalogue.zero}
    absent = [
        pl.lit(0.0 if name in none_yet else None, dtype=pl.Float64).alias(name)
        for name in (*_GAUGES, *COUNTED)
        if name not in table.columns
    ]
    table = table.with_columns(*absent, pl.col("restarted").fill_null(value=False))
    # Who looks nothing up has no cache: of all its prompt tokens none were found.
    looked_up = pl.col("queries").sum().over("instance") > 0
    table = table.with_columns(queries=pl.when(looked_up | pl.col("queries").is_null()).then("queries").otherwise("prompt"))
    table = table.with_columns(
        in_flight=pl.col("running") + pl.col("waiting"),
        requests=pl.coalesce("e2e_count", "ttft_count"),
        **dict.fromkeys(["queries", "prompt"] if _in_parts(catalogue) else [], pl.col("hits") + pl.col("prompt")),
    )
    counts = [pl.when(~pl.col("restarted")).then(name).alias(name) for name in (*COUNTED, "running", "in_flight")]
    used = table.filter(pl.col("whole") | pl.col("restarted")).sort("instance", "at_s")
    return used.select("instance", "at_s", "seconds", "restarted", *counts)


def scraped_twice(samples: pl.DataFrame) -> list[str]:
    """The labels by which the series of one server are of several scrapers, which read at times of their own, and would count all of it
    more than once.
    """
    series = samples.group_by("instance", "name", "labels").agg("at_s")
    for _, group in series.group_by("instance", "name"):
        known = [(labels_of(labels), set(times)) for labels, times in group.select("labels", "at_s").rows()]
        for (one, at), (other, then) in combinations(known, 2):
            if max(min(at), min(then)) < min(max(at), max(then)) and at.isdisjoint(then):
                return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return []


def _in_parts(catalogue: Catalogue) -> bool:
    """Whether prompt tokens are counted in two parts: those from the prefix cache, and the others."""
    return catalogue.kind is MANAGED["llama.cpp"]
