"""What the configuration's models have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Count", "Strict"]

# Beyond 10¹⁵ a count is a slip of the hand, and a float no longer holds it exactly.
Count = Annotated[int, Field(ge=1, le=10**15)]


class Strict(BaseModel):
    """Unknown keys, silent conversions, infinities and NaN are refused: a typo must not cost GPU hours."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
