"""Whether a candidate answers as the baseline does: whether it fails more requests, which outweighs its latencies, and which
answers are the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from bench.findings.comparison.effects import CONFIGURATION
from bench.statistics.percentiles import Share
from bench.statistics.textbook import rarer_by_chance

LEAST_SHARE = 0.01  # share of the requests by which the sides must differ; convention
_WRONG = 0.01  # probability of a false verdict, over all levels together; convention
FAILURES = {
    **dict.fromkeys(("deployment", "workload", "axis"), pl.String),
    "level": pl.Float64,
    **dict.fromkeys(("failed_baseline", "requests_baseline", "failed", "requests"), pl.Int64),
    **dict.fromkeys(("share_baseline", "share", "p"), pl.Float64),
    "verdict": pl.String,
    "alike": pl.Boolean,
}


def failures(baseline: pl.DataFrame, candidate: pl.DataFrame) -> pl.DataFrame:
    """The levels at which either side failed requests; valid runs and others alike, as a failure is the server's own answer.

    Fisher's exact test on the counts, one-sided, Bonferroni's for the number of levels; the counts are divided by their dispersion
    first: Pearson's χ² of the runs around their side's share ÷ (runs − 2), 1 at least. So one run in which all failed is one event.
    Of a single run on each side there is no dispersion, and each request counts.

    Args:
        baseline, candidate: summary rows, deployments called alike (`CONFIGURATION`, `failed`, `requests`).

    Returns:
        One row a level: counts and shares (0–1) of both sides; `p` of the side that failed more; `verdict` on the candidate, `better`
        or `worse` where the shares differ significantly, by 1 % or more; `alike`, whether they differ by less: otherwise latencies
        of the requests that survived are not comparable.
    """
    sides = [_counts(side) for side in (baseline, candidate)]
    both = (
        sides[0]
        .join(sides[1], on=CONFIGURATION, suffix="_candidate", maintain_order="left")
        .sort("workload", "level", maintain_order=True)
    )
    rows = [row for row in both.iter_rows(named=True) if any(row["failed"]) or any(row["failed_candidate"])]
    return pl.DataFrame([_row(row, both.height) for row in rows], schema=FAILURES)


def _counts(runs: pl.DataFrame) -> pl.DataFrame:
    # A wrong key or model is refused under any load, and says nothing of the server.
    content = pl.col("faults").list.contains("content").fill_null(False)
    sent = runs.filter((pl.col("requests") > 0) & pl.col("failed").is_not_null() & ~content)
    return sent.group_by(CONFIGURATION, maintain_order=True).agg("failed", "requests")


def _row(level: Mapping[str, Any], levels: int) -> dict[str, Any]:
    failed, sent = level["failed"], level["requests"]
    failed_too, sent_too = level["failed_candidate"], level["requests_candidate"]
    share, share_too = sum(failed) / sum(sent), sum(failed_too) / sum(sent_too)
    dispersion = _dispersion([(failed, sent), (failed_too, sent_too)])
    ours, theirs = (
        (round(sum(f) / dispersion), round(sum(n) / dispersion)) for f, n in ((failed, sent), (failed_too, sent_too))
    )
    (more, of_more), (fewer, of_fewer) = (theirs, ours) if share_too > share else (ours, theirs)
    p = rarer_by_chance(fewer, of_fewer, more, of_more)
    alike = abs(share_too - share) < LEAST_SHARE
    verdict = "no evidence" if alike or p > _WRONG / levels else "worse" if share_too > share else "better"
    return {
        **{key: level[key] for key in CONFIGURATION},
        "failed_baseline": sum(failed),
        "requests_baseline": sum(sent),
        "failed": sum(failed_too),
        "requests": sum(sent_too),
        "share_baseline": share,
        "share": share_too,
        "p": p,
        "verdict": verdict,
        "alike": alike,
    }


def _dispersion(sides: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """Pearson's χ² of runs around their side's share ÷ its degrees of freedom, 1 at least."""
    squares, runs = 0.0, 0
    for failed, sent in sides:
        share = sum(failed) / sum(sent)
        runs += len(sent)
        if 0 < share < 1:
            squares += sum((f - n * share) ** 2 / (n * share * (1 - share)) for f, n in zip(failed, sent, strict=True))
    return max(1.0, squares / (runs - len(sides))) if runs > len(sides) else 1.0


_UNKNOWN = dict.fromkeys(("answers", "prompts", "identical", "share", "low", "high", "unknown"))
Row = Mapping[str, Any]


def identical(both: pl.DataFrame) -> list[dict[str, Any]]:
    """The levels at which either side kept its answers.

    Answers belong together whose requests are the same but for the model's name (`request_digest`); of several in a run, in order.
    Answers to one request resemble each other, so each distinct request counts once, with its own share: Clopper and Pearson's interval
    of as many trials as there are distinct requests.

    Args:
        both: a row a pair of runs: the baseline's columns, and the candidate's with `_candidate` at their end; those of `CONFIGURATION`
            are common.

    Returns:
        One row a level: `answers` (pairs of them), to `prompts` (distinct requests); `identical` of them, their `share` with its
        interval (`low`, `high`; 0–1). `unknown`, where nothing is known: `baseline` or `candidate` (that side kept no answers),
        `temperature` (not 0 on both sides), or `requests` (none is the same on both).
    """
    return [
        {**dict(zip(CONFIGURATION, level, strict=True)), **_UNKNOWN, **_same_row(pairs.to_dicts())}
        for level, pairs in both.group_by(CONFIGURATION, maintain_order=True)
        if pairs["kept_answers"].count() or pairs["kept_answers_candidate"].count()
    ]


def _same_row(runs: Sequence[Row]) -> dict[str, Any]:
    """The columns of `identical` for the pairs of runs at a level."""
    for side, end in (("baseline", ""), ("candidate", "_candidate")):
        if all(run[f"kept_answers{end}"] is None for run in runs):
            return {"unknown": side}
    if not all(_greedy(run, end) for run in runs for end in ("", "_candidate")):
        return {"unknown": "temperature"}
    same: dict[str, list[bool]] = defaultdict(list)
    for run in runs:
        ours, theirs = (_by_request(run[f"kept_answers{end}"] or ()) for end in ("", "_candidate"))
        for request, texts in ours.items():
            same[request] += [one == other for one, other in zip(texts, theirs.get(request, ()), strict=False)]
    same = {request: each for request, each in same.items() if each}
    if not same:
        return {"unknown": "requests"}
    shares = [sum(each) / len(each) for each in same.values()]
    share = Share(sum(shares), len(shares))
    low, high = share.interval()
    return {
        "answers": sum(map(len, same.values())),
        "prompts": len(shares),
        "identical": sum(map(sum, same.values())),
        "share": share.share,
        "low": low,
        "high": high,
    }


def _greedy(run: Row, end: str) -> bool:
    """Whether a run's answers are the likeliest tokens: its requests say temperature 0."""
    body = json.loads(run[f"body{end}"] or "{}")
    left_out = (run[f"requests_omit{end}"] or "").split(", ")
    return body["temperature"] == 0 if "temperature" in body else "temperature" not in left_out


def _by_request(answers: Iterable[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in answers:
        if each["request_digest"] is not None and each["answer"] is not None:
            found[each["request_digest"]].append(each["answer"])
    return found
