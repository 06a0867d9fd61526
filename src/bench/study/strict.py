"""What the configuration's models have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Count", "Strict"]

Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Unknown keys and silent conversions are refused: a typo must not cost GPU hours."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
