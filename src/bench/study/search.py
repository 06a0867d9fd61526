"""What is searched for: the limit of an `auto` ladder, and the best of several servers (`tune`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from bench.fields import LISTED, MOST_RATE, MOST_S, Count, Name, Seconds, Strict
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

    deployments: Annotated[list[Name], LISTED] = Field(
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
    assert config.tune is not None
    return config.model_copy(update={"study": competing(config, config.tune.deployments[:1]).study})
