"""A comparison in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.axes import AXES
from bench.errors import count_text, first_names, listed, signed_percent, two_digits
from bench.findings.comparison.effects import FAR, metric_of, shared_by_machine
from bench.findings.comparison.gate import blind, regressions, unproven, unseen
from bench.report.blocks import Answer
from bench.runs.sentences import load_text, loads_text
from bench.servers.settings import setting_name, settings_in, value_text
from bench.statistics.textbook import FEWEST_POINTS

if TYPE_CHECKING:
    from bench.findings.comparison.compare import Comparison, Differs

_NAMED = 3  # most loads that a line names
Row = Mapping[str, Any]
Rows = Sequence[Row]


def sentences(found: Comparison) -> list[str]:
    """What each metric shows, a sentence for each row of `found.overall`."""
    return [sentence(rows.to_dicts()) for _, rows in found.effects.group_by("deployment", "metric", maintain_order=True)]


def sentence(rows: Rows) -> str:
    """What the rows of one metric show, such as `tokens/s: at 12, 16 in flight −48.0 %, worse; elsewhere no difference seen`.

    Args:
        rows: those that `effects` has of a metric: levels and all, which comes last.
    """
    whole = rows[-1]
    title = metric_of(whole["metric"]).title
    if whole["low"] is None and all(row["low"] is None for row in rows):
        return f"{title}: {percent_text(whole['ratio'])}; the noise is not known"
    clauses = [clause for side in ("worse", "better") if (clause := _clause(rows, side))]
    if not clauses:
        return f"{title}: no difference seen; {_seen_text(whole['could_see'])} would have shown"
    quiet = any(row["scope"] == "level" and row["verdict"] == "no evidence" for row in rows)
    rest = ["elsewhere no difference seen"] if quiet and whole["pooled"] == "no evidence" else []
    return f"{title}: {'; '.join([*clauses, *rest])}"


def _clause(rows: Rows, side: str) -> str | None:
    """Where the candidate is better or worse, and by how much; None where no row has the verdict `side`."""
    whole = rows[-1]
    levels = [row for row in rows if row["scope"] == "level"]
    sure = [row for row in levels if row["verdict"] == side]
    if sure and len(sure) < len(levels):
        ratio = math.exp(sum(math.log(row["ratio"]) for row in sure) / len(sure))
        return f"{_where(sure, levels)} {percent_text(ratio)}, {side}"
    if whole["pooled"] == side or (sure and len(levels) == len(sure)):
        return f"{percent_text(whole['ratio'])} over all loads ({interval_text(whole['low'], whole['high'])}), {side}"
    return None


def _where(sure: Rows, levels: Rows) -> str:
    """The loads in words, of several workloads with their names."""
    several = len({row["workload"] for row in levels}) > 1
    texts = []
    for workload in dict.fromkeys(row["workload"] for row in sure):
        loads = loads_text([row["level"] for row in sure if row["workload"] == workload])
        unit = next(AXES[row["axis"]].short for row in sure if row["workload"] == workload)
        texts.append(f"{workload} at {loads} {unit}" if several else f"at {loads} {unit}")
    return ", ".join(texts)


def interval_text(low: float | None, high: float | None, digits: int = 1) -> str:
    """The interval of a ratio as differences, such as `−7.5 to −1.2 %`.

    Of one that is wider than a factor of 10 to each side only the end that it does not reach is printed, if there is one.
    """
    if low is None or high is None:
        return "noise not known"
    lowest, highest = (signed_percent(end - 1, digits) for end in (low, high))
    if high <= FAR**2 * low:
        return f"{lowest} to {highest} %"
    return f"more than {lowest} %" if low > 1 else f"less than {highest} %" if high < 1 else "noise too large"


def size_text(share: float) -> str:
    """The smallest difference that is found, as a percentage of two digits, such as `9.5 %`; one beyond a factor of 10 as `more than
    900 %`.
    """
    return f"more than {FAR - 1:.0%}".replace("%", " %") if share > FAR - 1 else f"{float(f'{100 * share:.2g}'):g} %"


def _seen_text(share: float) -> str:
    text = size_text(share)
    return text if text.startswith("more") else f"{text} or more"


def percent_text(ratio: float) -> str:
    """A ratio as a difference, such as `−4.1 %`."""
    return f"{signed_percent(ratio - 1)} %"


def estimated_percent(found: Comparison, row: Row) -> str:
    """The difference of a row of effects; with ~ where its metric is a percentile that too few requests carry."""
    return f"{'~' if row['metric'] in found.estimates else ''}{percent_text(row['ratio'])}"


def difference_text(found: Differs) -> str:
    """What differs between two sets of runs besides, such as `engine_version: 0.31.0 → 0.32.0`."""
    of = f" of {found.deployment}" if found.deployment is not None else ""
    loads = [f"{workload} at {level:g}" for workload, level in found.loads or ()]
    at = f" ({first_names(loads, _NAMED)})" if loads else ""
    setting = bool(settings_in([found.variable])) and not found.variable.endswith("_parallel")
    ours, theirs = (
        "unknown" if value is None and not setting else value_text(found.variable, value)
        for value in (found.baseline, found.candidate)
    )
    return f"{setting_name(found.variable)}{of}: {ours} → {theirs}{at}"


def several(found: Comparison) -> bool:
    """Whether several deployments are compared, so that each has to be named."""
    return found.effects["deployment"].n_unique() > 1


def _whose(found: Comparison, deployment: object) -> str:
    return f"{deployment}: " if deployment and several(found) else ""


def place_text(found: Comparison, row: Row) -> str:
    """A level of a workload, such as `short at 8`; with its deployment where there are several."""
    return f"{row['deployment'] + ' · ' if several(found) else ''}{row['workload']} at {load_of(row)}"


def load_of(row: Row) -> str:
    """The load of a row of a comparison, with its unit."""
    return load_text(row["level"], AXES[row["axis"]].unit)


def regression_lines(found: Comparison, percent: float) -> list[str]:
    """A line for each level at which more requests fail, and for each metric that is worse somewhere, by more than `percent`."""
    lines = [f"{place_text(found, row)}: {_sides(row)}" for row in found.failures if row["verdict"] == "worse"]
    worse = regressions(found.effects, percent)
    for (deployment, metric), rows in worse.group_by("deployment", "metric", maintain_order=True):
        places = [f"at {load_of(row)}" for row in rows.filter(scope="level").iter_rows(named=True)]
        lines.append(
            f"{_whose(found, deployment)}{metric} is worse {'over all levels' if 'all' in rows['scope'] else ', '.join(places)}"
        )
    return lines


def unproven_lines(found: Comparison, percent: float) -> list[str]:
    """A line for each metric, and each level's failures, that are worse by more than `percent` as measured, without proof."""
    lines = [
        f"{place_text(found, row)}: {_sides(row)}"
        for row in found.failures
        if row["verdict"] == "no evidence" and not row["alike"] and row["share"] > row["share_baseline"]
    ]
    at = " at the machine's speed for the baseline" if shared_by_machine(found.machine) == "better" else ""
    for row in unproven(found, percent).iter_rows(named=True):
        worse = f"{percent_text(row['ratio'])} over all levels is worse than {percent:g} %{at}"
        lines.append(f"{_whose(found, row['deployment'])}{row['metric']}: {worse}, without proof")
    return lines


def blind_spots(found: Comparison, percent: float) -> list[str]:
    """A line for each metric in which a regression of `percent` could have been overlooked, and for levels that nobody compares."""
    lines = [f"{_whose(found, row['deployment'])}{row['metric']}: {overlooked(row, percent)}" for row in blind(found, percent)]
    levels = [place_text(found, row) for row in unseen(found)]
    return lines + ([f"no two valid runs compare at {', '.join(levels)}"] if levels else [])


def overlooked(row: Row, percent: float) -> str:
    """Why a difference of `percent` could have been overlooked, and what it would take.

    Args:
        row: of `blind`. percent: as it is printed.
    """
    if row["could_see"] is None:
        return "nothing shows how far runs differ by chance; measure 4 sessions of each side"
    takes = "more than 100 sessions" if row["sessions"] is None else count_text(row["sessions"], "session")
    return (
        f"a difference of {percent:g} % could be overlooked; this comparison sees {_seen_text(row['could_see'] / 100)}; "
        f"finding it takes {takes} of each side in turns"
    )


def failed_requests(found: Comparison, row: Row) -> str:
    """The failures of a level on both sides, and their verdict. Args: row: of `found.failures`."""
    verdict = row["verdict"] if row["verdict"] != "no evidence" else "no significant difference"
    kept = "" if row["alike"] else "; its latencies and throughput are not compared"
    return f"{place_text(found, row)}: {_sides(row)}: {verdict}{kept}"


def _sides(row: Row) -> str:
    theirs = f"{row['failed_baseline']} of {row['requests_baseline']}"
    return f"{count_text(row['failed'], 'request', of=row['requests'])} failed, of the baseline's {theirs}"


def beside(found: Comparison) -> Iterator[tuple[str, str]]:
    """What a reader should know beside the differences, a kind and a line each."""
    levels = ", ".join(place_text(found, row) for row in found.uncompared)
    if found.matched:
        yield from (("absent", f"{name}: no pair has it on both sides") for name in found.absent)
    yield from [("lost", f"both sides measured {levels}, but no two of their runs are valid and compare")] if levels else []
    yield from (("stored", line) for line in stored_lines(found))
    if found.overall.height and found.overall["low"].null_count() == found.overall.height:
        yield "noise", _NO_NOISE
    yield from (("differs", difference_text(each)) for each in found.differences)
    yield from (("failures", failed_requests(found, row)) for row in found.failures)


def stored_lines(found: Comparison) -> list[str]:
    """What it means that one side was measured after the other; none where they took turns."""
    if not found.stored:
        return []
    known = (
        "One side was measured after the other: intervals allow for the machine's change in between (--between). Measure both in "
        "turns, in one study, to see smaller differences."
    )
    if found.machine is None:
        return [known, "Without reference loads on both sides (reference_requests), the machine may have changed."]
    shared = shared_by_machine(found.machine)
    between = interval_text(found.machine.low, found.machine.high)
    means = f"what is {shared} may be due to the machine, and is no verdict" if shared else "no more than chance"
    return [known, f"Time of the reference loads: {percent_text(found.machine.value)} ({between}): {means}."]


ESTIMATED = "~: an estimate; some run has too few requests to bound the percentile."
_NO_NOISE = (
    f"not known, so no difference has an interval: measure a load twice (repeats), {FEWEST_POINTS} loads, or two loads in two sessions "
    "(study.sessions)"
)


def assumed_text(sessions: int, spread: float) -> str:
    """That too few sessions were measured to show how far they differ, and what is assumed. Args: spread: relative."""
    return (
        f"{count_text(sessions, 'session')} of each side are too few to show how far sessions differ: intervals assume "
        f"{two_digits(100 * spread)} % (standard deviation; --between). Four or more (study.sessions) measure it."
    )


def answer(baseline: str, found: Mapping[str, Comparison]) -> Answer:
    """What each deployment changes against the baseline, metric by metric."""
    sure = []
    for name, each in found.items():
        left = sum(each.invalid)
        of = f", {count_text(left, 'invalid run')} left out" if left else ""
        sure.append(f"{name}: {count_text(each.matched, 'pair')} of valid runs{of}.")
    if assumed := [name for name, each in found.items() if each.overall["spread_assumed"].any()]:
        sure.append(f"How far sessions of {listed(assumed)} differ is assumed; four (study.sessions) would measure it.")
    return Answer(
        name="comparison",
        question=f"What is better or worse than {baseline}?",
        lines=tuple(line for name, each in found.items() for line in _lines(name, each)),
        sure=tuple(sure),
        do=tuple(_do(name, baseline, each) for name, each in found.items() if each.overall.height or not sum(each.invalid)),
    )


def _lines(name: str, found: Comparison) -> list[str]:
    failing = [f"{name}: {failed_requests(found, row)}." for row in found.failures if row["verdict"] != "no evidence"]
    if found.overall.is_empty():
        return [*failing, f"{name}: not known; at no load do both sides have a valid run."]
    return [*failing, *(f"{name}: {text}." for text in sentences(found))]


def _do(name: str, baseline: str, found: Comparison) -> str:
    verdicts = {verdict.split()[0] for verdict in found.overall["verdict"]}  # such as "worse at some loads"
    sides = (verdicts | {row["verdict"] for row in found.failures}) & {"worse", "better", "mixed"}
    match sorted(sides):
        case ["worse"]:
            return f"Keep {baseline}: {name} is worse in some metric and not seen better in any."
        case ["better"]:
            return f"{name} can replace {baseline}: it is better in some metric and not seen worse in any."
        case []:
            return f"These runs give no reason to prefer {name} or {baseline}."
    return f"{name} is better in some metrics and worse in others: decide by the metric and the load that matter to you."
