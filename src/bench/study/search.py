"""What an `auto` ladder looks for, and how."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from bench.fields import MOST_RATE, Count, Seconds, Strict
from bench.study.decision import SloTexts

_Positive = Annotated[float, Field(gt=0)]


class Search(Strict):
    """What `auto` looks for, and how. A change goes on from what is measured."""

    slo: SloTexts | None = Field(default=None, description="Limits to search by; default: `decision.slo`.")
    precision: Annotated[float, Field(ge=0.02, lt=1)] = Field(
        default=0.1,
        description="Half the width of the interval (95 %) at which the search ends, as a share of the limit.",
    )
    start: _Positive | None = Field(default=None, description="First load. Default: near the limit, by a probe.")
    lowest: _Positive | None = Field(
        default=None, description="Lowest load to try. Default: 1 in flight, or a 64th of the first load for a rate."
    )
    highest: Annotated[float, Field(gt=0, le=MOST_RATE)] = Field(default=4096.0, description="Highest load to try.")
    runs: Count = Field(default=40, description="Most runs, those of an earlier search included.")
    seconds: Seconds = Field(default=3600.0, description="Most time under load (s), that of earlier runs included.")

    @model_validator(mode="after")
    def _ordered(self) -> Search:
        if (self.lowest or 0.0) > self.highest:
            raise ValueError(f"lowest is {self.lowest:g}, above highest ({self.highest:g})")
        if self.start is not None and not (self.lowest or 0.0) <= self.start <= self.highest:
            least = "" if self.lowest is None else f"below lowest ({self.lowest:g}) or "
            raise ValueError(f"start is {self.start:g}, {least}above highest ({self.highest:g})")
        return self
