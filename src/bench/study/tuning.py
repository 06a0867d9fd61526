"""`tune`: which servers compete, under which load, for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from bench.fields import MOST_S, Name, Strict
from bench.study.search import Search

if TYPE_CHECKING:
    from bench.study.config import Config

Objective = Literal["requests", "cost"]


def _visit() -> Search:
    return Search(precision=0.15, runs=8, seconds=600.0)


class Tune(Strict):
    """The best of several servers under one load: which settings, and what they gain over the default."""

    deployments: Annotated[list[Name], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = Field(
        description="Keys of `deployments` that compete; of one with `sweep`, each of its combinations.", min_length=1
    )
    workload: Name = Field(description="Key of `workloads`. The highest load within the SLOs decides.")
    default: Name | None = Field(
        default=None,
        description="Deployment that the others have to beat. Default: the first, so of a sweep the first value of each key.",
    )
    objective: Objective = Field(
        default="requests",
        description="`requests`: the highest load within the SLOs. `cost`: the same per GPU.",
    )
    minutes: Annotated[float, Field(gt=0, le=MOST_S / 60, strict=False)] = Field(  # `--config` gives a text
        default=60.0,
        description="Time for all starts and their searches (min). With more, a tuning goes on.",
    )
    search: Search = Field(
        default_factory=_visit,
        description="As a ladder's `search`, for each start; by default `precision: 0.15`, `runs: 8` and `seconds: 600`.",
    )


def candidates(config: Config) -> list[str]:
    """The deployments that compete, the default first."""
    assert config.tune is not None
    names = config.tune.deployments
    first = config.tune.default or names[0]
    return [first, *(name for name in names if name != first)]


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
