"""Which answers are the same as the baseline's."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from bench.findings.comparison.effects import CONFIGURATION
from bench.statistics.shares import Share

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
        {**dict(zip(CONFIGURATION, level, strict=True)), **_UNKNOWN, **_row(pairs.to_dicts())}
        for level, pairs in both.group_by(CONFIGURATION, maintain_order=True)
        if pairs["kept_answers"].count() or pairs["kept_answers_candidate"].count()
    ]


def _row(runs: Sequence[Row]) -> dict[str, Any]:
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
