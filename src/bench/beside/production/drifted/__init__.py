"""Whether production is still what a study measured: its traffic, its speed and its server, from what Prometheus kept of it, with
intervals and verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from bench.beside.production.curve import Curve
from bench.beside.production.drifted.served import Window, read_names, served
from bench.beside.production.drifted.studied import (
    BLOCKS,
    FEWEST_BLOCKS,
    LINES,
    LOADS,
    SPEEDS,
    Ratio,
    Studied,
    in_blocks,
    ratio,
    read_studied,
    sums,
)
from bench.errors import BenchError, first_names, shown_share
from bench.servers.kind import Kind
from bench.servers.metrics import find_catalogue, of_other_versions
from bench.statistics.limit import SPEEDS_DIFFER
from bench.statistics.textbook import CONFIDENCE, student_t

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

SAME, DIFFERS, UNKNOWN = "same", "differs", "not known"
# least difference of a mean length that matters (relative), and how far outside the measured loads production may be; convention:
# C_max moves by about as much, and a closed loop's mean lies below what it holds
_MATTERS = 0.10
_HITS_MATTER = 0.05  # least difference of a prefix-cache hit rate that matters (0–1); convention: a twentieth of all prefill
# least difference of a latency that matters (relative); convention: the precision of a limit that `bench find` asks for, and five
# standard deviations between starts
_SPEEDS_MATTER = 0.20
_BEYOND = 0.10  # share of tokens made outside the measured loads, or of TTFT in queues, up to which latencies are compared; convention

LOAD, HITS, VERSION = "requests in flight, a server", "prefix-cache hit rate", "engine and version"
LENGTHS = ("prompt length", "output length")
MIXED, HELD = "prompt ÷ output tokens", "time in flight for an output token"  # of engines that count no requests
TITLES = {**{name: f"{name.upper()}, mean" for name in SPEEDS}, "held": HELD}
_ADVICE = {
    VERSION: "Measure the server as production runs it: its version is not that of the study.",
    HITS: "Measure a workload that shares as much of its prompts as production does (`shared_prefix`, or conversations).",
    MIXED: "Measure a workload of production's lengths, by its access log: `bench traffic`.",
    HELD: "See by the access log (`bench traffic`) whether prompts and answers grew alike; if not, look at the machine.",
    LOAD: "Measure higher loads: production has more than the study had.",
}


@dataclass(frozen=True)
class Compared:
    """One quantity of production beside the study's.

    Attributes:
        unit: of `study` and `production`; `0–1` of shares.
        study, production: values, or a text of what is no number; None where it is not known. Of a load `study` is a range.
        change: by how much production is higher, as a share of the study's, of shares as their difference; low, high: its interval at
            95 % confidence.
        verdict: `same`, `differs` or `not known`. why: of a verdict that the numbers do not show.
    """

    name: str
    unit: str
    study: float | tuple[float, float] | str | None
    production: float | str | None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = UNKNOWN
    why: str | None = None

    @property
    def too_wide(self) -> bool:
        """Whether only its interval leaves it undecided."""
        return self.verdict == UNKNOWN and self.change is not None


@dataclass(frozen=True)
class Drift:
    """Production beside a study.

    Attributes:
        deployment, workload: of the study. instances: servers of production. compared: the quantities. verdict: `same`, `differs` or
            `not known`.
    """

    deployment: str
    workload: str
    instances: int
    compared: Sequence[Compared]

    @property
    def verdict(self) -> str:
        """`same` where load, both lengths and E2E are the same, nothing differs, and no interval is too wide.

        TTFT and ITL are parts of E2E: where their intervals alone are too wide, they leave it the same.
        """
        if any(each.verdict == DIFFERS for each in self.compared):
            return DIFFERS
        same = {each.name for each in self.compared if each.verdict == SAME}
        undecided = {each.name for each in self.compared if each.too_wide} - {TITLES["ttft"], TITLES["itl"]}
        return SAME if same >= {LOAD, *LENGTHS, TITLES["e2e"]} and not undecided else UNKNOWN


def find_drift(curve: Curve, window: Window) -> Drift:
    """Compare what Prometheus kept with a curve of a study.

    Raises:
        BenchError: Prometheus does not answer, or has no series of the server, or none of an engine that is known.
    """
    where = f"--prometheus {window.url}: with {window.chosen}"
    names = window.names()
    catalogue = find_catalogue(names, curve.version)
    if catalogue.kind is None:
        raise BenchError(
            f"{where} the series belong to no known engine: {', '.join(sorted(names)[:5])}. Give the labels of the job that "
            "scrapes the servers: --label job=NAME."
        )
    between = served(window.samples(list(dict.fromkeys(read_names(catalogue).values()))), catalogue)
    if between.is_empty():
        raise BenchError(
            f"{where} no server has two scrapes in this time. Give a longer time (--last), or labels of a server that was up."
        )
    studied = read_studied(curve)
    kind = find_catalogue(studied.names, curve.version).kind
    return Drift(
        deployment=curve.point["deployment"],
        workload=curve.point["workload"],
        instances=between["instance"].n_unique(),
        compared=[
            *compared(studied, between, window.end - window.begin),
            compared_version(curve.version, (kind, catalogue.kind), (studied.names, names)),
        ],
    )


def compared(studied: Studied, between: pl.DataFrame, seconds: float) -> list[Compared]:
    """Traffic and speed of production beside those of the study.

    The verdict `differs` needs a significant difference that also matters. All tests together raise a false alarm in 5 of 100 times at
    most (Bonferroni). `same` needs an interval of 95 % within what matters.

    Args:
        between: what servers did, as `served` returns it. seconds: length of the time.
    """
    blocks = in_blocks(between, 0.0, seconds)
    confidence = 1 - (1 - CONFIDENCE) / (3 + len(SPEEDS))  # of both lengths, hits and speeds together
    traffic = [_load(studied, blocks)]
    lengths = [(LENGTHS[0], "prompt", "requests", studied.prompt), (LENGTHS[1], "output", "requests", studied.output)]
    if blocks["requests"].null_count() == len(blocks):  # as with llama.cpp; the ratio hides lengths that grow alike
        both = studied.prompt / studied.output if studied.prompt and studied.output else None
        lengths.append((MIXED, "prompt", "output", both))
    for name, above, below, study in lengths:
        each, found = _found(name, "" if name == MIXED else "tokens", study, *sums(blocks, above, below))
        if found and study and found.value:
            change = math.log(found.value / study)
            each = _judged(each, change, found.relative, found.freedom, math.log1p(_MATTERS), confidence)
        traffic.append(each)
    hits, found = _found(HITS, "0–1", studied.hits, *sums(blocks, "hits", "queries"))
    if found and studied.hits is not None:
        error = math.hypot(found.error, studied.hits_error)
        hits = _judged(hits, found.value - studied.hits, error, found.freedom, _HITS_MATTER, confidence, relative=False)
    traffic.append(hits)
    # An engine that shows E2E shows by it what the time in flight would.
    speeds = [name for name in LINES if name != "held" or blocks["e2e_count"].null_count() == len(blocks)]
    return [*traffic, *(_speed(name, studied, blocks, confidence, traffic) for name in speeds)]


def _load(studied: Studied, blocks: pl.DataFrame) -> Compared:
    """A fact of this time, which needs no test."""
    had = (pl.col("held").fill_null(0) + pl.col("output").fill_null(0)).sum().over("instance") > 0
    busy = blocks.filter(had) if blocks.select(had.any()).item() else blocks  # a spare server makes the others' load no less
    load, _ = _found(LOAD, "requests", studied.loads, *sums(busy, "held", "seconds"))
    seen = load.production
    if not studied.loads or not isinstance(seen, float) or load.why:
        return load
    low, high = studied.loads
    if seen > high * (1 + _MATTERS):
        return replace(load, verdict=DIFFERS, why="more than was measured")
    if seen < low:
        return replace(load, why="less than was measured")
    return replace(load, verdict=SAME)


def _speed(name: str, studied: Studied, blocks: pl.DataFrame, confidence: float, traffic: list[Compared]) -> Compared:
    """A latency beside what the study measured at the loads that production had, scrape by scrape.

    Args:
        traffic: what was found of production's.
    """
    title, line, (above, below) = TITLES[name], studied.lines.get(name), LINES[name]
    known = blocks.drop_nulls([above, below, "held", LOADS[name]])
    unseen = Compared(title, "s", None, None, why="the study or production does not show it beside the requests in flight")
    if line is None or not len(known):
        return unseen
    loads = known[LOADS[name]].to_numpy()
    # What the measured server would do between two scrapes, so that a moment weighs as much as it has tokens.
    held = studied.lines.get("held")
    made: Floats = known["held"].to_numpy().astype(float)
    made = made if held is None else made / held.at(known["in_flight"].to_numpy())
    total = made.sum()
    known = known.with_columns(made=pl.Series(made), there=pl.Series(line.at(loads) * made))
    whole = known.group_by("block").agg(pl.col(above, below, "made", "there").sum())
    whole = whole.filter((pl.col("made") > 0) & (pl.col(below) > 0)).sort("block")
    seen, counts = whole[above].to_numpy(), whole[below].to_numpy()
    expected = counts * whole["there"].to_numpy() / whole["made"].to_numpy()
    found = ratio(seen, expected)
    if found is None or not found.value:
        return unseen
    bare = Compared(title, "s", float(expected.sum() / counts.sum()), float(seen.sum() / counts.sum()))
    outside = (loads * (1 + _MATTERS) < line.loads[0]) | (loads > line.loads[-1] * (1 + _MATTERS))
    if (beyond := float(made[outside].sum() / total)) > _BEYOND:
        ran = f"{line.loads[0]:.3g} to {line.loads[-1]:.3g} requests {'running' if name == 'itl' else 'in flight'}"
        return replace(bare, study=None, why=f"{shown_share(beyond)} of it at loads other than the {ran} that were measured")
    if changed := [each.name for each in traffic if each.name != LOAD and each.verdict == DIFFERS]:
        return replace(bare, why=f"the study measured it with another {changed[0]}")
    waited = float(made[(known["in_flight"] > known["running"]).to_numpy()].sum() / total)
    if name == "ttft" and waited > _BEYOND:
        why = f"requests waited in {shown_share(waited)} of it, and how long depends on how they came, which a study does not show"
        return replace(bare, study=None, why=why)
    # Starts behind production: of servers that made unlike shares of it there are effectively fewer (Kish, 1965).
    shares = known.group_by("instance").agg(pl.col("made").sum() / total)["made"]
    starts = SPEEDS_DIFFER * math.sqrt(1 / studied.sessions + float((shares**2).sum()))
    parts = [(found.relative, float(found.freedom)), (line.error(loads, made), float(line.freedom)), (starts, math.inf)]
    error = math.hypot(*(part for part, _ in parts))
    freedom = error**4 / sum(part**4 / each for part, each in parts) if error else math.inf  # Satterthwaite, 1946
    return _judged(bare, math.log(found.value), error, freedom, math.log1p(_SPEEDS_MATTER), confidence)


def _judged(
    bare: Compared, change: float, error: float, freedom: float, matters: float, confidence: float, *, relative: bool = True
) -> Compared:
    """Args:
    change: the difference, of the logarithm where it is `relative`. error, freedom: its standard error, and degrees of freedom.
    matters: the least that matters. confidence: at which it is significant.
    """
    degrees = max(1, int(min(freedom, 10_000.0)))  # from so many on Student's t is a normal distribution
    reach, strict = (student_t(degrees, each) * error for each in (CONFIDENCE, confidence))
    low, high = change - reach, change + reach
    differs = abs(change) > max(strict, matters)
    verdict = DIFFERS if differs else SAME if -matters < low and high < matters else UNKNOWN
    # The logarithm of a ratio is shown up to 20: e to that is beyond any.
    change, low, high = (math.expm1(min(value, 20.0)) if relative else value for value in (change, low, high))
    return replace(bare, change=change, low=low, high=high, verdict=verdict)


def _found(
    name: str, unit: str, study: float | tuple[float, float] | None, above: Floats, below: Floats
) -> tuple[Compared, Ratio | None]:
    """A quantity of production, with why it is not known."""
    found, requests = ratio(above, below), int((below > 0).sum())
    why = (
        "production does not show it" if not len(above)
        else f"requests in {requests} of {BLOCKS} parts of the time; it takes {FEWEST_BLOCKS}" if found is None
        else "the study does not show it" if study is None
        else None
    )  # fmt: skip
    return Compared(name, unit, study, found.value if found else None, why=why), found


_PARTS = ("", "_sum", "_count", "_bucket", "_created", "_total")  # what a type appends to a metric's name


def compared_version(
    version: str | None, kinds: tuple[Kind | None, Kind], names: tuple[Collection[str], Collection[str]]
) -> Compared:
    """The engine and its version, by names of metrics alone: no engine shows its version among them, and only a name that the study's
    version does not have is another version, as others depend on settings and on what was asked.

    Args:
        version: of the study. kinds, names: of the study and of production.
    """
    then, now = kinds
    engine = " ".join(filter(None, [then.title if then else None, version])) or None
    bare = Compared(VERSION, "", engine, now.title)
    if then is not None and then is not now:
        return replace(bare, verdict=DIFFERS, why="another engine")
    before, seen = (
        {name for name in of_other_versions(now, version) if any(name + x in each for x in _PARTS)} for each in names
    )
    if found := sorted(seen - before):
        why = f"it exposes {first_names(found, 3)}, which {engine} does not have: another version"
        return replace(bare, verdict=DIFFERS, why=why)
    return replace(bare, why="no name among its metrics shows another version")


def rows(found: Drift) -> list[list[str]]:
    """A table: each quantity of both, the difference with its interval, and the verdict."""
    head = ["", "study", "production", "difference", "verdict"]
    return [head, *([x.name, _value(x, x.study), _value(x, x.production), _change(x), x.verdict] for x in found.compared)]


def conclusion(found: Drift) -> Iterator[str]:
    """The answer in a line, and what limits it."""
    differing = "; ".join(each.name for each in found.compared if each.verdict == DIFFERS)
    yield {
        DIFFERS: f"Production differs from what was measured: {differing}.",
        SAME: "Production is what was measured, as far as both show it.",
        UNKNOWN: "Not known whether production is still what was measured.",
    }[found.verdict]
    if wide := [each.name for each in found.compared if each.too_wide]:
        yield f"The interval is too wide to say: {'; '.join(wide)}."
    reasons: dict[str, list[str]] = {}
    for each in found.compared:
        if each.why:
            reasons.setdefault(f"{each.verdict}: {each.why}", []).append(each.name)
    yield from (f"{'; '.join(named)}: {why}." for why, named in reasons.items())


def advice(found: Drift) -> Iterator[str]:
    """What to measure again, or what would decide."""
    differing = {each.name: each for each in found.compared if each.verdict == DIFFERS}
    if lengths := ", ".join(f"{name} {differing[name].production:.0f}" for name in LENGTHS if name in differing):
        yield f"Measure a workload of production's lengths ({lengths}): limits and latencies of the study are of other ones."
    yield from (said for name, said in _ADVICE.items() if name in differing)
    if differing and differing.keys() <= {TITLES[name] for name in SPEEDS}:
        yield "Traffic does not explain the speed: look at the machine, then measure the study again."
    if found.verdict == SAME:
        yield "There is no need to measure again."
    if found.verdict == UNKNOWN and any(each.too_wide for each in found.compared):
        yield "A longer time (--last), or one with more requests, narrows the intervals; so do more starts of the study (`sessions`)."


def _value(each: Compared, value: float | tuple[float, float] | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "not known"
    if isinstance(value, tuple):
        return f"{value[0]:.3g} to {value[1]:.3g}"
    if each.unit == "0–1":
        return shown_share(value, 1)
    if each.unit == "s":
        return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
    return f"{value:.4g} {each.unit}".rstrip()


def _change(each: Compared) -> str:
    if each.change is None or each.low is None or each.high is None:
        return ""
    what = "points" if each.unit == "0–1" else "%"
    low, change, high = (f"{100 * value:+.1f}" for value in (each.low, each.change, each.high))
    return f"{change} {what} ({low} to {high})"
