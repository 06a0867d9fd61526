"""What a server did between two scrapes: the same of a study's telemetry and of production's, whose names and raw samples a
Prometheus kept, so that both count alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import polars as pl
import requests

from bench import http
from bench.bounds import PATIENCE_S
from bench.errors import BenchError, shown
from bench.parse.server import marked
from bench.servers.engines import MANAGED
from bench.servers.metrics import Catalogue

#: Columns of samples: `at_s` is seconds since whatever moment.
SAMPLES = {"instance": pl.String, "at_s": pl.Float64, "name": pl.String, "labels": pl.String, "value": pl.Float64}
_GAUGES = ("running", "waiting")
_READ = {
    "running": "running",
    "waiting": "waiting",
    "prompt": "server_prompt_tokens",
    "output": "server_generation_tokens",
    "hits": "prefix_hits",
    "queries": "prefix_queries",
    **{f"{of}_{part}": f"server_{of}_{part}" for of in ("ttft", "itl", "e2e") for part in ("sum", "count")},
}
_GAP = 2.5  # times the usual time between scrapes from which on what lies between two is not used; convention: two are missing


def read_names(catalogue: Catalogue) -> dict[str, str]:
    """The samples that `served` reads, by our names."""
    names = catalogue.sample_names()
    return {ours: names[metric] for ours, metric in _READ.items() if metric in names}


def served(samples: pl.DataFrame, catalogue: Catalogue) -> pl.DataFrame:
    """What each instance did from one scrape to the next.

    Left out is what lies between two scrapes if some between them are missing, or if a counter fell: what was counted in between is not
    known. A series that begins later counts from its first scrape.

    Args:
        samples: as `SAMPLES` has them.

    Returns:
        One row an instance and pair of scrapes: `instance`, `at_s` (of the later one), `seconds`, `in_flight` (requests running and
        waiting at the later scrape), `running`, `requests`, and of tokens and latencies what was counted; null where the server does
        not expose it.
    """
    names, scrape = read_names(catalogue), ["instance", "at_s"]
    ours = pl.col("name").replace_strict({theirs: ours for ours, theirs in names.items()}, default=None)
    known = samples.with_columns(ours=ours).filter(pl.col("ours").is_not_null() & pl.col("value").is_not_nan())
    known = marked(known, catalogue.kind).filter("apart").sort("at_s")
    rise, gauge = pl.col("value").diff().over("instance", "name", "labels"), pl.col("ours").is_in(_GAUGES)
    known = known.with_columns(fell=(rise < 0) & ~gauge, shown=pl.when(gauge).then("value").otherwise(rise))
    scrapes = known.group_by(scrape).agg(fell=pl.col("fell").any()).sort(scrape)
    seconds = pl.col("at_s").diff().over("instance")
    scrapes = scrapes.with_columns(seconds=seconds, whole=seconds <= _GAP * seconds.median().over("instance"))
    sums = known.group_by(*scrape, "ours").agg(pl.col("shown").sum()).pivot("ours", index=scrape, values="shown")
    absent = {name: 0.0 if metric in catalogue.zero else None for name, metric in _READ.items() if name not in sums.columns}
    table = scrapes.join(sums, on=scrape, how="left").with_columns(
        pl.lit(value, dtype=pl.Float64).alias(name) for name, value in absent.items()
    )
    # Who looks nothing up has no cache: of all its prompt tokens none were found.
    looked_up = pl.col("queries").sum().over("instance") > 0
    queries = pl.when(looked_up | pl.col("queries").is_null()).then("queries").otherwise("prompt")
    in_flight, requests = pl.col("running") + pl.col("waiting"), pl.coalesce("e2e_count", "ttft_count")
    table = table.with_columns(queries=queries, in_flight=in_flight, requests=requests)
    if catalogue.kind is MANAGED["llama.cpp"]:  # it counts prompt tokens in two parts: from the prefix cache, and the others
        both = pl.col("hits") + pl.col("prompt")
        table = table.with_columns(prompt=both, queries=both)
    return table.filter("whole", ~pl.col("fell")).sort(scrape)


def _written(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())


@dataclass(frozen=True)
class Window:
    """The series of a server, or of several alike ones, over a time. Its methods raise BenchError where Prometheus does not answer.

    Attributes:
        url: of Prometheus. labels: that its series have. begin, end: of the time (s since 1970).
    """

    url: str
    labels: Mapping[str, str]
    begin: float
    end: float

    @property
    def chosen(self) -> str:
        """The labels as PromQL writes them."""
        return f"{{{_written(self.labels)}}}"

    def names(self) -> list[str]:
        """Every metric that the server exposed in this time; BenchError where there is none."""
        # Names by `label/__name__/values` would be those of whole blocks of its storage, hours around the time.
        counted = self._query(f"count by (__name__) (last_over_time({self._range('')}))")
        if found := {series["metric"]["__name__"] for series in counted}:
            return sorted(found)
        raise BenchError(
            f"--prometheus {self.url}: it has no series with {self.chosen} in this time. Its /targets lists its jobs: give the label "
            "by which it knows the server, such as --label job=NAME, or another time (--last, --to)."
        )

    def samples(self, names: Sequence[str]) -> pl.DataFrame:
        """The raw samples of some metrics, one row each, as `served.SAMPLES` has them; `at_s` since `begin`."""
        rows = []
        for name in names:
            # A range selector gives what was scraped; `query_range` would fill gaps and move times.
            for series in self._query(self._range(name)):
                labels = dict(sorted(series["metric"].items()))
                labels.pop("__name__", None)
                of, text = labels.get("instance", ""), _written(labels)
                rows += [(of, at - self.begin, name, text, float(value)) for at, value in series["values"]]
        return pl.DataFrame(rows, schema=SAMPLES, orient="row").unique(maintain_order=True)

    def _range(self, name: str) -> str:
        return f"{name}{self.chosen}[{max(1, round(1000 * (self.end - self.begin)))}ms]"

    def _query(self, text: str) -> list[dict[str, Any]]:
        asked = urlencode({"query": text, "time": f"{self.end:.3f}"})
        try:
            answer = http.get(f"{self.url.rstrip('/')}/api/v1/query?{asked}", timeout_s=PATIENCE_S)
            found: list[dict[str, Any]] = answer.json()["data"]["result"]
        except (requests.JSONDecodeError, LookupError, TypeError):
            why = f"/api/v1/query: status {answer.status_code}, {shown(answer.text)}. Give the address that has /api/v1"
        except (requests.RequestException, http.Oversized) as error:
            why = f"{http.problem(error)}. Give the address of a Prometheus, a shorter time (--last), or one server (--label)"
        else:
            return found
        raise BenchError(f"--prometheus {self.url}: {why}.")
