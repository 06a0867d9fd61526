"""What is decided from the runs: the SLOs, the peak and the prices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

from bench.errors import BenchError
from bench.fields import LISTED, Strict
from bench.runs.latencies import LATENCIES, PERCENTILES
from bench.study.slo import Slo, parse_slo

_Positive = Annotated[float, Field(gt=0)]
_Amount = Annotated[float, Field(ge=0)]


def _slo(text: str) -> str:
    try:
        parse_slo(text)
    except BenchError as error:
        raise ValueError(str(error)) from None
    return text


SloTexts = Annotated[list[Annotated[str, AfterValidator(_slo)]], LISTED]


def _one_of(names: Iterable[str]) -> str:
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} or {last}"


class Decision(Strict):
    """What is decided from the runs. A change measures nothing again, with two exceptions: a search (`auto`) goes on by its new
    limits, and another percentile takes other numbers of requests where `num_requests` is `auto`.
    """

    slo: SloTexts = Field(
        default_factory=list,
        description="Limits that an instance has to meet, all of them, such as `[ttft_p99=1s, tpot_p95=50ms]`: "
        f"{_one_of(LATENCIES)}, at {_one_of(PERCENTILES)}. With the name of a class ahead, `chat.ttft_p99=1s`, one limits that class "
        "alone.",
    )
    failed_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01,
        description="Largest share of requests that may fail at a sustained load (0–1).",
    )
    peak_rps: _Positive | None = Field(default=None, description="Requests/s at the busiest moment; the fleet is sized for it.")
    safety: Annotated[float, Field(ge=1)] = Field(
        default=1.3,
        description="Spare capacity of the fleet, as a multiple: 1.2 for a known load, 1.5 for a new one.",
    )
    accelerator: str | None = Field(
        default=None,
        description="The GPU of the runs, by its name in `bench plan` or under `hardware`: its price, power and ceilings.",
    )
    price_per_hour: _Positive | None = Field(
        default=None,
        description="Price of one GPU (USD/h); of a CPU engine, of the machine. Default: the accelerator's.",
    )
    energy_price_per_kwh: _Amount = Field(
        default=0.0,
        description="Price of energy (USD/kWh) if `price_per_hour` does not include it.",
    )
    cost_per_million_requests: _Amount = Field(default=0.0, description="Further cost of 10⁶ requests (USD).")
    price_per_million_tokens: _Positive | None = Field(
        default=None,
        description="Price of 10⁶ output tokens (USD), sold or bought: for revenue, profit and the break-even point.",
    )

    @property
    def slos(self) -> list[Slo]:
        """The limits."""
        return [parse_slo(text) for text in self.slo]
