"""Whether what production did over a time is what a study measured: differences with intervals, and verdicts on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from bench.analysis.belief import SPEEDS_DIFFER
from bench.drifted.batches import BLOCKS, FEWEST_BLOCKS, Ratio, in_blocks, ratio, sums
from bench.drifted.curve import HELD, LOADS, SPEEDS, Line, Studied
from bench.errors import shown_share
from bench.statistics import CONFIDENCE, student_t

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

SAME, DIFFERS, UNKNOWN = "same", "differs", "not known"
# least difference of a mean length that matters (relative); convention: C_max moves by about as much, and its interval is wider
LENGTHS_MATTER = 0.10
# how far outside the measured loads production may be (relative); convention: a closed loop's mean lies below what it holds
LOADS_MATTER = 0.10
HITS_MATTER = 0.05  # least difference of a prefix-cache hit rate that matters (0–1); convention: a twentieth of all prefill
# least difference of a latency that matters (relative); convention: the precision of a limit that `bench find` asks for, and five
# standard deviations between starts
SPEEDS_MATTER = 0.20
_BEYOND = 0.10  # share of tokens made outside the measured loads, or of TTFT in queues, up to which latencies are compared; convention

HITS, MIXED = "prefix-cache hit rate", "prompt ÷ output tokens"
LENGTHS = {"prompt length": "prompt", "output length": "output"}

_TITLES = {
    "ttft": "TTFT, mean",
    "itl": "ITL, mean",
    "e2e": "E2E, mean",
    HELD: "time in flight for an output token",
}
PARTS, WHOLES = {_TITLES["ttft"], _TITLES["itl"]}, {_TITLES["e2e"], _TITLES[HELD]}


@dataclass(frozen=True)
class Compared:
    """One quantity of production beside the study's.

    Attributes:
        part: `traffic`, `speed` or `server`. unit: of `study` and `production`; `0–1` of shares.
        study, production: values, or a text of what is no number; None where it is not known. Of a load `study` is a range.
        change: by how much production is higher, as a share of the study's, of shares as their difference; low, high: its interval at
            95 % confidence.
        verdict: `same`, `differs` or `not known`. why: of a verdict that the numbers do not show.
        shown: whether both the study and production show it, so that other or more data would decide.
    """

    name: str
    part: str
    unit: str
    study: float | tuple[float, float] | str | None
    production: float | str | None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = UNKNOWN
    why: str | None = None
    shown: bool = True


def compared(studied: Studied, between: pl.DataFrame, seconds: float) -> list[Compared]:
    """Traffic and speed of production beside those of the study.

    The verdict `differs` needs a significant difference that also matters. All tests together raise a false alarm in 5 of 100 times at
    most (Bonferroni). `same` needs an interval of 95 % within what matters.

    Args:
        between: what servers did, as `bench.drifted.served.served` returns it. seconds: length of the time.
    """
    blocks = in_blocks(between, 0.0, seconds)
    # An engine that shows E2E shows by it what the time in flight would.
    speeds = [name for name in SPEEDS if name != HELD or blocks["e2e_count"].null_count() == len(blocks)]
    tests = 3 + len(speeds)  # both lengths and hits
    confidence = 1 - (1 - CONFIDENCE) / tests
    traffic = list(_traffic(studied, blocks, confidence))
    return [*traffic, *(_speed(name, studied, blocks, confidence, traffic) for name in speeds)]


def _traffic(studied: Studied, blocks: pl.DataFrame, confidence: float) -> Iterator[Compared]:
    had = (pl.col("held").fill_null(0) + pl.col("output").fill_null(0)).sum().over("instance") > 0
    busy = blocks.filter(had) if blocks.select(had.any()).item() else blocks  # a spare server makes the others' load no less
    yield _load("requests in flight, a server", "requests", studied.loads, sums(busy, "held", "seconds"))
    yield _load("requests/s, a server", "requests/s", studied.rates, sums(busy, "requests", "seconds"))
    if blocks["requests"].null_count() == len(blocks):
        both = studied.prompt / studied.output if studied.prompt and studied.output else None
        mixed = _length(MIXED, "", both, sums(blocks, "prompt", "output"), confidence)
        # Twice as long prompts and answers have the same ratio.
        why = "the engine counts no requests, so that lengths are not known"
        yield replace(mixed, verdict=UNKNOWN, why=why) if mixed.verdict == SAME else mixed
    else:
        for name, column in LENGTHS.items():
            study = studied.prompt if column == "prompt" else studied.output
            yield _length(name, "tokens", study, sums(blocks, column, "requests"), confidence)
    yield _hits(studied, sums(blocks, "hits", "queries"), confidence)


def _load(name: str, unit: str, study: tuple[float, float] | None, blocks: tuple[Floats, Floats]) -> Compared:
    """Whether production's load lies among the measured ones: a fact of this time, which needs no test."""
    found = ratio(*blocks)
    if found is None or study is None:
        return _unknown(name, "traffic", unit, study, found, blocks)
    bare = Compared(name, "traffic", unit, study, found.value)
    if found.value > study[1] * (1 + LOADS_MATTER):
        return replace(bare, verdict=DIFFERS, why="more than was measured")
    if found.value < study[0]:
        return replace(bare, why="less than was measured" if found.value else "there were no requests")
    return replace(bare, verdict=SAME)


def _length(name: str, unit: str, study: float | None, blocks: tuple[Floats, Floats], confidence: float) -> Compared:
    found = ratio(*blocks)
    if found is None or not study or not found.value:
        return _unknown(name, "traffic", unit, study, found, blocks)
    bare = Compared(name, "traffic", unit, study, found.value)
    return _judged(bare, math.log(found.value / study), found.relative, found.freedom, math.log1p(LENGTHS_MATTER), confidence)


def _hits(studied: Studied, blocks: tuple[Floats, Floats], confidence: float) -> Compared:
    found = ratio(*blocks)
    if found is None or studied.hits is None:
        return _unknown(HITS, "traffic", "0–1", studied.hits, found, blocks)
    bare = Compared(HITS, "traffic", "0–1", studied.hits, found.value)
    error = math.hypot(found.error, studied.hits_error)
    return _judged(bare, found.value - studied.hits, error, found.freedom, HITS_MATTER, confidence, relative=False)


def _speed(name: str, studied: Studied, blocks: pl.DataFrame, confidence: float, traffic: list[Compared]) -> Compared:
    """A latency beside what the study measured at the loads that production had, scrape by scrape.

    Args:
        traffic: what was found of production's.
    """
    title, line, (above, below) = _TITLES[name], studied.lines.get(name), SPEEDS[name]
    known = blocks.drop_nulls([above, below, "held", LOADS[name]])
    loads = known[LOADS[name]].to_numpy()
    if line is None or not len(known):
        unknown = _unknown(title, "speed", "s", None, ratio(*sums(blocks, above, below)), sums(blocks, above, below))
        if line is not None and unknown.production is not None:
            return replace(unknown, why="production does not show the requests in flight that go with it")
        return unknown
    made = _made(studied, known)
    total = made.sum()
    outside = (loads * (1 + LOADS_MATTER) < line.loads[0]) | (loads > line.loads[-1] * (1 + LOADS_MATTER))
    least, most = line.at(loads)
    cut = known.with_columns(made=pl.Series(made), least=pl.Series(least * made), most=pl.Series(most * made))
    whole = cut.group_by("block").agg(pl.col(above, below, "made", "least", "most").sum())
    whole = whole.filter((pl.col("made") > 0) & (pl.col(below) > 0)).sort("block")
    seen, counts = whole[above].to_numpy(), whole[below].to_numpy()
    low, high = (counts * whole[end].to_numpy() / whole["made"].to_numpy() for end in ("least", "most"))
    expected = np.sqrt(low * high)
    found = ratio(seen, expected)
    if found is None or not found.value:
        unknown = _unknown(title, "speed", "s", None, found, (seen, counts))
        return replace(unknown, shown=True, why=unknown.why if len(seen) else "no requests were in flight at any scrape")
    bare = Compared(title, "speed", "s", float(expected.sum() / counts.sum()), float(seen.sum() / counts.sum()))
    if (beyond := float(made[outside].sum() / total)) > _BEYOND:
        ran = f"{line.loads[0]:.3g} to {line.loads[-1]:.3g} requests {'running' if name == 'itl' else 'in flight'}"
        why = f"{shown_share(beyond)} of it at loads other than the {ran} that were measured"
        return replace(bare, study=None, why=why)
    kind = [each for each in traffic if each.name in (*LENGTHS, MIXED, HITS)]
    if changed := [each.name for each in kind if each.verdict == DIFFERS]:
        return replace(bare, verdict=UNKNOWN, why=f"the study measured it with another {changed[0]}", shown=False)
    waited = float(made[(known["in_flight"] > known["running"]).to_numpy()].sum() / total)
    if name == "ttft" and waited > _BEYOND:
        why = f"requests waited in {shown_share(waited)} of it, and how long depends on how they came, which a study does not show"
        return replace(bare, study=None, why=why, shown=False)
    # Starts behind production: of servers that made unlike shares of it there are effectively fewer (Kish, 1965).
    shares = known.with_columns(made=pl.Series(made / total)).group_by("instance").agg(pl.col("made").sum())["made"]
    starts = SPEEDS_DIFFER * math.sqrt(1 / studied.sessions + float((shares**2).sum()))
    measured = line.error(loads, made)
    bend = math.log(high.sum() / low.sum()) / math.sqrt(12)  # standard deviation of an even distribution
    error = math.hypot(found.relative, measured, starts, bend)
    freedom = _satterthwaite([(found.relative, found.freedom), (measured, line.freedom), (math.hypot(starts, bend), math.inf)])
    judged = _judged(bare, math.log(found.value), error, freedom, math.log1p(SPEEDS_MATTER), confidence)
    if judged.verdict == DIFFERS and (unclear := [each.name for each in kind if each.verdict == UNKNOWN]):
        return replace(judged, why=f"whether that is the traffic is not known: {', '.join(unclear)}")
    return judged


def _made(studied: Studied, known: pl.DataFrame) -> Floats:
    """What the measured server would do between two scrapes, so that a moment weighs as much as it has requests (tokens)."""
    held = known["held"].to_numpy().astype(float)
    line: Line | None = studied.lines.get("held")
    weights: Floats = held if line is None else held / np.interp(known["in_flight"].to_numpy(), line.loads, line.values)
    return weights


def _judged(
    bare: Compared,
    change: float,
    error: float,
    freedom: float,
    matters: float,
    confidence: float,
    *,
    relative: bool = True,
) -> Compared:
    """Args:
    change: the difference, of the logarithm where it is `relative`. error, freedom: its standard error, and degrees of freedom.
    matters: the least that matters. confidence: at which it is significant.
    """
    reach = student_t(max(1, int(min(freedom, _MANY))), CONFIDENCE) * error
    low, high = change - reach, change + reach
    strict = student_t(max(1, int(min(freedom, _MANY))), confidence) * error
    apart = change - strict > 0 or change + strict < 0
    verdict = DIFFERS if apart and abs(change) > matters else SAME if -matters < low and high < matters else UNKNOWN

    def said(value: float) -> float:
        return math.expm1(min(value, _HIGHEST)) if relative else value

    return replace(bare, change=said(change), low=said(low), high=said(high), verdict=verdict)


_MANY = 10_000.0  # degrees of freedom from which on Student's t is a normal distribution; derived
_HIGHEST = 20.0  # highest logarithm of a ratio that is shown; convention: e to the 20th is beyond any


def _satterthwaite(parts: list[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances (Satterthwaite, 1946). Args: parts: standard error and degrees of freedom of each."""
    below = sum(error**4 / freedom for error, freedom in parts)
    return float(sum(error**2 for error, _ in parts) ** 2 / below) if below else math.inf


def _unknown(
    name: str,
    part: str,
    unit: str,
    study: float | tuple[float, float] | None,
    found: Ratio | None,
    blocks: tuple[Floats, Floats],
) -> Compared:
    if not len(blocks[0]):
        why = "production does not show it"
    elif not (blocks[1] > 0).any():
        why = "there were no requests"
    elif found is None:
        why = f"requests in {int((blocks[1] > 0).sum())} of {BLOCKS} parts of the time; it takes {FEWEST_BLOCKS}"
    elif not found.value:
        why = "production counted none"
    else:
        why = "the study does not show it"
    return Compared(
        name,
        part,
        unit,
        study,
        found.value if found else None,
        why=why,
        shown=bool(len(blocks[0])) and found is None and study is not None,
    )
