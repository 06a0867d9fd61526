"""The time of an engine's step by what is computed in it, fitted to the intervals of measured runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.optimize import nnls

from bench.predict.passes import Passes
from bench.statistics.textbook import FREEDOM, MEDIAN_DEVIATION

Floats = npt.NDArray[np.float64]

FEWEST_INTERVALS = 30  # fewest intervals of a fit; convention
# knots of the line over tokens in a step; convention: powers of two, as kernels are not linear in the batch
_KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_STALLED = 5.0  # interval ÷ usual step of its kind above which the machine paused; tuned: benchmarks.predict
_KIND = ["steps", "decodes", "firsts", "idle", "about"]
_CLASSES = 4  # kinds of steps an e-fold of prompt tokens; tuned: benchmarks.predict
_EDGES = (0.0, *map(float, _KNOTS), math.inf)  # ends of the parts of that line; derived
_LINE = [f"line_{i}" for i in range(len(_KNOTS) + 1)]  # tokens between two edges, of all passes
_MEANS = ("took_s", "prefill", "context", "attended", "passes", "most_tokens", *_LINE)
_PART = 0.1  # share of the run's median time below which an interval is no step of its own; tuned: benchmarks.predict
# weight of "neighbouring parts of the line have one slope", in relative errors of a class; tuned: benchmarks.predict
_SMOOTH = 0.3
# weight of "a further micro-batch takes as long as the first", in relative errors of the shortest class; tuned: benchmarks.predict
_SAME = 3.0
_PER_MEDIAN = round(1 / MEDIAN_DEVIATION, 4)  # standard deviations of a normal ÷ the median of its absolute value; derived
_MOST_COUNTED = 50.0  # intervals of a class beyond which more of them count no more; tuned: benchmarks.predict
_ROUNDS = 6  # rounds of reweighting; convention
# robust standard deviations beyond which a class counts by its distance, not its square (Huber 1964); convention: near 1.345, which
# is 95 % efficient for normal errors
_HUBER = 1.5
# standard deviation of ln predicted ÷ measured before runs show it, with the weight of `FREEDOM` of them: loads of other kinds are
# farther off than other levels of one; measured: docs/explanation/decisions.md, "Intervals begin with an error of 6 %"
ASSUMED_ERROR = 0.06
ASSUMED_THROUGHPUT_ERROR = ASSUMED_ERROR / 2  # the same of a mean over whole runs; measured: as above

# Coefficients beside those of the line.
_NAMED = ("idle_s", "fixed_s", "sequence_s", "context_s", "attended_s", "pass_s")


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step.

    `idle_s` where the engine had nothing to do before + `fixed_s` + `pass_s` × passes through the layers beyond the first +
    `sequence_s` × requests that get a token + of each pass a line over its tokens, with a bend at each of `knots`, + `context_s` ×
    tokens that decodes read + `attended_s` × tokens that prompt tokens read.

    Attributes:
        slopes_s: seconds a token of the line, up to each knot and beyond the last. bare, prompts: factors, of the time of a step
            without its prompts and of what these add to it; a replay alone obeys them (`bench.predict.relief`).
    """

    idle_s: float
    fixed_s: float
    sequence_s: float
    knots: tuple[float, ...]
    slopes_s: tuple[float, ...]
    context_s: float
    attended_s: float
    pass_s: float = 0.0
    bare: float = 1.0
    prompts: float = 1.0

    def line(self, tokens: float) -> float:
        """Seconds of the tokens in a step, by the line alone."""
        total, before = 0.0, 0.0
        for knot, slope in zip(self.knots, self.slopes_s, strict=False):
            if tokens <= knot:
                return total + slope * (tokens - before)
            total += slope * (knot - before)
            before = knot
        return total + self.slopes_s[-1] * (tokens - before)

    def times(self, factor: float) -> StepTime:
        """All of it so many times as long."""
        named = {name: factor * getattr(self, name) for name in _NAMED}
        return replace(self, **named, slopes_s=tuple(factor * slope for slope in self.slopes_s))

    def seconds(
        self,
        *,
        decodes: int,
        firsts: int,
        prefill: int,
        context: float,
        attended: float,
        passes: Passes | None = None,
    ) -> float:
        """Time of one step (s). Args: passes: None for a single one."""
        if passes is None:
            layers = self.line(decodes + prefill)
        else:
            layers = sum(number * self.line(tokens) for tokens, number in passes)
            layers += self.pass_s * max(0.0, sum(number for _, number in passes) - 1)
        return (
            self.fixed_s + self.sequence_s * (decodes + firsts) + layers + self.context_s * context + self.attended_s * attended
        )


@dataclass(frozen=True)
class Fitted:
    """A fit, and how far steps and runs stray from it.

    Attributes:
        draws: fits to the runs drawn again with replacement. noise: standard deviation of ln time of a step ÷ the usual one of its run;
            strays: the same of each step, whose tails are longer than a normal's.
        run_noise: standard deviation of ln time between runs. residual: median absolute relative error of the classes of steps.
        most: what was exercised: of `decodes` (requests at once) and `tokens` (of a step) the most.
    """

    best: StepTime
    draws: tuple[StepTime, ...]
    noise: float
    strays: Floats = field(compare=False)
    run_noise: float
    residual: float
    most: Mapping[str, float]


def fit_steps(runs: Sequence[pl.DataFrame], *, draws: int) -> Fitted | None:
    """Fit step times to the intervals of runs; None where there are fewer than 30.

    Intervals of one kind (the same decodes and firsts, about the same prompt tokens) in a run make a class, which counts by its trimmed
    mean, so that what is frequent does not outweigh what is rare. Least squares on relative errors without negative coefficients
    (Lawson and Hanson's NNLS), reweighted by Huber's weights; a line that bends follows kernels whose speed depends on the batch.

    Args:
        runs: of `intervals`, one table a run. draws: bootstrap fits, over runs, or over classes where there is one run.
    """
    runs = [_lines(run) for run in runs]
    classes = [each for run in runs if (each := _classes(run)).height]
    whole = pl.concat(classes) if classes else pl.DataFrame()
    count = int(whole["count"].sum()) if whole.height else 0
    if count < FEWEST_INTERVALS:
        return None
    knots, random = _knots(whole), np.random.default_rng(1)
    best, drawn = _fit(whole, knots), []
    for _ in range(draws):
        if len(classes) > 1:
            chosen = pl.concat([classes[i] for i in random.integers(0, len(classes), len(classes))])
        else:
            chosen = _drawn_again(whole, random)
        drawn.append(_fit(chosen, knots))
    strays = _strays(runs, best)
    return Fitted(
        best=best,
        draws=tuple(drawn),
        noise=_PER_MEDIAN * float(np.median(np.abs(strays))),
        strays=strays,
        run_noise=_run_noise(runs, best),
        residual=float(np.median(np.abs(whole["took_s"].to_numpy() / _predicted(whole, best) - 1))),
        most={
            "decodes": float(np.max((whole["decodes"] + whole["firsts"]).to_numpy())),
            "tokens": float(np.max(((whole["decodes"] + whole["prefill"]) / whole["steps"]).to_numpy())),
        },
    )


def _drawn_again(classes: pl.DataFrame, random: np.random.Generator) -> pl.DataFrame:
    """Classes drawn with replacement, as many of each sort as there are: that decode, that end prompts, that follow idleness."""
    sorts = (
        classes.with_row_index().group_by(pl.col("decodes") > 0, pl.col("firsts") > 0, "idle", maintain_order=True).agg("index")
    )
    chosen: list[int] = []
    for rows in sorts["index"].to_list():
        chosen += [rows[i] for i in random.integers(0, len(rows), len(rows))]
    return classes[chosen]


def _known(run: pl.DataFrame) -> pl.DataFrame:
    return run.filter(pl.col("took_s").is_finite() & (pl.col("took_s") > 0))


def _classes(run: pl.DataFrame) -> pl.DataFrame:
    """The intervals of a run, those of one kind together: their number, and trimmed means."""
    run = run.with_columns(about=pl.col("prefill").log1p().mul(_CLASSES).round())
    usual = pl.col("took_s").median().over(_KIND)
    # Relative errors would make the shortest count most: these are tokens of one step that came in two parts.
    step = (pl.col("took_s") >= usual / _STALLED) & (pl.col("took_s") >= _PART * pl.col("took_s").median())
    kept = _known(run).filter(step & (pl.col("took_s") <= _STALLED * usual))
    return kept.group_by(_KIND, maintain_order=True).agg(pl.len().alias("count"), *(pl.col(name).mean() for name in _MEANS))


def _lines(run: pl.DataFrame) -> pl.DataFrame:
    """Intervals with the passes and, between each two edges, the tokens of all of them."""
    tokens, number = pl.col("pass_tokens"), pl.col("passes")
    parts = [
        (tokens.list.eval((pl.element() - low).clip(0.0, high - low)) * number).list.sum().alias(name)
        for name, (low, high) in zip(_LINE, itertools.pairwise(_EDGES), strict=True)
    ]
    return run.with_columns(*parts, most_tokens=tokens.list.max()).with_columns(passes=number.list.sum())


def _knots(classes: pl.DataFrame) -> tuple[float, ...]:
    """Bends between the fewest and the most tokens of a step, each with classes on both of its sides."""
    tokens = _numbers(classes, "most_tokens")
    low, high = float(tokens.min()), float(tokens.max())
    inner = [float(knot) for knot in _KNOTS if low < knot < high]
    kept, before = list[float](), low
    for knot in inner:
        if ((tokens > before) & (tokens <= knot)).any() and (tokens > knot).any():
            kept.append(knot)
            before = knot
    return tuple(kept)


def _numbers(classes: pl.DataFrame, name: str) -> Floats:
    values: Floats = classes[name].to_numpy().astype(float)
    return values


def _terms(classes: pl.DataFrame, knots: Sequence[float]) -> dict[str, Floats]:
    """What each coefficient of a step's time is multiplied with, by its name."""
    bounds = [0, *(1 + _KNOTS.index(int(knot)) for knot in knots), len(_LINE)]
    line = [
        classes.select(pl.sum_horizontal(_LINE[low:high])).to_series().to_numpy() for low, high in itertools.pairwise(bounds)
    ]
    sequences, steps = _numbers(classes, "decodes") + _numbers(classes, "firsts"), _numbers(classes, "steps")
    return {
        "idle_s": _numbers(classes, "idle"),
        "fixed_s": steps,
        "sequence_s": sequences,
        "context_s": _numbers(classes, "context"),
        "attended_s": _numbers(classes, "attended"),
        "pass_s": np.maximum(0.0, _numbers(classes, "passes") - steps),
        **{_slope(i): tokens for i, tokens in enumerate(line)},
    }


def _slope(number: int) -> str:
    return f"slope_{number}_s"


def _fit(classes: pl.DataFrame, knots: Sequence[float]) -> StepTime:
    terms, took = _terms(classes, knots), classes["took_s"].to_numpy()
    design = np.column_stack(list(terms.values()))
    wanted = np.array([[row.get(name, 0.0) for name in terms] for row in _wanted(classes, knots)]).reshape(-1, len(terms))
    base = np.sqrt(np.minimum(_numbers(classes, "count"), _MOST_COUNTED)) / took
    weights, scale = base.copy(), design.max(axis=0)
    scale[scale == 0] = 1.0
    solution = np.zeros(len(terms))
    for _ in range(_ROUNDS):
        rows = np.vstack([design * weights[:, None], wanted]) / scale
        solution = nnls(rows, np.concatenate([took * weights, np.zeros(len(wanted))]))[0] / scale
        off = (design @ solution - took) / took
        spread = max(_PER_MEDIAN * float(np.median(np.abs(off))), 1e-3)
        weights = base * np.sqrt(np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(off), 1e-9)))
    cost = dict(zip(terms, solution.tolist(), strict=True))
    slopes = tuple(cost[_slope(i)] for i in range(len(knots) + 1))
    return StepTime(**{name: cost[name] for name in _NAMED}, knots=tuple(knots), slopes_s=slopes)


def _wanted(classes: pl.DataFrame, knots: Sequence[float]) -> Iterator[dict[str, float]]:
    """Sums of coefficients that should be 0, each with its weight: neighbouring slopes differ little, by the relative change of a step
    at the knot; until runs tell more, a further pass takes what the first does.
    """
    took, tokens = classes["took_s"].to_numpy(), np.maximum(_numbers(classes, "most_tokens"), 1.0)
    for i, knot in enumerate(knots):
        weight = _SMOOTH * knot / took[np.argmin(np.abs(np.log(tokens / knot)))]
        yield {_slope(i): weight, _slope(i + 1): -weight}
    if (classes["passes"] > classes["steps"]).any():
        yield {"fixed_s": _SAME / took.min(), "pass_s": -_SAME / took.min()}


def _predicted(intervals: pl.DataFrame, step: StepTime) -> Floats:
    cost = {_slope(i): slope for i, slope in enumerate(step.slopes_s)} | {name: getattr(step, name) for name in _NAMED}
    parts = [cost[name] * values for name, values in _terms(intervals, step.knots).items()]
    seconds: Floats = np.maximum(np.sum(parts, axis=0), 1e-9)
    return seconds


def _strays(runs: Sequence[pl.DataFrame], step: StepTime) -> Floats:
    """Ln of each step's time ÷ the usual one of its run, without those in which the machine paused."""
    ratios = [run["took_s"].to_numpy() / _predicted(run, step) for run in map(_known, runs) if run.height]
    strays: Floats = np.log(np.concatenate([ratio / np.median(ratio) for ratio in ratios]))
    return strays[strays <= math.log(_STALLED)]


def _run_noise(runs: Sequence[pl.DataFrame], step: StepTime) -> float:
    """Standard deviation of ln time between runs, with what is assumed before any is seen."""
    off = []
    for run in runs:
        known = _known(run)
        if known.height >= FEWEST_INTERVALS:
            off.append(math.log(float(known["took_s"].sum()) / float(_predicted(known, step).sum())))
    squares = float(np.sum(np.square(np.array(off) - np.mean(off)))) if off else 0.0
    return math.sqrt((squares + FREEDOM * ASSUMED_THROUGHPUT_ERROR**2) / (max(0, len(off) - 1) + FREEDOM))
