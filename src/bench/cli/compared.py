"""What `bench compare` prints."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.analysis import Comparison

__all__ = ["SIGHT", "blind_spots", "content", "print_comparison", "regressions_of"]

SIGHT = 5.0  # percent: the regression that a gate without a percentage has to be able to see
_TOLD = 5  # runs without a counterpart that are named


def regressions_of(found: Comparison, percent: float) -> list[str]:
    """A line for each metric that is worse somewhere, and for each level at which more requests fail."""
    from bench.analysis import regressions  # noqa: PLC0415 - --help must not pay for it

    lines = [
        f"{_configuration(found, row)}: {row['failed']} of {row['requests']} requests failed, of the baseline's "
        f"{row['failed_baseline']} of {row['requests_baseline']}"
        for row in found.failures.filter(verdict="worse").iter_rows(named=True)
    ]
    worse = regressions(found.effects, percent)
    for (deployment, metric), rows in worse.group_by("deployment", "metric", maintain_order=True):
        places = [_place(row) for row in rows.iter_rows(named=True)]
        whose = f"{deployment}: " if _several(found) else ""
        lines.append(f"{whose}{metric} is worse {'over all levels' if 'all' in rows['scope'] else ', '.join(places)}")
    return lines


def blind_spots(found: Comparison, percent: float) -> list[str]:
    """A line for each metric in which a regression of `percent` could have been overlooked, and for levels that nobody compares."""
    from bench.analysis import blind, unseen  # noqa: PLC0415 - as above
    from bench.analysis.wording import size_text  # noqa: PLC0415 - as above

    lines = []
    for row in blind(found, percent):
        whose = f"{row['deployment']}: " if _several(found) and row["deployment"] else ""
        if row["could_see"] is None:
            lines.append(
                f"{whose}{row['metric']}: nothing tells how far runs differ by chance; measure 4 sessions of each side"
            )
            continue
        takes = "more than 100 sessions" if row["sessions"] is None else f"{row['sessions']} sessions"
        lines.append(
            f"{whose}{row['metric']}: a regression of {percent:g} % over all levels could be overlooked; this comparison sees "
            f"{size_text(row['could_see'] / 100)} or more. {percent:g} % takes {takes} of each side, interleaved"
        )
    levels = [_configuration(found, row) for row in unseen(found).iter_rows(named=True)]
    return lines + ([f"no pair of valid runs is comparable at {', '.join(levels)}"] if levels else [])


def content(found: Comparison, options: argparse.Namespace, worse: list[str], missed: list[str]) -> dict[str, Any]:
    """The whole result as plain data; ratios are candidate / baseline."""
    sides = zip(("baseline", "candidate"), (options.baseline, options.candidate), found.runs, found.invalid, strict=True)
    return {
        **{side: {"source": source, "runs": runs, "invalid": invalid} for side, source, runs, invalid in sides},
        "pairs": found.matched,
        "alone": found.alone.drop("nth").to_dicts(),
        "absent": found.absent,
        "differences": found.differences,
        "failures": found.failures.to_dicts(),
        "overall": [
            {key: value for key, value in row.items() if key not in _PART} for row in found.overall.iter_rows(named=True)
        ],
        **{
            name: [{key: value for key, value in row.items() if key not in _WHOLE} for row in rows.iter_rows(named=True)]
            for name, rows in (("regions", found.regions), ("trends", found.trends), ("configurations", found.configurations))
        },
        "regressions": worse,
        "cannot_see": missed,
        "plan": _plan(found, options.difference) if options.difference else None,
    }


_PART = ("scope", "workload", "axis", "region", "level", "loads")
_WHOLE = ("scope", "pooled", "told", "sessions", "repeats", "noise", "spread", "spread_assumed")


def _plan(found: Comparison, percent: float) -> list[dict[str, Any]]:
    """Of each metric, the sessions that a difference of `percent` takes at the noise of these results."""
    from bench.analysis import needed  # noqa: PLC0415 - as above

    metrics = found.overall["metric"].n_unique()
    keys = ("deployment", "metric", "noise", "spread", "spread_assumed")
    return [
        {**{key: row[key] for key in keys}, "difference": percent, "sessions": needed(row, percent, metrics)}
        for row in found.overall.iter_rows(named=True)
    ]


def print_comparison(found: Comparison, options: argparse.Namespace) -> None:
    """What was compared, every metric over all levels, what that means, and on request each part of it."""
    for side, source, runs, invalid in zip(
        ("baseline", "candidate"), (options.baseline, options.candidate), found.runs, found.invalid, strict=True
    ):
        print(f"{side:<10} {source}: {runs} runs" + (f", {invalid} of them invalid and left out" if invalid else ""))
    levels, sessions = (max(found.overall[key], default=0) for key in ("levels", "sessions"))
    print(
        f"{'compared':<10} {_count(found.matched, 'pair')} of runs at {_count(levels, 'level')}, {_count(sessions, 'session')}"
    )
    for row in found.alone.head(_TOLD).iter_rows(named=True):
        session = f", session {row['session']}" if sessions > 1 else ""
        print(f"{'alone':<10} {_configuration(found, row)}{session}, repeat {row['repeat']}: {row['side']} only")
    if found.alone.height > _TOLD:
        print(f"{'':<10} and {found.alone.height - _TOLD} more runs without a counterpart")
    for name in found.absent:
        print(f"{'absent':<10} {name}: no pair has a value of it on both sides")
    for line in found.differences:
        print(f"{'differs':<10} {line}")
    for row in found.failures.iter_rows(named=True):
        print(f"{'failures':<10} {_failure(found, row)}")
    if found.overall.height:
        print(f"\n{'metric':<28}{'difference':>12}   {'interval':<22}{'verdict':<23}could see")
    for row in found.overall.iter_rows(named=True):
        print(f"{_line(_metric(found, row), row):<88}{_seen(row)}")
    _print_words(found)
    if options.difference:
        _print_plan(found, options.difference)
    _print_meaning(found)
    if options.runs:
        _print_parts(found)


def _print_words(found: Comparison) -> None:
    """The verdicts that there are, in words."""
    told = found.overall.filter(found.overall["verdict"] != "no evidence")
    if told.height:
        print()
    for row in told.iter_rows(named=True):
        print(f"{row['deployment'] + ' · ' if _several(found) else ''}{row['told']}")


def _print_plan(found: Comparison, percent: float) -> None:
    print(f"\nsessions of each side that find {percent:g} % over all levels in 8 of 10 cases, at the noise of these results:")
    for row in _plan(found, percent):
        takes = "not known" if row["noise"] is None else row["sessions"] or "more than 100"
        spread = f"{100 * row['spread']:.2g} %{' (assumed)' if row['spread_assumed'] else ''}"
        noise = "not known" if row["noise"] is None else f"{100 * row['noise']:.2g} %"
        print(f"  {_metric(found, row):<28}{takes!s:>14}   runs differ by {noise}, sessions by {spread}")


def _print_meaning(found: Comparison) -> None:
    """What the verdicts above rest on."""
    print(
        "\nBetter and worse: the interval lies on one side of 0. Without any difference, 95 comparisons in 100 have no such verdict."
    )
    whole = found.overall
    if whole.height and whole["spread_assumed"].any():
        sessions, spread = max(whole["sessions"]), max(whole["spread"])
        print(
            f"{_count(sessions, 'session')} of each side: too few to show how far sessions differ, so the intervals allow for "
            f"{100 * spread:.2g} % (standard deviation; --between, --again). "
            "A change with the load needs no such allowance. Four sessions or more (study.sessions) measure it."
        )


def _print_parts(found: Comparison) -> None:
    """Each level, region and trend of each metric."""
    parts = found.effects.filter(found.effects["scope"] != "all")
    for (deployment, metric), rows in parts.group_by("deployment", "metric", maintain_order=True):
        heading = f"{deployment} · {metric}" if _several(found) else str(metric)
        print(f"\n{heading:<28}{'difference':>12}   {'interval':<22}{'verdict':<23}pairs")
        for row in rows.iter_rows(named=True):
            print(f"{_line(_part(row), row):<88}{row['pairs']:>5}")


def _part(row: dict[str, Any]) -> str:
    if row["scope"] == "level":
        return f"{row['workload']} at {row['level']:g}"
    if row["scope"] == "trend":
        return f"{row['workload']}, a doubling"
    return f"{row['workload']}, {row['region']}"


def _place(row: dict[str, Any]) -> str:
    return f"at {row['level']:g}" if row["scope"] == "level" else f"at {row['region']}"


def _failure(found: Comparison, row: dict[str, Any]) -> str:
    theirs = f"{row['failed_baseline']} of {row['requests_baseline']}"
    sides = f"{row['failed']} of {row['requests']} requests failed, of the baseline's {theirs}"
    verdict = row["verdict"] if row["verdict"] != "no evidence" else "no sure difference"
    kept = "" if row["alike"] else "; its latencies and throughput are not compared"
    return f"{_configuration(found, row)}: {sides}: {verdict}{kept}"


def _several(found: Comparison) -> bool:
    return found.effects["deployment"].n_unique() > 1


def _metric(found: Comparison, row: dict[str, Any]) -> str:
    return f"{row['deployment']} · {row['metric']}" if _several(found) else str(row["metric"])


def _configuration(found: Comparison, row: dict[str, Any]) -> str:
    return f"{row['deployment'] + ' · ' if _several(found) else ''}{row['workload']} at {row['level']:g}"


def _line(name: str, row: dict[str, Any]) -> str:
    interval = f"{_percents(row['low'])} to {_percents(row['high'])} %" if row["low"] is not None else "– (noise not known)"
    return f"{name:<28}{_percents(row['ratio']) + ' %':>12}   {interval:<22}{row['verdict']}"


def _seen(row: dict[str, Any]) -> str:
    from bench.analysis.wording import size_text  # noqa: PLC0415 - as above

    return "–" if row["could_see"] is None else size_text(row["could_see"])


def _percents(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}".replace("-", "−")


def _count(number: Any, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
