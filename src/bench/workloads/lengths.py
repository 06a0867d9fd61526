"""How long prompts and answers are: a number, or a distribution of numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import NormalDist
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from bench.errors import BenchError, shown_share
from bench.fields import Strict, Tokens
from bench.table_file import read_text

_LEAST_WITHIN = 0.01  # least share of a distribution between its ends: all else is drawn again; convention


class LengthDistribution(Strict):
    """Lengths in tokens. A whole number in its place is `fixed`."""

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
        kind, given = _KINDS[self.distribution], self.model_fields_set - {"distribution"}
        for key in kind.needs:
            if getattr(self, key) is None or key not in given:
                raise ValueError(f"{self.distribution} needs {', '.join(kind.needs)}; {key} is missing")
        for key in sorted(given - {*kind.needs, *kind.may}):
            raise ValueError(f"{key} does not apply to {self.distribution}, which takes {', '.join(kind.needs)}")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        if self.median and self.max and not self.min <= self.median <= self.max:
            raise ValueError(f"the median, {self.median:g}, does not lie between min {self.min} and max {self.max}")
        if self.median and self.sigma and self.max:
            drawn = NormalDist(math.log(self.median), self.sigma)
            if drawn.cdf(math.log(self.max + 0.5)) - drawn.cdf(math.log(self.min - 0.5)) < _LEAST_WITHIN:
                raise ValueError(
                    f"less than {shown_share(_LEAST_WITHIN)} of the distribution lies between min {self.min} and max {self.max}, and "
                    "all other draws would be repeated; lower sigma, or use uniform"
                )
        return self

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
        return self.tokens or self.max or max(_listed(self))

    @property
    def label(self) -> str:
        """A part of a run's name: `128`, or `lognormal1020`."""
        return _KINDS[self.distribution].label.format_map(dict(self))


class _Kind(NamedTuple):
    """A distribution: the keys that it needs and those that it may have, its part of a run's name, and what makes its draws."""

    needs: tuple[str, ...]
    label: str
    draws: Callable[[Any, random.Random], Callable[[], int]]
    may: tuple[str, ...] = ()


def _uniform(length: Any, source: random.Random) -> Callable[[], int]:
    return lambda: length.min + int(source.random() * (length.max - length.min + 1))


def _lognormal(length: Any, source: random.Random) -> Callable[[], int]:
    """Drawn again where it falls beyond an end: a truncated distribution, in whole tokens."""

    def draw() -> int:
        while True:
            z = NormalDist().inv_cdf(source.random() or 0.5)  # at 0 the inverse has no value
            value: int = round(length.median * math.exp(length.sigma * z))
            if length.min <= value <= length.max:
                return value

    return draw


def _empirical(length: Any, source: random.Random) -> Callable[[], int]:
    values = _listed(length)
    return lambda: values[int(source.random() * len(values))]


_KINDS = {
    "fixed": _Kind(("tokens",), "{tokens}", lambda length, _: lambda: length.tokens),
    "uniform": _Kind(("min", "max"), "uniform{min}-{max}", _uniform),
    "lognormal": _Kind(("median", "sigma", "max"), "lognormal{median:g}", _lognormal, ("min",)),
    "empirical": _Kind(("file",), "empirical", _empirical, ("min", "max")),
    "natural": _Kind(("max",), "natural{max}", lambda length, _: lambda: length.max),  # the longest that is asked for
}


def _listed(length: LengthDistribution) -> list[int]:
    """The lengths in an empirical one's file, those within its bounds."""
    path, high = str(length.file), length.max or math.inf
    try:
        lines = [line for line in read_text(path, what="file").splitlines() if line.strip() and not line.startswith("#")]
        kept = [value for value in map(int, lines) if length.min <= value <= high]
    except ValueError as error:
        raise BenchError(f"{path}: one whole number of tokens a line: {error}.") from None
    if not kept:
        raise BenchError(f"{path}: holds no length between {length.min} and {high}.")
    return kept


def draws(length: LengthDistribution | None, seed: str) -> Callable[[], int | None]:
    """What draws lengths (tokens), the same for the same seed on any machine; None each time without a distribution.

    Each draw is the distribution's inverse at a number of Python's `random()`, whose sequence is guaranteed for a seed.
    """
    if length is None:
        return lambda: None
    return _KINDS[length.distribution].draws(length, random.Random(seed))  # noqa: S311 - a schedule, no secret


def _length(value: Any) -> Any:
    return {"distribution": "fixed", "tokens": value} if isinstance(value, int) and not isinstance(value, bool) else value


Length = Annotated[
    LengthDistribution, BeforeValidator(_length, json_schema_input_type=Annotated[int, Field(ge=1)] | LengthDistribution)
]
