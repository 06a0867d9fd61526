"""What a Prometheus kept of a server: names and raw samples, by its HTTP API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import polars as pl
import requests

from bench import http
from bench.beside.production.drifted.served import SAMPLES
from bench.errors import BenchError, shown

_TIMEOUT_S = 60.0  # for one answer (s); convention: half of what Prometheus takes for a query by default


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
        jobs = self._ask("label/job/values", {"start": f"{self.begin:.3f}", "end": f"{self.end:.3f}"})
        fix = "It scraped nothing then: give another time (--last, --to), or look at its /targets."
        if jobs:
            known = ", ".join(jobs[:10])
            fix = f"Its jobs are: {known}. Give the label by which it knows the server, such as --label job=NAME."
        raise BenchError(f"--prometheus {self.url}: it has no series with {self.chosen} in this time. {fix}")

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
        found: list[dict[str, Any]] = self._ask("query", {"query": text, "time": f"{self.end:.3f}"})["result"]
        return found

    def _ask(self, path: str, values: Mapping[str, str]) -> Any:
        try:
            answer = http.get(f"{self.url.rstrip('/')}/api/v1/{path}?{urlencode(values)}", timeout_s=_TIMEOUT_S)
        except http.Oversized as error:
            why = f"{error}. Give a shorter time, or one server by --label"
        except requests.Timeout:
            why = f"no answer within {_TIMEOUT_S:g} s. Give a shorter time"
        except requests.RequestException as error:
            why = f"{http.problem(error)}. Give the address of a Prometheus"
        else:
            try:
                content = answer.json()
                if content["status"] == "success":
                    return content["data"]
                said = f"{content.get('errorType')}: {content.get('error')}"
            except (ValueError, KeyError, TypeError, AttributeError):
                said = f"status {answer.status_code}, and not what Prometheus' HTTP API answers"
            why = f"/api/v1/{path}: {shown(said)}. Give the address that has /api/v1, such as http://prometheus:9090"
        raise BenchError(f"--prometheus {self.url}: {why}.")
