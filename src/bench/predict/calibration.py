"""`calibration.json` and `reliefs.json`: the calibrated model of each deployment, how far its predictions are off, what it
predicts, and what relieving a resource would bring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: What is predicted, by name: what it is called, with its unit.
METRICS = {
    "throughput_tokens_per_s": "output tokens/s",
    "throughput_requests_per_s": "requests/s",
    "ttft_p50_s": "TTFT P50 (s)",
    "ttft_p99_s": "TTFT P99 (s)",
    "tpot_p50_s": "TPOT P50 (s)",
    "tpot_p90_s": "TPOT P90 (s)",
    "itl_p99_s": "ITL P99 (s)",
    "e2e_p50_s": "E2E P50 (s)",
    "e2e_p99_s": "E2E P99 (s)",
}


@dataclass(frozen=True)
class Interval:
    """A predicted number: the median of the ensemble, and its central 90 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Doubt:
    """Why a prediction must not be relied on.

    Attributes:
        name: `residual`, steps stray from the fit (median relative error); `drift`, runs from one another (standard deviation of
            ln time); `unseen`, the throughput of measured loads, predicted from the others, from what was measured (of ln);
            `requests` at once, `longest` request (tokens), tokens of a `step`, beyond what was seen; `refused`, requests that can
            never fit.
        value: what was found or is asked for. most: what is allowed, or was seen.
    """

    name: str
    value: float
    most: float


@dataclass(frozen=True)
class Judgement:
    """How good predictions of one number were.

    Attributes:
        fold: `level`, from the runs of other levels, or `workload`, from those of other workloads. metric: the number's name.
        error: mean absolute relative error.
        coverage: share of the runs whose number the interval holds (0–1). runs: predicted, of so many that were left out; of the others
            no prediction was made (`Doubt`).
    """

    fold: str
    metric: str
    error: float
    coverage: float
    runs: int
    of: int


@dataclass(frozen=True, kw_only=True)
class PredictedLoad:
    """What a level of load would bring.

    Attributes:
        numbers: by name; empty where there are doubts. doubts: why there is no prediction.
        shares: of a median request's time, by phase (0–1); empty where there are doubts.
    """

    workload: str
    axis: str
    level: float
    numbers: Mapping[str, Interval]
    doubts: tuple[Doubt, ...]
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class MeasuredLoad:
    """The same numbers of a valid run, whole: from the first request sent to the last answer."""

    run: str
    workload: str
    axis: str
    level: float
    numbers: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """One deployment.

    Attributes:
        digest: of all that decides the rest. why_not: why none could be fitted, in words. doubts: why the fit must not be relied on;
            `bench.findings.predicted.no_model` has both in words.
        parameters: by name of `bench.predict.calibrate.parameters`, with their central 90 % over the bootstrap.
        run_noise: standard deviation of ln time between runs. residual: median relative error of the fit.
    """

    deployment: str
    digest: str
    why_not: str | None = None
    doubts: tuple[Doubt, ...] = ()
    parameters: Mapping[str, Interval]
    run_noise: float = 0.0
    residual: float = 0.0
    judged: tuple[Judgement, ...] = ()
    predicted: tuple[PredictedLoad, ...] = ()
    measured: tuple[MeasuredLoad, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The models of a study, in the order of its deployments, and others that earlier selections of it had."""

    models: tuple[ModelRecord, ...]

    def of(self, deployments: Iterable[str]) -> Calibration:
        """Those of these deployments."""
        names = set(deployments)
        return Calibration(models=tuple(model for model in self.models if model.deployment in names))


LITTLE = 1.05  # gain up to which more of a resource brings no more; convention


@dataclass(frozen=True)
class Gain:
    """By which factor the highest load within the SLOs would carry more requests/s, with its 95 % interval; 1: no more.

    Attributes:
        resource: `kv` (four times the KV memory), `sequences` (no bound on requests at once), `prefill` or `decode` (prompts, or all
            else of a step, in half the time), `interference` (prompts computed elsewhere).
        more: whether the replays looked no further, so that it may be more.
    """

    resource: str
    gain: float
    low: float
    high: float
    more: bool = False

    @property
    def sure(self) -> bool:
        """Whether it is worth a word, and not chance."""
        return self.gain >= LITTLE and self.low > 1

    @property
    def none(self) -> bool:
        """Whether more of the resource brings no more: all of the interval says so."""
        return self.low <= 1 and self.high <= LITTLE and not self.more


@dataclass(frozen=True)
class Relief:
    """The gains of one curve.

    Attributes:
        gains: the greatest first, then those that are not surely less, then the rest from the greatest on.
        tied: how many of the first are causes alike; 0 where none is sure.
    """

    gains: tuple[Gain, ...]
    tied: int


@dataclass(frozen=True, kw_only=True)
class CurveRelief:
    """One curve. Attributes: digest: of all that decides the rest. relief: None where it is not known; why_not: why, in words."""

    deployment: str
    workload: str
    digest: str
    relief: Relief | None = None
    why_not: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reliefs:
    """The curves of a study whose limit is measured, and others that earlier selections of it had."""

    curves: tuple[CurveRelief, ...] = ()

    def by_curve(self) -> dict[tuple[str, str], CurveRelief]:
        """By deployment and workload."""
        return {(each.deployment, each.workload): each for each in self.curves}
