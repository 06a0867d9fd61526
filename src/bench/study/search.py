"""How an `auto` ladder looks for the highest load within SLOs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from bench.fields import Count, Strict
from bench.study.decision import SloTexts

__all__ = ["Search"]

_Positive = Annotated[float, Field(gt=0)]


class Search(Strict):
    """How `auto` looks for the highest load within SLOs. A change goes on from what is measured."""

    slo: SloTexts | None = Field(default=None, description="Limits to search by, in place of those of `decision.slo`.")
    precision: Annotated[float, Field(ge=0.02, lt=1)] = Field(
        default=0.1,
        description="Half the width of the limit's interval (95 %), as a share of the limit, at which the search ends.",
    )
    start: _Positive = Field(default=1.0, description="First load. The closer to the limit, the fewer runs.")
    lowest: _Positive | None = Field(
        default=None, description="Lowest load to try. Default: 1 in flight, or a 64th of `start` for a rate."
    )
    highest: _Positive = Field(default=4096.0, description="Highest load to try.")
    runs: Count = Field(default=40, description="Most runs, those of an earlier search included.")
    seconds: _Positive = Field(default=3600.0, description="Most time under load (s), that of earlier runs included.")

    @model_validator(mode="after")
    def _ordered(self) -> Search:
        if not (self.lowest or 0.0) <= self.start <= self.highest:
            raise ValueError(
                f"start is {self.start:g}, which does not lie between lowest ({self.lowest or 0:g}) and highest ({self.highest:g})"
            )
        return self
