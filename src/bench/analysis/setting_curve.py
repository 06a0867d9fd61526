"""How throughput follows a numeric setting at each load, and how many devices are best.

Time per output token T = 1 ÷ throughput, with the value n of the setting and the least value m:

- power: T = T(m) · (n ÷ m)⁻ᵇ, so that throughput is proportional to nᵇ
- inverse: T = T(m) · (c + (1 − c) · m ÷ n), a part that n does not change and one that it divides; of devices, Amdahl's law
  (Validity of the single processor approach, 1967)

A form is chosen where the data reject the other and not it (lack of fit by F at 5 %: Draper and Smith, Applied Regression
Analysis), so a true form is passed over for the other in at most one of twenty cases.

Values are compared as any deployments are (`bench.analysis.compare`): the ratio of two is that of their pairs of runs, with the same
noise. The variance of a ratio at a load is averaged over all pairs of values, which differ in it by chance; half is one value's own.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.analysis.compare import log_ratios
from bench.analysis.effects import Ratio, Sweep, sweep
from bench.analysis.level_values import level_values
from bench.analysis.setting_gain import baseline_value, devices_of
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
        values: ascending, those compared with the value that the others are compared with. throughput: with each (output tokens/s):
            the geometric mean of that value's runs, and the others by their ratio to it. Intervals are apart from what a session has in
            common for all values.
        verdict: `power` or `inverse`; `undecided`, both fit; `neither` does; `few`, less than three values; `unknown`, nothing shows
            the noise. power, inverse: None where `few` or `unknown`.
        most: the devices that may give the most output tokens/s each; one of them does at 95 % confidence. quickest: likewise with the
            shortest E2E P50. Empty of a setting that is no number of devices.
    """

    level: float
    values: tuple[float, ...]
    throughput: tuple[Ratio, ...]
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
    based = baseline_value(setting, group.partition_by("deployment", maintain_order=True))
    order = sorted(sides, key=lambda value: value not in map(_number, based))
    sweeps = _sweeps({value: sides[value] for value in order})
    runs = pl.concat([side.with_columns(value=pl.lit(value)) for value, side in sides.items()]).filter("valid")
    loads = []
    for (level,), part in runs.sort("level").group_by("level", maintain_order=True):
        rates = _means(float(level), order, sweeps[_METRIC])
        if len(rates.values) < 2:
            continue
        most: tuple[int, ...] = ()
        quickest: tuple[int, ...] = ()
        if devices:
            each = np.log([devices[value] for value in rates.values])
            most = _best(rates, rates.log - each, devices)
            quickest = _quickest(part, order, sweeps[_LATENCY], devices)
        known = part.filter((pl.col("value") == rates.first) & (pl.col(_METRIC) > 0))
        mean = known.group_by("session").agg(pl.col(_METRIC).log().mean())[_METRIC].to_numpy().mean()
        loads.append(_load(float(level), replace(rates, log=rates.log + mean), most, quickest))
    return SettingCurve(
        **{key: first[key] for key in ("model", "engine", "workload", "axis")},
        deployments=tuple(side["deployment"][0] for side in sides.values()),
        setting=setting,
        others=others,
        devices=bool(devices),
        gpus=first["device"] == "cuda",
        spread_assumed=any(each.fit.assumed for each in sweeps[_METRIC].values()),
        loads=tuple(loads),
    )


def _sweeps(sides: Mapping[float, pl.DataFrame]) -> dict[str, dict[tuple[float, float], Sweep]]:
    """Of each metric the later value of each two against the earlier one; without those of which no pair is valid."""
    both = {f"{one} {other}": (one, other) for one, other in itertools.combinations(sides, 2)}
    ours, theirs = (
        pl.concat([sides[pair[i]].with_columns(deployment=pl.lit(name)) for name, pair in both.items()]) for i in (0, 1)
    )
    found: dict[str, dict[tuple[float, float], Sweep]] = {_METRIC: {}, _LATENCY: {}}
    for (metric, name), pairs in log_ratios(ours, theirs, list(found)).group_by("metric", "deployment", maintain_order=True):
        if (known := sweep(pairs)) is not None:
            found[str(metric)][both[str(name)]] = known
    return found


def _quickest(
    part: pl.DataFrame, order: Sequence[float], sweeps: Mapping[tuple[float, float], Sweep], devices: Mapping[float, int]
) -> tuple[int, ...]:
    """As `_best` has it of E2E; empty where that of a value is not known, or none is finite: half of the requests failed."""
    names = part.select("deployment", "value").unique()
    times = dict(level_values(part, [_LATENCY]).join(names, on="deployment").select("value", _LATENCY).iter_rows())
    answering = [value for value in order if value in times and times[value] != math.inf]
    if None in times.values() or not answering:
        return ()
    means = _means(part["level"][0], answering, sweeps)
    return _best(means, -means.log, devices) if len(means.values) == len(answering) else ()


@dataclass(frozen=True)
class _Means:
    """ln of a quantity by value, ascending, less that with the `first` one; the standard deviation of each apart from what a session
    has in common for all, and the degrees of freedom behind it; 0: not known.
    """

    values: list[float]
    first: float
    log: Floats
    deviation: float
    freedom: float


def _means(level: float, order: Sequence[float], sweeps: Mapping[tuple[float, float], Sweep]) -> _Means:
    """The values that are compared at a level with the first of them that can be. Args: order: values, that of the baseline first."""
    at = {pair: each for pair, each in sweeps.items() if level in each.loads and set(pair) <= set(order)}
    first = next((value for value in order if any(value in pair for pair in at)), order[0])
    log = {first: 0.0} | {pair[1]: each.log([level])[0] for pair, each in at.items() if pair[0] == first}
    values = sorted(log)
    noise = [each.log([level])[1:] for pair, each in at.items() if set(pair) <= set(values) and each.fit.known]
    error, freedom = np.array(noise).reshape(-1, 2).T
    deviation = float((error**2).mean() / 2) ** 0.5 if noise else 0.0
    # Of n values alike in noise n − 1 contrasts are independent, each with as many degrees of freedom as a pair.
    free = float(freedom.mean()) * (len(values) - 1) if noise else 0.0
    return _Means(values, first, np.array([log[value] for value in values]), deviation, free)


def _best(means: _Means, better: Floats, devices: Mapping[float, int]) -> tuple[int, ...]:
    """The numbers of devices that no other one significantly beats: the true best is among them at 95 % confidence (Bonferroni).

    Args:
        better: ln of what is to be most, by value.
    """
    every = range(len(means.values))
    if not means.freedom:
        return tuple(devices[value] for value in means.values)
    bar = student_t(means.freedom, 1 - 4 * TAIL / max(1, len(every) - 1))
    beaten = {i for i, j in itertools.permutations(every, 2) if better[j] - better[i] > bar * 2**0.5 * means.deviation}
    return tuple(devices[means.values[i]] for i in every if i not in beaten)


def _load(level: float, means: _Means, most: tuple[int, ...], quickest: tuple[int, ...]) -> LoadCurve:
    half = student_t(means.freedom) * means.deviation if means.freedom else None
    curve = LoadCurve(
        level=level,
        values=tuple(means.values),
        throughput=tuple(Ratio.of(log, half) for log in means.log.tolist()),
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
    found, covariance = np.polyfit(relative, means.log, 1, cov="unscaled")
    return _form(means, found, covariance * means.deviation**2, found[1] + found[0] * relative)


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
        sigma=np.full(len(relative), means.deviation),
        absolute_sigma=True,
        bounds=([least, -np.inf], np.inf),
    )
    return _form(means, found, covariance, log(relative, *found))


def _form(means: _Means, found: Floats, covariance: Floats, fitted: Floats) -> tuple[Form, bool]:
    """The form, and whether it fits. Args: found: its shape, and the ln of throughput with the least value. fitted: ln by value."""
    half = student_t(means.freedom) * math.sqrt(covariance[0][0])
    free = len(means.values) - len(found)
    misfit = float(((means.log - fitted) ** 2).sum()) / means.deviation**2 / free
    shape = Ratio(float(found[0]), float(found[0] - half), float(found[0] + half))
    return Form(math.exp(found[1]), shape), 1 - f_below(misfit, free, means.freedom) > _REJECTED
