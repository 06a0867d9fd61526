"""What is decided from the runs: the SLOs, the peak and the prices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from bench.errors import BenchError
from bench.fields import Strict
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


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


SloTexts = Annotated[list[Annotated[str, AfterValidator(_slo)]], BeforeValidator(_listed)]


def _one_of(names: Iterable[str]) -> str:
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} or {last}"


class Decision(Strict):
    """What is decided from the runs. A change measures nothing again, with two exceptions: a search by `slo` (`auto`) goes on from its
    runs, and where a workload has `num_requests: auto`, other percentiles in `slo` take other numbers of requests.
    """

    slo: SloTexts = Field(
        default_factory=list,
        description="Limits that an instance has to meet, all of them, such as `[ttft_p99=1s, tpot_p95=50ms]`: "
        f"{_one_of(LATENCIES)}, at {_one_of(PERCENTILES)}. The name of a class goes before it: `chat.ttft_p99=1s` limits that class's "
        "requests alone, in each workload that has one of that name. C_max, usable requests/s, goodput and the fleet follow from them.",
    )
    failed_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01, description="Largest share of requests that may fail at a load that counts as sustained (0–1)."
    )
    peak_rps: _Positive | None = Field(default=None, description="Requests/s at the busiest moment; the fleet is sized for it.")
    safety: Annotated[float, Field(ge=1)] = Field(
        default=1.3,
        description="Spare capacity of the fleet, as a multiple of what the peak needs: 1.2 for a known load, 1.5 for a "
        "new one.",
    )
    accelerator: str | None = Field(
        default=None,
        description="The GPU that the runs were on, by its name in `bench plan` or under `hardware`: its price, power "
        "and ceilings.",
    )
    price_per_hour: _Positive | None = Field(
        default=None,
        description="Price of one GPU (USD/h), in place of the accelerator's; for a CPU engine, of the whole machine.",
    )
    energy_price_per_kwh: _Amount = Field(
        default=0.0,
        description="Price of energy (USD/kWh) where it is not in `price_per_hour`; 0: it is. Power is the measured "
        "one, or else the accelerator's.",
    )
    cost_per_million_requests: _Amount = Field(default=0.0, description="Further cost of 10⁶ requests (USD).")
    price_per_million_tokens: _Positive | None = Field(
        default=None,
        description="Price of 10⁶ output tokens (USD), sold or bought at an API: gives revenue, profit and the "
        "break-even point.",
    )

    @property
    def slos(self) -> list[Slo]:
        """The limits."""
        return [parse_slo(text) for text in self.slo]
