"""How throughput follows a numeric setting at each load, and how many devices are best.

Time per output token T = 1 ÷ throughput, with the value n of the setting and the least value m:

- power: T = T(m) · (n ÷ m)⁻ᵇ, so that throughput is proportional to nᵇ
- inverse: T = T(m) · (c + (1 − c) · m ÷ n), a part that n does not change and one that it divides; of devices, Amdahl's law
  (Validity of the single processor approach, 1967)

A form is chosen where the data reject the other and not it (lack of fit by F at 5 %: Draper and Smith, Applied Regression
Analysis), so a true form is passed over for the other in at most one of twenty cases.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.analysis.blocks import ASSUMED_SPREAD, FEWEST_SESSIONS
from bench.analysis.level_values import level_values
from bench.analysis.levels import LEAST_NOISE
from bench.analysis.setting_gain import Ratio, devices_of
from bench.axes import HELD
from bench.statistics import FEWEST_POINTS, TAIL, f_below, student_t
from bench.study.settings import varying_settings

Floats = npt.NDArray[np.float64]
Verdict = Literal["power", "inverse", "undecided", "neither", "few", "unknown"]
_METRIC, _LATENCY = "throughput_tokens_per_s", "e2e_p50_s"
_REJECTED = 2 * TAIL  # probability of as bad a fit from which on a form is rejected; convention


@dataclass(frozen=True)
class Form:
    """One form, fitted. Attributes: at: throughput with the least value (output tokens/s). shape: b or c, with its 95 % interval."""

    at: float
    shape: Ratio


@dataclass(frozen=True)
class LoadCurve:
    """Throughput by the values of a setting under one load.

    Attributes:
        values: ascending, those with a valid run. throughput: with each (output tokens/s, geometric mean), between `low` and `high` at
            95 % confidence, which are None where no run was repeated.
        verdict: `power` or `inverse`; `undecided`, both fit; `neither` does; `few`, less than three values; `unknown`, no run was
            repeated. power, inverse: None where `few` or `unknown`.
        most: the devices that may give the most output tokens/s each; one of them does at 95 % confidence. quickest: likewise with the
            shortest E2E P50. Empty of a setting that is no number of devices.
    """

    level: float
    values: tuple[float, ...]
    throughput: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    verdict: Verdict
    power: Form | None = None
    inverse: Form | None = None
    most: tuple[int, ...] = ()
    quickest: tuple[int, ...] = ()


@dataclass(frozen=True)
class SettingCurve:
    """A numeric setting under several loads, all else alike.

    Attributes:
        deployments: by value, ascending. setting: its column. others: settings that change exactly when it does.
        devices: whether it is a number of devices. gpus: whether they are GPUs. spread_assumed: whether how far starts of a server
            differ is assumed, and not measured.
    """

    model: str
    engine: str | None
    workload: str
    axis: str
    deployments: tuple[str, ...]
    setting: str
    others: tuple[str, ...]
    devices: bool
    gpus: bool
    spread_assumed: bool
    loads: tuple[LoadCurve, ...]


def setting_curves(runs: pl.DataFrame) -> list[SettingCurve]:
    """Every numeric setting with three values or more, and every number of devices with two, of each model, engine and closed load.

    Of open loops there are none: their throughput is the load that they offer.

    Args:
        runs: summary rows of workloads whose load is what is asked about, as `setting_gains` takes them, with `session` and
            `e2e_p50_s`.
    """
    found = []
    held = runs.filter(pl.col("axis").is_in(HELD))
    for _, group in held.group_by("model", "engine", "workload", "axis", maintain_order=True):
        sides = {side["deployment"][0]: side for side in group.partition_by("deployment", maintain_order=True)}
        rows = {name: side.row(0, named=True) for name, side in sides.items()}
        groups = varying_settings(list(rows.values()))
        for setting, others in groups.items():
            for alike in _alike(rows, setting, groups):
                of = {value: sides[name] for value, name in alike.items()}
                devices = {value: devices_of(side) for value, side in of.items()}
                several = len(set(devices.values())) > 1
                if len(of) >= (2 if several else FEWEST_POINTS):
                    found.append(_curve(group, setting, others, of, devices if several else {}))
    return [curve for curve in found if curve.loads]


def _alike(
    rows: Mapping[str, Mapping[str, Any]], setting: str, groups: Mapping[str, tuple[str, ...]]
) -> Iterator[dict[float, str]]:
    """Deployments by the number that the setting is, ascending: those that are alike in all other settings; the first of each value."""
    parts: dict[tuple[Any, ...], dict[float, str]] = defaultdict(dict)
    for name, row in rows.items():
        value = _number(row[setting])
        if value is not None:
            parts[tuple(row.get(other) for other in groups if other != setting)].setdefault(value, name)
    return (dict(sorted(part.items())) for part in parts.values())


def _number(value: Any) -> float | None:
    """A setting's value above 0; None where it is no such number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if not isinstance(value, bool) and 0 < number < math.inf else None


def _curve(
    group: pl.DataFrame,
    setting: str,
    others: tuple[str, ...],
    sides: Mapping[float, pl.DataFrame],
    devices: Mapping[float, int],
) -> SettingCurve:
    """Args: group: rows of the model, engine and load. sides: runs by value. devices: of each value; empty of another setting."""
    first = group.row(0, named=True)
    runs = pl.concat([side.with_columns(value=pl.lit(value)) for value, side in sides.items()]).filter("valid")
    noise = {column: _run_noise(runs, column) for column in (_METRIC, _LATENCY)}
    loads = []
    for (level,), part in runs.sort("level").group_by("level", maintain_order=True):
        rates = _means(part, _METRIC, noise[_METRIC])
        if len(rates.values) < 2:
            continue
        most: tuple[int, ...] = ()
        quickest: tuple[int, ...] = ()
        if devices:
            each = np.log([devices[value] for value in rates.values])
            most = _best(rates, rates.log - each, devices)
            quickest = _quickest(part, noise[_LATENCY], devices)
        loads.append(_load(float(level), rates, most, quickest))
    return SettingCurve(
        **{key: first[key] for key in ("model", "engine", "workload", "axis")},
        deployments=tuple(side["deployment"][0] for side in sides.values()),
        setting=setting,
        others=others,
        devices=bool(devices),
        gpus=first["device"] == "cuda",
        spread_assumed=any(side["session"].fill_null(1).n_unique() < FEWEST_SESSIONS for side in sides.values()),
        loads=tuple(loads),
    )


def _quickest(part: pl.DataFrame, noise: tuple[float, int], devices: Mapping[float, int]) -> tuple[int, ...]:
    """As `_best` has it of E2E; empty where that of a value is not known. Where half of the requests failed, it is without end."""
    values = level_values(part, [_LATENCY])
    if values[_LATENCY].null_count():
        return ()
    answering = part.join(values.filter(pl.col(_LATENCY).is_finite()), on="deployment", how="semi", maintain_order="left")
    times = _means(answering, _LATENCY, noise)
    return _best(times, -times.log, devices)


@dataclass(frozen=True)
class _Means:
    """Mean ln of a quantity by value, ascending, the variance of each mean, and the degrees of freedom behind it; 0: not known."""

    values: list[float]
    log: Floats
    variance: Floats
    freedom: int


def _run_noise(runs: pl.DataFrame, column: str) -> tuple[float, int]:
    """Variance of a run's ln about its value's and level's mean, and its degrees of freedom."""
    cells = (
        _logs(runs, column)
        .group_by("value", "level")
        .agg(n=pl.len(), squares=(pl.col("log") - pl.col("log").mean()).pow(2).sum())
    )
    freedom = int((cells["n"] - 1).sum())
    return (float(cells["squares"].sum()) / freedom if freedom else 0.0), freedom


def _logs(runs: pl.DataFrame, column: str) -> pl.DataFrame:
    known = runs.filter(pl.col(column).is_finite() & (pl.col(column) > 0))
    return known.select("value", "level", pl.col("session").fill_null(1), log=pl.col(column).log())


def _means(part: pl.DataFrame, column: str, noise: tuple[float, int]) -> _Means:
    """The values of one level.

    From four sessions on a start of a server is one observation, whatever the number of its runs; of fewer, how far starts differ is
    assumed, beside the noise of runs (`bench.analysis.blocks`).

    Args:
        noise: of `_run_noise`.
    """
    starts = _logs(part, column).group_by("value", "session").agg(pl.col("log").mean(), runs=pl.len())
    cells = (
        starts.group_by("value")
        .agg(
            pl.col("log").mean(),
            sessions=pl.len(),
            runs=pl.col("runs").sum(),
            squares=(pl.col("log") - pl.col("log").mean()).pow(2).sum(),
        )
        .sort("value")
    )
    values, log = cells["value"].to_list(), cells["log"].to_numpy()
    sessions, count = (cells[name].to_numpy().astype(float) for name in ("sessions", "runs"))
    if len(values) and sessions.min() >= FEWEST_SESSIONS:
        freedom = int(sessions.sum()) - len(values)
        between = max(LEAST_NOISE**2, float(cells["squares"].sum()) / freedom)
        return _Means(values, log, between / sessions, freedom)
    variance, freedom = noise
    return _Means(values, log, variance / count + ASSUMED_SPREAD**2 / 2 / sessions, freedom)


def _best(means: _Means, better: Floats, devices: Mapping[float, int]) -> tuple[int, ...]:
    """The numbers of devices that no other one significantly beats: the true best is among them at 95 % confidence (Bonferroni).

    Args:
        better: ln of what is to be most, by value.
    """
    every = range(len(means.values))
    if not means.freedom:
        return tuple(devices[value] for value in means.values)
    bar = student_t(means.freedom, 1 - 4 * TAIL / max(1, len(every) - 1))
    beaten = {
        i
        for i, j in itertools.permutations(every, 2)
        if better[j] - better[i] > bar * math.sqrt(means.variance[i] + means.variance[j])
    }
    return tuple(devices[means.values[i]] for i in every if i not in beaten)


def _load(level: float, means: _Means, most: tuple[int, ...], quickest: tuple[int, ...]) -> LoadCurve:
    half = student_t(means.freedom) * np.sqrt(means.variance) if means.freedom else None
    unknown = (None,) * len(means.values)
    curve = LoadCurve(
        level=level,
        values=tuple(means.values),
        throughput=tuple(np.exp(means.log).tolist()),
        low=unknown if half is None else tuple(np.exp(means.log - half).tolist()),
        high=unknown if half is None else tuple(np.exp(means.log + half).tolist()),
        verdict="few" if means.freedom else "unknown",
        most=most,
        quickest=quickest,
    )
    if not means.freedom or len(means.values) < FEWEST_POINTS:
        return curve
    (power, power_fits), (inverse, inverse_fits) = _power(means), _inverse(means)
    verdicts: dict[tuple[bool, bool], Verdict] = {
        (True, False): "power", (False, True): "inverse", (True, True): "undecided", (False, False): "neither"
    }  # fmt: skip
    return replace(curve, verdict=verdicts[power_fits, inverse_fits], power=power, inverse=inverse)


def _power(means: _Means) -> tuple[Form, bool]:
    relative = np.log(np.array(means.values) / means.values[0])
    found, covariance = np.polyfit(relative, means.log, 1, w=1 / np.sqrt(means.variance), cov="unscaled")
    return _form(means, found, covariance, found[1] + found[0] * relative)


def _inverse(means: _Means) -> tuple[Form, bool]:
    from scipy.optimize import curve_fit  # noqa: PLC0415 - it takes a second of CPU

    relative = means.values[0] / np.array(means.values)
    least = -relative[-1] / (1 - relative[-1])  # of c; below it time would be negative

    def log(part: Floats, c: float, at: float) -> Floats:
        return at - np.log(np.maximum(c + (1 - c) * part, 1e-9))

    times = np.exp(means.log[0] - means.log[-1])
    start = ((times - relative[-1]) / (1 - relative[-1]), means.log[0])
    found, covariance = curve_fit(
        log,
        relative,
        means.log,
        p0=start,
        sigma=np.sqrt(means.variance),
        absolute_sigma=True,
        bounds=([least, -np.inf], np.inf),
    )
    return _form(means, found, covariance, log(relative, *found))


def _form(means: _Means, found: Floats, covariance: Floats, fitted: Floats) -> tuple[Form, bool]:
    """The form, and whether it fits. Args: found: its shape, and the ln of throughput with the least value. fitted: ln by value."""
    half = student_t(means.freedom) * math.sqrt(covariance[0][0])
    free = len(means.values) - len(found)
    misfit = float(((means.log - fitted) ** 2 / means.variance).sum()) / free
    shape = Ratio(float(found[0]), float(found[0] - half), float(found[0] + half))
    return Form(math.exp(found[1]), shape), 1 - f_below(misfit, free, means.freedom) > _REJECTED
