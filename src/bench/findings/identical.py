"""Which answers are the same as the baseline's: counted, said, drawn."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from bench.errors import count_text
from bench.findings.accuracy import graded
from bench.findings.comparison.effects import CONFIGURATION
from bench.findings.comparison.words import place_text
from bench.findings.tables import Tables
from bench.parse.level_values import level_values
from bench.report.altair import alt
from bench.report.figure import figure
from bench.report.theme import Span, curve_colour, curve_shape, layered, line_ends, nothing_to_show, with_curve
from bench.statistics.shares import Share

if TYPE_CHECKING:
    from bench.findings.comparison.compare import Comparison

_UNKNOWN = dict.fromkeys(("answers", "prompts", "identical", "share", "low", "high", "unknown"))
Row = Mapping[str, Any]


class _Pair(NamedTuple):
    request: str
    ours: str
    theirs: str


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
    pairs = [pair for run in runs for pair in _pairs(run["kept_answers"] or (), run["kept_answers_candidate"] or ())]
    if not pairs:
        return {"unknown": "requests"}
    same: dict[str, list[bool]] = defaultdict(list)
    for pair in pairs:
        same[pair.request].append(pair.ours == pair.theirs)
    shares = [sum(each) / len(each) for each in same.values()]
    share = Share(sum(shares), len(shares))
    low, high = share.interval()
    return {
        "answers": len(pairs),
        "prompts": len(shares),
        "identical": sum(pair.ours == pair.theirs for pair in pairs),
        "share": share.share,
        "low": low,
        "high": high,
    }


def _greedy(run: Row, end: str) -> bool:
    """Whether a run's answers are the likeliest tokens: its requests say temperature 0."""
    body = json.loads(run[f"body{end}"] or "{}")
    left_out = (run[f"requests_omit{end}"] or "").split(", ")
    return body["temperature"] == 0 if "temperature" in body else "temperature" not in left_out


def _pairs(ours: Iterable[Row], theirs: Iterable[Row]) -> Iterator[_Pair]:
    mine, others = _by_request(ours), _by_request(theirs)
    for request, texts in mine.items():
        yield from (_Pair(request, *each) for each in zip(texts, others.get(request, ()), strict=False))


def _by_request(answers: Iterable[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in answers:
        if each["request_digest"] is not None and each["answer"] is not None:
            found[each["request_digest"]].append(each["answer"])
    return found


_NOT_KEPT = {
    "baseline": "the baseline's were not kept (keep_answers)",
    "candidate": "the candidate's were not kept (keep_answers)",
    "temperature": "requests do not all ask for temperature 0, so answers differ by chance",
    "requests": "no request is the same on both sides; of prompts of a file, cache: as_is makes it the same",
}


def same_answers(found: Comparison, row: Mapping[str, Any]) -> str:
    """How many answers are the same at a level. Args: row: of `found.answers`."""
    place = place_text(found, row)
    if row["unknown"]:
        return f"{place}: whether answers are identical is not known: {_NOT_KEPT[row['unknown']]}"
    prompts = f" to {count_text(row['prompts'], 'distinct request')}" if row["prompts"] < row["answers"] else ""
    share = share_text(row["share"], row["low"], row["high"])
    return f"{place}: identical answers: {row['identical']} of {row['answers']}{prompts} ({share})"


def share_text(share: float, low: float, high: float) -> str:
    """A share with its interval, such as `80 %, between 64 and 91 % at 95 % confidence`."""
    return f"{100 * share:.0f} %, between {100 * low:.0f} and {100 * high:.0f} % at 95 % confidence"


_LEVEL = ("deployment", "workload", "axis", "level")
_SAME, _RIGHT = "identical to the baseline's", "tasks solved (pass@1)"


@figure(
    "answers",
    title="Answers against throughput",
    question="What do a setting's tokens/s cost in answers?",
    reading="Each point is a deployment at a level of load: output tokens/s to the right, and upwards the"
    " share of its answers that are the baseline's at the same load, in a second panel the share of tasks of a graded set that "
    "it solves. Bars: 95 % intervals. A second deployment with the baseline's keys shows how many answers batches alone change."
    " The baseline is in the second panel only.",
    invalid="Left out of throughput",
    by_axis=False,
)
def answers(results: Tables) -> alt.TopLevelMixin:
    """Shares of answers over output tokens/s: a point a level.

    Args:
        results: `runs` with `level`, `throughput_tokens_per_s`, `valid` and kept answers; comparisons with the baseline; `grades`.
    """
    speeds = level_values(results.runs, ["throughput_tokens_per_s"]).drop_nulls()
    panels = [
        _panel(results, shares.join(speeds, on=_LEVEL, how="inner", maintain_order="left"), title)
        for title, shares in ((_SAME, _identical(results)), (_RIGHT, _solved(results)))
        if shares.join(speeds, on=_LEVEL, how="semi").height
    ]
    if not panels:
        return nothing_to_show("no valid run has answers that compare with the baseline's, or that were graded")
    return panels[0] if len(panels) == 1 else alt.hconcat(*panels)


_SHARES = {"deployment": pl.String, "workload": pl.String, "axis": pl.String, "level": pl.Float64,
           "share": pl.Float64, "low": pl.Float64, "high": pl.Float64}  # fmt: skip


def _identical(results: Tables) -> pl.DataFrame:
    """The share of each level's answers that are the baseline's, where it is known."""
    rows = [
        {**{key: row[key] for key in _SHARES}, "deployment": name}
        for name, found in results.comparisons.items()
        for row in found.answers
        if row["share"] is not None
    ]
    return pl.DataFrame(rows, schema=_SHARES)


def _solved(results: Tables) -> pl.DataFrame:
    """The share of tasks that are solved at each level; empty without grades."""
    rows = () if results.grades is None else graded(results.runs, results.grades)
    shares = [
        {
            **{key: getattr(each, key) for key in _LEVEL},
            **{key: getattr(each.accuracy, key) for key in ("share", "low", "high")},
        }
        for each in rows
    ]
    return pl.DataFrame(shares, schema=_SHARES)


def _panel(results: Tables, shares: pl.DataFrame, title: str) -> alt.LayerChart:
    rows, along, up = (
        with_curve(results, shares).sort("level"),
        Span.of(shares["throughput_tokens_per_s"], log=False),
        Span(0.0, 1.0),
    )
    x = alt.X("throughput_tokens_per_s:Q", title="output tokens/s", scale=along.scale)
    y = alt.Y(
        "share:Q", title=f"share of answers {title}" if title == _SAME else title, axis=alt.Axis(format="%"), scale=up.scale
    )
    colour = curve_colour(results)
    base = alt.Chart(rows.select("curve", "level", "throughput_tokens_per_s", "share", "low", "high"))
    tooltip = [
        "curve:N",
        alt.Tooltip("level:Q", title="load"),
        alt.Tooltip("throughput_tokens_per_s:Q", format=".4g"),
        *(alt.Tooltip(f"{column}:Q", format=".0%") for column in ("share", "low", "high")),
    ]
    layers = [
        base.mark_rule().encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=colour, shape=curve_shape(results), tooltip=tooltip
        ),
        base.mark_text(align="left", baseline="bottom", dx=6, dy=-3, fontSize=13).encode(
            x=x, y=y, text=alt.Text("level:Q", format="~g")
        ),
        *line_ends(results, rows.select("curve", x="throughput_tokens_per_s", y="share"), along, up, (x, y)),
    ]
    return layered(*layers)
