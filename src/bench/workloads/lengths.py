"""How long prompts and answers are: a number, or a distribution of numbers."""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from bench.errors import BenchError, shown_share
from bench.fields import Tokens

_NEEDS = {
    "fixed": ("tokens",),
    "uniform": ("min", "max"),
    "lognormal": ("median", "sigma", "max"),
    "empirical": ("file",),
    "natural": ("max",),
}
_MAY = {"lognormal": {"min"}, "empirical": {"min", "max"}}
_LEAST_WITHIN = 0.01  # least share of a distribution between its ends: all else is drawn again; convention


class LengthDistribution(BaseModel):
    """Lengths in tokens. A whole number in its place is `fixed`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    distribution: Literal["fixed", "uniform", "lognormal", "empirical", "natural"] = Field(
        description="`fixed` (tokens), `uniform` (min to max), `lognormal` (median, sigma), "
        "`empirical` (file), or of answers `natural`: they end by themselves, after `max` at the latest."
    )
    tokens: Tokens | None = Field(default=None, description="`fixed`: the length.")
    median: Annotated[float, Field(gt=0)] | None = Field(default=None, description="`lognormal`: median.")
    sigma: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="`lognormal`: standard deviation of the logarithm; P99 = median × e^(2.33 × sigma)."
    )
    file: str | None = Field(
        default=None, description="`empirical`: a text file with one length a line; each line is equally likely."
    )
    min: Tokens = Field(default=1, description="Shortest length; a draw below it is repeated.")
    max: Tokens | None = Field(default=None, description="Longest length; a draw above it is repeated.")

    @model_validator(mode="after")
    def _keys_of_distribution(self) -> LengthDistribution:
        needed = _NEEDS[self.distribution]
        given = self.model_fields_set - {"distribution"}
        for key in needed:
            if getattr(self, key) is None or (key == "min" and key not in given):
                raise ValueError(f"{self.distribution} needs {', '.join(needed)}; {key} is missing")
        for key in sorted(given - set(needed) - _MAY.get(self.distribution, set())):
            raise ValueError(f"{key} does not apply to {self.distribution}, which takes {', '.join(needed)}")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        if self.median is not None and self.max is not None and not self.min <= self.median <= self.max:
            raise ValueError(f"the median, {self.median:g}, does not lie between min {self.min} and max {self.max}")
        if self._within() < _LEAST_WITHIN:
            raise ValueError(
                f"less than {shown_share(_LEAST_WITHIN)} of the distribution lies between min {self.min} and max {self.max}, and all "
                "other draws would be repeated; lower sigma, or use uniform"
            )
        return self

    def _within(self) -> float:
        """Share of a lognormal distribution that its ends leave (0–1); 1 for others."""
        if not self.sigma or self.median is None:
            return 1.0
        drawn = NormalDist(math.log(self.median), self.sigma)
        return drawn.cdf(math.log((self.max or math.inf) + 0.5)) - drawn.cdf(math.log(self.min - 0.5))

    @property
    def fixed(self) -> int | None:
        """The one length, where there is only one."""
        return self.tokens if self.distribution == "fixed" else None

    @property
    def natural(self) -> bool:
        """Whether answers end by themselves, so that their lengths are measured, not asked for."""
        return self.distribution == "natural"

    @property
    def longest(self) -> int:
        """The longest that can be drawn (tokens).

        Raises:
            BenchError: the file of an empirical one is missing or wrong.
        """
        return self.fixed or self.max or max(read_lengths(Path(self.file or "")))

    @property
    def label(self) -> str:
        """A part of a run's name: `128`, or `lognormal1020`."""
        match self.distribution:
            case "fixed":
                return str(self.tokens)
            case "uniform":
                return f"uniform{self.min}-{self.max}"
            case "lognormal":
                return f"lognormal{self.median:g}"
            case "natural":
                return f"natural{self.max}"
        return "empirical"


def _length(value: Any) -> Any:
    return {"distribution": "fixed", "tokens": value} if isinstance(value, int) and not isinstance(value, bool) else value


class _OrInteger:
    """Says in the JSON schema what `_length` allows."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "integer", "minimum": 1}, handler(core)]}


Length = Annotated[LengthDistribution, BeforeValidator(_length), _OrInteger()]


class Lengths:
    """Draws from a distribution: the same for the same seed, on any machine.

    Each draw is the distribution's inverse at a number of Python's `random()`, whose sequence is guaranteed for a seed; lognormal
    draws are rounded to whole tokens, and drawn again where they fall beyond an end (a truncated distribution).
    """

    def __init__(self, length: LengthDistribution, seed: str) -> None:
        self._length = length
        self._random = random.Random(seed)  # noqa: S311 - a schedule, no secret
        self._values = read_lengths(Path(length.file), length) if length.file else []

    def draw(self) -> int:
        """The next length (tokens); of a natural one the longest."""
        x = self._length
        match x.distribution:
            case "fixed":
                return x.tokens or 0
            case "natural":
                return x.max or 0
            case "uniform":
                assert x.max is not None
                return x.min + int(self._random.random() * (x.max - x.min + 1))
            case "empirical":
                return self._values[int(self._random.random() * len(self._values))]
        assert x.max is not None
        while True:
            z = NormalDist().inv_cdf(self._random.random() or 0.5)  # at 0 the inverse has no value
            value = (x.median or 0) * math.exp((x.sigma or 0) * z)
            if x.min <= round(value) <= x.max:
                return round(value)


def read_lengths(file: Path, bounds: LengthDistribution | None = None) -> list[int]:
    """The lengths in `file`, those within the bounds."""
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            values = [int(row[0]) for row in csv.reader(stream) if row and not row[0].startswith("#")]
    except FileNotFoundError:
        raise BenchError(f"{file}: no such file; paths start at the project's root.") from None
    except OSError as error:
        raise BenchError(f"{file}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, csv.Error) as error:
        raise BenchError(f"{file}: one whole number of tokens a line: {error}.") from None
    low, high = (bounds.min, bounds.max or math.inf) if bounds else (1, math.inf)
    kept = [value for value in values if low <= value <= high]
    if not kept:
        raise BenchError(f"{file}: holds no length between {low} and {high}.")
    return kept
