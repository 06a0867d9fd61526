"""What a model is calibrated on, from a folder of results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from bench.axes import RATE
from bench.errors import BenchError
from bench.parse.stream import ONE_EACH, engine_is_ahead
from bench.predict.calibrate import Calibrated, MeasuredRun, calibrate
from bench.predict.limits import Given, Limits, limits_of
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import digest, read
from bench.runs.latencies import served_alike
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.study.read import load_workload
from bench.workloads.workload import Workload

FEW_STEPS = "its valid runs show too few steps of the engine"
NO_STEPS = (
    "no valid run with streamed answers whose requests.parquet is there shows the engine's steps; left out are those with drafted "
    "tokens, several tokens a chunk, an engine ahead of its clients, a trace whose prompts share blocks, or classes with their own "
    "models, priorities or shared prefixes"
)
_EVICTED = 0.9  # measured ÷ expected hit rate below which the cache evicted; convention


class Source:
    """What a model of a deployment is made of.

    Attributes:
        limits: of its scheduler; None where they are not known. runs: to calibrate with. why_not: why there are none, in words.
    """

    def __init__(self, table: pl.DataFrame, results: Path, name: str, given: Given | None = None) -> None:
        """Args: table: the summary. results: the folder that it is of. given: as of `limits_of`."""
        self.name, self.runs = name, list[MeasuredRun]()
        self.limits: Limits | None = None
        self.why_not: str | None = None
        try:
            self.limits = read_limits(results, name, given)
            self.runs = measured_runs(table, results, name, self.limits)
            self.why_not = None if self.runs else NO_STEPS
        except BenchError as error:
            self.why_not = str(error).rstrip(".")

    def digest(self, **more: Any) -> str:
        """A digest of it, and of what else decides a result."""
        return digest({"limits": repr(self.limits), "why_not": self.why_not, "runs": self._digests, **more})

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {run.name: hashlib.sha256(run.requests.write_ipc(None).getvalue()).hexdigest() for run in self.runs}

    @cached_property
    def model(self) -> Calibrated | None:
        """Fitted to the runs; None where there are none, or they show too few steps."""
        return calibrate(self.runs, self.limits) if self.runs and self.limits else None


def measured_runs(table: pl.DataFrame, results: Path, deployment: str, limits: Limits) -> list[MeasuredRun]:
    """The valid runs of a deployment whose requests are there. Without those whose prefix cache served less than their prompts have in
    common, or whose prompts may have anything in common, unless the server reports how much of each. Without those whose classes of
    requests are not served alike. And without those that lack the lengths of a request.

    Args:
        table: the summary. results: the folder that it is of. limits: of the deployment's scheduler.
    """
    found = []
    for row in _with_steps(table, deployment).iter_rows(named=True):
        file = _at(results, Paths.REQUESTS, deployment=deployment, run=row["run"])
        expected, seen = row["prefix_hit_rate_expected"], row["prefix_hit_rate"]
        if row.get("classes") and not (served_alike(json.loads(row["classes"])) and row["cache"] == "unique"):
            continue  # a replay cannot tell them apart
        # A run's records do not say which blocks its prompts share.
        if not file.exists() or (row["arrival"] == "trace" and limits.cached and expected != 0):
            continue
        requests = pl.read_parquet(file)
        # Of a request that failed, the length of a prompt from a file or of a natural answer is not known.
        if requests["prompt_asked"].null_count() or requests["output_asked"].null_count() or requests.is_empty():
            continue
        evicted = expected and seen is not None and seen < _EVICTED * expected
        unknown = row["cache"] in ("natural", "as_is") and limits.cached  # what a file's prompts have in common
        if not (evicted or unknown) or not requests["cached_tokens"].null_count():
            found.append(MeasuredRun(row["run"], row, requests.with_columns(cached_tokens=_served(requests, row, limits))))
    return found


def _with_steps(table: pl.DataFrame, deployment: str) -> pl.DataFrame:
    # Answers that come whole, or several tokens a chunk, show no steps; a step that verifies a draft makes any number of tokens. Where
    # the engine is ahead of its clients, the gaps that they see are those of what lies between.
    return table.filter(
        pl.col("deployment") == deployment,
        pl.col("valid"),
        pl.col("stream").fill_null(True),
        pl.col("tokens_per_chunk").fill_null(1.0).is_between(1 / ONE_EACH, ONE_EACH),
        ~engine_is_ahead().fill_null(False),
        pl.col("spec_draft_tokens").fill_null(0) == 0,
    )


def _served(requests: pl.DataFrame, row: Mapping[str, Any], limits: Limits) -> pl.Series:
    """Of each prompt, the tokens that the prefix cache served: as the server reports them, else those that it could serve."""
    reported = requests["cached_tokens"]
    if not reported.null_count():
        return reported
    if not limits.cached:
        return pl.Series("cached_tokens", [0] * requests.height, dtype=reported.dtype)
    prompts = dict(requests.select("index", "prompt_asked").iter_rows())
    share = {"repeated": 1.0, "shared": row["shared_prefix"] or 0.0}.get(row["cache"], 0.0)
    size, served = limits.block_size, []
    for prompt, after, known in requests.select("prompt_asked", "after", "cached_tokens").iter_rows():
        reusable = int(share * prompt) if after is None else prompts.get(after, 0)
        served.append(min(reusable, prompt - 1) // size * size if known is None else known)
    return pl.Series("cached_tokens", served, dtype=reported.dtype)


def read_limits(results: Path, deployment: str, given: Given | None) -> Limits:
    """What the scheduler of a deployment obeys. Args: given: as of `limits_of`.

    Raises:
        BenchError: it is not known.
    """
    launch_file, facts_file = (_at(results, path, deployment=deployment) for path in (Paths.LAUNCH, Paths.FACTS))
    if not launch_file.exists() or not facts_file.exists():
        raise BenchError(
            f"{launch_file.parent}: launch.json or deployment.json is missing, so the scheduler's limits are not known."
        )
    return limits_of(read(Launch, launch_file), read(DeploymentFacts, facts_file), given)


def start_ups_s(results: Path, deployment: str) -> tuple[float, ...]:
    """The measured starts of a deployment, from launch to the first token (s); none where it was not started here."""
    file = _at(results, Paths.FACTS, deployment=deployment)
    return read(DeploymentFacts, file).start_ups_s if file.exists() else ()


def load_to_predict(content: dict[str, Any], source: str) -> Workload:
    """A workload that can be predicted.

    Args:
        content: as a study has it. source: whence it is, for faults.

    Raises:
        BenchError: it has a fault, is no rate and no trace, or has what no replay has.
    """
    workload = load_workload(content, source=source)
    if not workload.lengths_known:
        raise BenchError(
            f"{source}: no prediction for prompts from a file, natural answers, or "
            "answers without tokens. Give lengths as numbers or distributions."
        )
    # What a class does not say, such as `cache`, is the workload's.
    sent = {name: {"body": part.body, "cache": part.cache} for name, part in workload.parts.items() if name}
    if not served_alike({name: {**each, "model": workload.classes[name].model} for name, each in sent.items()}):
        raise BenchError(
            f"{source}: classes with their own models, priorities or shared prefixes are not predicted. Remove these keys to "
            "predict from lengths alone."
        )
    if workload.axis not in (RATE, "time_scale"):
        raise BenchError(f"{source}: the load of arrival {workload.arrival} has levels of {workload.axis}, not of {RATE}.")
    return workload


def _at(results: Path, path: str, **names: str) -> Path:
    return results / Path(path.format(**names)).relative_to("results")
