"""Whether production is still what a study measured: its traffic, its speed and its server, from what Prometheus kept of it, with
intervals and verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from bench.beside.production.curve import Curve
from bench.beside.production.drifted.served import Window, read_names, served
from bench.beside.production.drifted.studied import (
    BLOCKS,
    E2E,
    FEWEST_BLOCKS,
    HELD,
    HITS,
    ITL,
    LATENCIES,
    LENGTHS,
    LOAD,
    MIXED,
    TTFT,
    Quantity,
    Studied,
    in_blocks,
    ratio,
    ratio_of,
    read_studied,
)
from bench.errors import BenchError, first_names, shown_share
from bench.runs.sentences import time_text
from bench.servers.metrics import find_catalogue, of_other_versions
from bench.statistics.observation import SPEEDS_DIFFER
from bench.statistics.textbook import CONFIDENCE, student_t

SAME, DIFFERS, UNKNOWN = "same", "differs", "not known"
WIDE = "the interval is too wide to say"
# least difference that matters, by unit: of lengths and loads, of hit rates (not relative), of latencies; convention: C_max moves by
# about as much as lengths; a twentieth of all prefill; the precision of a limit that `bench find` asks for, and five standard
# deviations between starts
_MATTERS = {"tokens": 0.10, "": 0.10, "0–1": 0.05, "s": 0.20}
_OUTSIDE = 0.10  # how far outside the measured loads production may be; convention: a closed loop's mean is below what it holds
_BEYOND = 0.10  # share of tokens made outside the measured loads, or of TTFT in queues, up to which latencies are compared; convention

VERSION = "engine and version"
_SPEEDS = {latency.name for latency in LATENCIES} - {HELD.name}
_ADVICE = {
    VERSION: "Measure the server as production runs it: its version is not that of the study.",
    HITS.name: "Measure a workload that shares as much of its prompts as production does (`shared_prefix`, or conversations).",
    MIXED.name: "Measure a workload of production's lengths, by its access log: `bench traffic`.",
    HELD.name: "See by the access log (`bench traffic`) whether prompts and answers grew alike; if not, look at the machine.",
    LOAD.name: "Measure higher loads: production has more than the study had.",
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


@dataclass(frozen=True)
class Drift:
    """Production beside a study.

    Attributes:
        deployment, workload: of the study. instances: servers of production. compared: the quantities.
    """

    deployment: str
    workload: str
    instances: int
    compared: Sequence[Compared]

    @property
    def verdict(self) -> str:
        """`same` where load, both lengths and E2E are the same, nothing differs, and no interval is too wide; else `differs` or `not
        known`. TTFT and ITL are parts of E2E: where their intervals alone are too wide, they leave it the same.
        """
        if self.named(DIFFERS):
            return DIFFERS
        needed = {each.name for each in (LOAD, *LENGTHS, E2E)}
        undecided = {*self.named(UNKNOWN, WIDE)} - {TTFT.name, ITL.name}
        return SAME if {*self.named(SAME)} >= needed and not undecided else UNKNOWN

    def named(self, verdict: str, why: str | None = None) -> list[str]:
        """The quantities with this verdict, of all reasons or of one."""
        return [each.name for each in self.compared if each.verdict == verdict and why in (None, each.why)]


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
    return Drift(
        deployment=curve.point["deployment"],
        workload=curve.point["workload"],
        instances=between["instance"].n_unique(),
        compared=[
            *compared(studied, in_blocks(between, 0.0, window.end - window.begin)),
            compared_version(curve.version, studied.names, names),
        ],
    )


def compared(studied: Studied, blocks: pl.DataFrame) -> list[Compared]:
    """Traffic and speed of production beside those of the study.

    The verdict `differs` needs a significant difference that also matters. All tests together raise a false alarm in 5 of 100 times at
    most (Bonferroni). `same` needs an interval of 95 % within what matters.

    Args:
        blocks: what servers did, as `in_blocks` returns it.
    """
    counts_none = blocks["requests"].null_count() == len(blocks)  # as with llama.cpp
    quantities = [*LENGTHS, *([MIXED] if counts_none else []), HITS]
    traffic = [_ratio(each, studied.means[each.name], blocks) for each in quantities]
    changed = next((each.name for each in traffic if each.verdict == DIFFERS), None)
    # An engine that shows E2E shows by it what the time in flight would.
    e2e = blocks["e2e_count"].null_count() < len(blocks)
    speeds = [_speed(each, studied, blocks, changed) for each in LATENCIES if each is not HELD or not e2e]
    return [_load(studied, blocks), *traffic, *speeds]


def _load(studied: Studied, blocks: pl.DataFrame) -> Compared:
    """A fact of this time, which needs no test."""
    had = (pl.col("held").fill_null(0) + pl.col("output").fill_null(0)).sum().over("instance") > 0
    busy = blocks.filter(had) if blocks.select(had.any()).item() else blocks  # a spare server makes the others' load no less
    load = _ratio(LOAD, studied.loads, busy)
    seen = load.production
    if not studied.loads or not isinstance(seen, float):
        return load
    low, high = studied.loads
    if seen > high * (1 + _OUTSIDE):
        return replace(load, verdict=DIFFERS, why="more than was measured")
    return replace(load, why="less than was measured") if seen < low else replace(load, verdict=SAME)


def _speed(latency: Quantity, studied: Studied, blocks: pl.DataFrame, changed: str | None) -> Compared:
    """A latency beside what the study measured at the loads that production had, scrape by scrape.

    Args:
        changed: a quantity of production's traffic that differs.
    """
    name, above, below, unit, load = latency
    line, held = studied.lines.get(name), studied.lines.get(HELD.name)
    unseen = Compared(name, unit, None, None, why="the study or production does not show it beside the requests in flight")
    if line is None or held is None:
        return unseen
    # A moment weighs as much as the measured server would make tokens in it.
    known = blocks.drop_nulls([above, below, "held", load])
    known = known.with_columns(made=pl.Series(known["held"].to_numpy() / held.at(known["in_flight"].to_numpy())))
    known = known.with_columns(there=pl.Series(line.at(known[load].to_numpy())) * pl.col("made"))
    whole = known.group_by("block").agg(pl.col(above, below, "made", "there").sum())
    whole = whole.filter((pl.col("made") > 0) & (pl.col(below) > 0)).sort("block")
    counts = whole[below].to_numpy()
    expected = counts * (whole["there"] / whole["made"]).to_numpy()
    found = ratio(whole[above].to_numpy(), expected)
    if found is None or not found.value:
        return unseen
    bare = Compared(name, unit, float(expected.sum() / counts.sum()), float(whole[above].sum() / counts.sum()))
    shares = known.with_columns(share=pl.col("made") / known["made"].sum())

    def share_of(rows: pl.Expr) -> float:
        return float(shares.filter(rows)["share"].sum())

    least, most = line.loads[0], line.loads[-1]
    there = pl.col(load).is_between(least / (1 + _OUTSIDE), most * (1 + _OUTSIDE))
    if (outside := share_of(~there)) > _BEYOND:
        ran = f"{least:.3g} to {most:.3g} requests {'running' if latency is ITL else 'in flight'}"
        return replace(bare, study=None, why=f"{shown_share(outside)} of it at loads other than the {ran} that were measured")
    if changed:
        return replace(bare, why=f"the study measured it with another {changed}")
    waited = share_of(pl.col("in_flight") > pl.col("running"))
    if latency is TTFT and waited > _BEYOND:
        why = f"requests waited in {shown_share(waited)} of it, and how long depends on how they came, which a study does not show"
        return replace(bare, study=None, why=why)
    # Starts behind production: of servers that made unlike shares of it there are effectively fewer (Kish, 1965).
    of_each = shares.group_by("instance").agg(pl.col("share").sum())["share"]
    starts = SPEEDS_DIFFER * math.sqrt(1 / studied.sessions + float((of_each**2).sum()))
    return _judged(
        bare,
        math.log(found.value),
        [
            (found.relative, found.freedom),
            (line.error(known[load].to_numpy(), known["made"].to_numpy()), math.inf),
            (starts, math.inf),
        ],
    )


def _ratio(quantity: Quantity, study: float | tuple[float, float] | None, blocks: pl.DataFrame) -> Compared:
    """A ratio of what production counted, judged where the study has one number; or why it is not known."""
    name, above, below, unit, _ = quantity
    counted, found = blocks.drop_nulls([above, below]), ratio_of(blocks, above, below)
    bare = Compared(name, unit, study, found.value if found else None)
    if counted.is_empty():
        return replace(bare, why="production does not show it")
    if found is None:
        some = counted.filter(pl.col(below) > 0)["block"].n_unique()
        return replace(bare, why=f"requests in {some} of {BLOCKS} parts of the time; it takes {FEWEST_BLOCKS}")
    if study is None:
        return replace(bare, why="the study does not show it")
    if isinstance(study, tuple):
        return bare
    if unit == "0–1":
        return _judged(bare, found.value - study, [(found.error, found.freedom)])
    return _judged(bare, math.log(found.value / study), [(found.relative, found.freedom)]) if study and found.value else bare


def _judged(bare: Compared, change: float, errors: Sequence[tuple[float, float]]) -> Compared:
    """Args:
    change: the difference, of logarithms but for shares. errors: standard errors that it has, with their degrees of freedom.
    """
    relative = bare.unit != "0–1"
    error = math.hypot(*(part for part, _ in errors)) or 1e-9
    # Satterthwaite, 1946; from 10,000 degrees of freedom on Student's t is a normal distribution.
    freedom = 1 / max(1e-4, sum((part / error) ** 4 / each for part, each in errors))
    of_all = 1 - (1 - CONFIDENCE) / (3 + len(_SPEEDS))  # of both lengths, hits and speeds together
    reach, strict = (student_t(int(freedom), each) * error for each in (CONFIDENCE, of_all))
    matters = math.log1p(_MATTERS[bare.unit]) if relative else _MATTERS[bare.unit]
    low, high = change - reach, change + reach
    differs = abs(change) > max(strict, matters)
    verdict = DIFFERS if differs else SAME if -matters < low and high < matters else UNKNOWN
    why = WIDE if verdict == UNKNOWN else None
    # The logarithm of a ratio is shown up to 20: e to that is beyond any.
    change, low, high = (math.expm1(min(value, 20.0)) if relative else value for value in (change, low, high))
    return replace(bare, change=change, low=low, high=high, verdict=verdict, why=why)


_PARTS = ("", "_sum", "_count", "_bucket", "_created", "_total")  # what a type appends to a metric's name


def compared_version(version: str | None, studied: Collection[str], names: Collection[str]) -> Compared:
    """The engine and its version, by names of metrics alone: no engine shows its version among them, and only a name that the study's
    version does not have is another version, as others depend on settings and on what was asked.

    Args:
        version: of the study. studied, names: what the study's server and production expose.
    """
    then, now = (find_catalogue(each, version).kind for each in (studied, names))
    engine = " ".join(filter(None, [then.title if then else None, version])) or None
    bare = Compared(VERSION, "", engine, now.title if now else None)
    if then and now and then is not now:
        return replace(bare, verdict=DIFFERS, why="another engine")
    others = of_other_versions(now, version) if now else ()
    before, seen = ({name for name in others if any(name + part in each for part in _PARTS)} for each in (studied, names))
    if found := sorted(seen - before):
        why = f"it exposes {first_names(found, 3)}, which {engine} does not have: another version"
        return replace(bare, verdict=DIFFERS, why=why)
    return replace(bare, why="no name among its metrics shows another version")


def rows(found: Drift) -> list[list[str]]:
    """A table: each quantity of both, the difference with its interval, and the verdict."""
    head = ["", "study", "production", "difference", "verdict"]
    return [
        head,
        *([x.name, _value(x.study, x.unit), _value(x.production, x.unit), _change(x), x.verdict] for x in found.compared),
    ]


def conclusion(found: Drift) -> Iterator[str]:
    """The answer in a line, and what limits it."""
    yield {
        DIFFERS: f"Production differs from what was measured: {'; '.join(found.named(DIFFERS))}.",
        SAME: "Production is what was measured, as far as both show it.",
        UNKNOWN: "Not known whether production is still what was measured.",
    }[found.verdict]
    for verdict, why in dict.fromkeys((each.verdict, each.why) for each in found.compared if each.why):
        yield f"{'; '.join(found.named(verdict, why))}: {verdict}: {why}."


def advice(found: Drift) -> Iterator[str]:
    """What to measure again, or what would decide."""
    differing = found.named(DIFFERS)
    lengths = [f"{x.name} {x.production:.0f}" for x in found.compared if x.unit == "tokens" and x.verdict == DIFFERS]
    if lengths:
        yield f"Measure a workload of production's lengths ({', '.join(lengths)}): limits and latencies of the study are of other ones."
    yield from (said for name, said in _ADVICE.items() if name in differing)
    if differing and {*differing} <= _SPEEDS:
        yield "Traffic does not explain the speed: look at the machine, then measure the study again."
    if found.verdict == SAME:
        yield "There is no need to measure again."
    if found.verdict == UNKNOWN and found.named(UNKNOWN, WIDE):
        yield "A longer time (--last), or one with more requests, narrows the intervals; so do more starts of the study (`sessions`)."


def _value(value: float | tuple[float, float] | str | None, unit: str) -> str:
    if value is None or isinstance(value, str):
        return value or "not known"
    if isinstance(value, tuple):
        return f"{value[0]:.3g} to {value[1]:.3g}"
    if unit == "0–1":
        return shown_share(value, 1)
    return time_text(value) if unit == "s" else f"{value:.4g} {unit}".rstrip()


def _change(each: Compared) -> str:
    if each.change is None or each.low is None or each.high is None:
        return ""
    what = "points" if each.unit == "0–1" else "%"
    low, change, high = (f"{100 * value:+.1f}" for value in (each.low, each.change, each.high))
    return f"{change} {what} ({low} to {high})"
