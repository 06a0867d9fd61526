"""What is searched for: the limit of an `auto` ladder, and the best of several servers (`tune`); and what of these leads nowhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from bench.axes import AXES
from bench.errors import as_written, names_text
from bench.fields import MOST_RATE, MOST_S, Count, Name, Seconds, Strict
from bench.study.decision import SloTexts

if TYPE_CHECKING:
    from bench.study.config import Config

_Positive = Annotated[float, Field(gt=0)]


class Search(Strict):
    """What `auto` looks for, and how. A change goes on from what is measured."""

    slo: SloTexts | None = Field(default=None, description="Limits to search by; default: `decision.slo`.")
    precision: Annotated[float, Field(ge=0.02, lt=1)] = Field(
        default=0.1,
        description="Half the width of the interval (95 %) at which the search ends, as a share of the limit.",
    )
    start: _Positive | None = Field(
        default=None, description="First load; rates down to a 64th of it are tried. Default: near the limit, by a probe."
    )
    highest: Annotated[float, Field(gt=0, le=MOST_RATE)] = Field(default=4096.0, description="Highest load to try.")
    runs: Count = Field(default=40, description="Most runs, those of an earlier search included.")
    seconds: Seconds = Field(default=3600.0, description="Most time under load (s), that of earlier runs included.")

    @model_validator(mode="after")
    def _ordered(self) -> Search:
        if self.start is not None and self.start > self.highest:
            raise ValueError(f"start is {self.start:g}, above highest ({self.highest:g})")
        return self


Objective = Literal["requests", "cost"]


class Tune(Strict):
    """The best of several servers under one load: which settings, and what they gain over the default."""

    deployments: Annotated[list[Name], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = Field(
        description="Keys of `deployments` that compete; of one with `sweep`, each of its combinations. The others have to beat the "
        "first, of a sweep that with the first value of each key.",
        min_length=1,
    )
    workload: Name = Field(description="Key of `workloads`. The highest load within the SLOs decides.")
    objective: Objective = Field(
        default="requests",
        description="`requests`: the highest load within the SLOs. `cost`: the same per GPU.",
    )
    minutes: Annotated[float, Field(gt=0, le=MOST_S / 60)] = Field(
        default=60.0,
        description="Time for all starts and their searches (min). With more, a tuning goes on.",
    )
    search: Search = Field(
        default_factory=lambda: Search(precision=0.15, runs=8, seconds=600.0),
        description="As a ladder's `search`, for each start; by default `precision: 0.15`, `runs: 8` and `seconds: 600`.",
    )


def candidates(config: Config) -> list[str]:
    """The deployments that compete, the default first."""
    assert config.tune is not None
    return config.tune.deployments


def competing(config: Config, names: list[str]) -> Config:
    """The study of these candidates alone, each with a search for its highest load: what their starts measure is what it defines."""
    from bench.study.config import Ladder  # noqa: PLC0415 - which has this module's model

    assert config.tune is not None
    tune, axis = config.tune, config.workloads[config.tune.workload].axis
    ladder = {"workload": tune.workload, "search": tune.search, axis: "auto"}
    ladders = [Ladder.model_validate({"deployment": name, **ladder}) for name in names]
    study = config.study.model_copy(update={"ladders": ladders, "sessions": 1, "baseline": None})
    # With other prompts and gaps: a search of the study's own counts none of these runs, nor these any of its own.
    measurement = config.measurement.model_copy(update={"seed": config.measurement.seed + 1})
    return config.model_copy(update={"study": study, "measurement": measurement, "select": "*", "tune": None})


def with_ladder(config: Config) -> Config:
    """A study without ladders, with a search for the default's highest load: that of its tuning."""
    return config.model_copy(update={"study": competing(config, candidates(config)[:1]).study})


_PARALLEL = {"tensor_parallel", "pipeline_parallel", "data_parallel"}
_FEWEST_CANDIDATES = 2  # fewest servers of a tuning; derived


def tuning_faults(
    config: Config,
    tables: Mapping[str, Mapping[str, Any]],
    swept_names: Mapping[str, Sequence[str]],
    faults_of: Callable[[Config], Iterable[str]],
) -> Iterator[str]:
    """Faults of a tuning: of its own names, then those of the study of its candidates.

    Args:
        tables: the configuration's, by what they hold. swept_names: the combinations of each swept deployment.
    """
    tune = config.tune
    if tune is None:
        return
    faults = [
        f"tune.{key} is {wanted!r}, which {table} does not define. Defined: {names_text(as_written(tables[table[:-1]], swept_names))}."
        for key, table, names in (
            ("deployments", "deployments", tune.deployments),
            ("workload", "workloads", [tune.workload]),
        )
        for wanted in names
        if wanted not in tables[table[:-1]]
    ]
    yield from faults
    names = candidates(config)
    if len(set(names)) < len(names):
        yield "tune.deployments names one twice. Remove it."
    if len(names) < _FEWEST_CANDIDATES:
        yield f"tune.deployments names only {names[0]}, but tuning needs two servers or more. Give it a sweep, or name another one."
    if tune.objective == "cost":
        for name in names:
            deployment = config.deployments.get(name)
            engine = deployment and config.engines.get(deployment.engine)
            if deployment and engine and engine.source == "external" and not deployment.model_fields_set & _PARALLEL:
                yield (
                    f"tune.objective is cost, but the number of GPUs of deployments.{name} is not known. Give it tensor_parallel, or "
                    "make the objective requests."
                )
    workload = config.workloads.get(tune.workload)
    if workload and (no_search := AXES[workload.axis].no_search):
        yield (
            f"tune.workload is {tune.workload!r}, whose highest load cannot be searched for: {no_search.partition('. ')[0]}. Use an "
            "open loop, or arrival: closed without turns."
        )
    elif workload and not faults:
        yield from _without_ladders(faults_of(competing(config, names)))


def _without_ladders(faults: Iterable[str]) -> Iterator[str]:
    for fault in faults:
        yield re.sub(r"study\.ladders\[\d+\]", "tune", fault)
