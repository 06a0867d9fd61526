"""One deployment against another: matched runs, and what was held equal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.errors import BenchError
from bench.findings.comparison.effects import ASSUMED_SPREAD, CONFIGURATION, Ratio, but_for_the_machine, effects, metric_of
from bench.parse.drift import USUAL_NOISE, USUAL_WEIGHT
from bench.parse.windows import of_windows
from bench.runs.columns import METRICS
from bench.servers.settings import SETTINGS, is_own
from bench.statistics.textbook import rarer_by_chance, student_t

# `nth` distinguishes runs that have the same repeat, as those of `bench workload` do.
_RUN = (*CONFIGURATION, "session", "repeat", "nth")
Rows = tuple[Mapping[str, Any], ...]
LEAST_SHARE = 0.01  # share of the requests by which the sides must differ in failures; convention
_WRONG = 0.01  # probability of a false verdict on failures, over all levels together; convention
FAILURES = {
    **dict.fromkeys(("deployment", "workload", "axis"), pl.String),
    "level": pl.Float64,
    **dict.fromkeys(("failed_baseline", "requests_baseline", "failed", "requests"), pl.Int64),
    **dict.fromkeys(("share_baseline", "share", "p"), pl.Float64),
    "verdict": pl.String,
    "alike": pl.Boolean,
}


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline.

    Attributes:
        matched: pairs of runs.
        effects: every verdict, see `effects`. failures: rows of levels at which either side failed requests, see
            `failures`.
        runs, invalid: runs of the baseline and of the candidate, and how many of them are invalid and left out.
        alone: rows of valid runs without a counterpart: `side` (`baseline` or `candidate`) and what distinguishes runs.
        uncompared: rows of levels (`CONFIGURATION`) that both sides measured, and of which no pair is compared.
        absent: metrics that one side has, and no pair. estimates: percentiles that some run has without a bound.
        differences: what should be the same in both and is not.
        stored: whether one side was measured after the other, and not in turns with it. machine: then, the candidate's time of the
            reference loads ÷ the baseline's; None where they share no reference load.
    """

    matched: int
    effects: pl.DataFrame
    failures: Rows
    runs: tuple[int, int]
    invalid: tuple[int, int]
    alone: Rows
    uncompared: Rows
    absent: tuple[str, ...]
    estimates: tuple[str, ...]
    differences: tuple[Differs, ...]
    stored: bool = False
    machine: Ratio | None = None

    @property
    def overall(self) -> pl.DataFrame:
        """One row a deployment and metric: all levels together."""
        return self.effects.filter(scope="all")

    @property
    def configurations(self) -> pl.DataFrame:
        """One row a metric and level."""
        return self.effects.filter(scope="level")


def compare(
    baseline: pl.DataFrame,
    candidate: pl.DataFrame,
    metrics: Sequence[str] = tuple(METRICS),
    *,
    spread: float = ASSUMED_SPREAD,
    two_jobs: bool = False,
) -> Comparison:
    """Compare the runs of `candidate` with those of `baseline` that have the same workload, load, session and repeat.

    Deployments are matched by name; where each side has one, they are matched whatever they are called. Levels at which the sides'
    shares of failed requests differ are compared by those alone: latencies of the requests that survived say nothing.

    Of sides that were measured one after the other, a change in the direction of the reference loads' is the machine's, and no verdict.

    Args:
        baseline, candidate: summary rows; those without a session are of one. metrics: as `metric_of` has them; the more are looked at,
            the more a verdict takes. spread: standard deviation of the ln ratio between two sessions of one deployment, where there are
            fewer than `FEWEST_SESSIONS`, or one side was measured after the other. two_jobs: whether the sides are of two studies: then
            even single sessions are as far apart as that.

    Raises:
        BenchError: several deployments, and none in common; or a metric that is none.
    """
    baseline, candidate, failed, pairs = pair_up(baseline, candidate, metrics)
    ours, theirs = (_numbered(side.filter("valid")) for side in (baseline, candidate))
    several = two_jobs or min(side["session"].n_unique() for side in (ours, theirs)) > 1
    stored = several and _one_after_the_other(ours, theirs)
    machine = change_of_machine(ours, theirs) if stored else None
    judged = effects(pairs, spread=spread, stored=stored)
    found = set(pairs["metric"])
    measured = baseline.select(CONFIGURATION).unique(maintain_order=True).join(candidate, on=CONFIGURATION, how="semi")
    return Comparison(
        matched=pairs.select(_RUN).n_unique(),
        effects=but_for_the_machine(judged, machine) if machine else judged,
        failures=tuple(failed.to_dicts()),
        runs=(baseline.height, candidate.height),
        invalid=(baseline.height - ours.height, candidate.height - theirs.height),
        alone=_alone("baseline", ours, theirs) + _alone("candidate", theirs, ours),
        uncompared=tuple(measured.join(pairs, on=CONFIGURATION, how="anti", maintain_order="left").to_dicts()),
        absent=tuple(name for name in metrics if name not in found and any(side[name].count() for side in (ours, theirs))),
        estimates=tuple(name for name in metrics if name in found and (_estimated(ours, name) or _estimated(theirs, name))),
        differences=tuple(differences(_paired(ours, theirs))),
        stored=stored,
        machine=machine,
    )


def _alone(name: str, side: pl.DataFrame, other: pl.DataFrame) -> Rows:
    rows = side.join(other, on=_RUN, how="anti")
    return tuple(rows.select(pl.lit(name).alias("side"), pl.col("own").alias("deployment"), *_RUN[1:]).to_dicts())


def _one_after_the_other(ours: pl.DataFrame, theirs: pl.DataFrame) -> bool:
    """Whether all runs of one side began before any of the other's: sessions in turns overlap."""
    (begun, ended), (begun_too, ended_too) = ((side["started"].min(), side["started"].max()) for side in (ours, theirs))
    return None not in (begun, begun_too) and bool(ended < begun_too or ended_too < begun)  # type: ignore[operator]


def change_of_machine(ours: pl.DataFrame, theirs: pl.DataFrame) -> Ratio | None:
    """The candidate's time of the reference loads ÷ the baseline's; None where no load is both sides'. One load is one observation."""
    sides = [
        side.drop_nulls("reference_s")
        .unique(("session", "reference_started"))
        .select("reference_load", pl.col("reference_s").log())
        for side in (ours, theirs)
    ]
    one, other = (side.join(against, on="reference_load", how="semi")["reference_s"] for side, against in (sides, sides[::-1]))
    if not len(one) or not len(other):
        return None
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (one, other))
    freedom = len(one) + len(other) - 2 + USUAL_WEIGHT
    noise = math.sqrt((squares + USUAL_WEIGHT * USUAL_NOISE**2) / freedom * (1 / len(one) + 1 / len(other)))
    return Ratio.of(float(other.mean()) - float(one.mean()), student_t(freedom) * noise)  # type: ignore[arg-type]


def pair_up(
    baseline: pl.DataFrame, candidate: pl.DataFrame, metrics: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Both sides' runs, with the same deployment names and in steady windows; the levels at which requests failed; and a row a metric
    and pair of runs: `CONFIGURATION`, `session`, `repeat`, `nth`, `metric`, `log_ratio` (ln candidate ÷ baseline)."""
    baseline, candidate = (
        side.with_columns(
            pl.col("session").fill_null(1),
            *(pl.lit(None, pl.Float64).alias(metric) for metric in metrics if metric_of(metric) and metric not in side.columns),
            own=pl.col("deployment"),
        )
        for side in (baseline, candidate)
    )
    # Windows by deployment: two of them have the same ratio, whatever else is compared with them.
    baseline, candidate = of_windows(_called_alike(baseline, candidate), candidate, load=CONFIGURATION)
    failed = failures(baseline, candidate)
    both = _paired(*(_numbered(side.filter("valid")) for side in (baseline, candidate)))
    comparable = both.join(failed.filter(~pl.col("alike")), on=CONFIGURATION, how="anti", maintain_order="left")
    # Requests pile up in a run that ends early: their latencies show how long it lasted. Where one side alone ended early, it is the
    # slower one, and would have been slower still.
    whole = comparable.filter(pl.col("stopped_at_s").is_null() | pl.col("stopped_at_s_candidate").is_null())
    pairs = pl.concat([_log_ratios(whole if metric_of(metric).unit == "s" else comparable, metric) for metric in metrics])
    return baseline, candidate, failed, pairs


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
    # A wrong key or model is refused under any load, and says nothing of the server.
    content = pl.col("faults").list.contains("content").fill_null(False)
    counted = (pl.col("requests") > 0) & pl.col("failed").is_not_null() & ~content
    ours, theirs = (
        side.filter(counted).group_by(CONFIGURATION, maintain_order=True).agg("failed", "requests")
        for side in (baseline, candidate)
    )
    both = ours.join(theirs, on=CONFIGURATION, suffix="_candidate", maintain_order="left")
    both = both.sort("workload", "level", maintain_order=True)
    rows = [row for row in both.iter_rows(named=True) if any(row["failed"]) or any(row["failed_candidate"])]
    return pl.DataFrame([_failures_at(row, both.height) for row in rows], schema=FAILURES)


def _failures_at(level: Mapping[str, Any], levels: int) -> dict[str, Any]:
    ours, theirs = ((level[f"failed{side}"], level[f"requests{side}"]) for side in ("", "_candidate"))
    dispersion = _dispersion([ours, theirs])
    share, share_too = (sum(failed) / sum(sent) for failed, sent in (ours, theirs))
    sides = [tuple(round(sum(counts) / dispersion) for counts in side) for side in (ours, theirs)]
    (more, of_more), (fewer, of_fewer) = sides[::-1] if share_too > share else sides
    p = rarer_by_chance(fewer, of_fewer, more, of_more)
    alike = abs(share_too - share) < LEAST_SHARE
    verdict = "no evidence" if alike or p > _WRONG / levels else "worse" if share_too > share else "better"
    (failed, sent), (failed_too, sent_too) = ours, theirs
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


def compare_with_baseline(runs: pl.DataFrame, metrics: Sequence[str] = tuple(METRICS)) -> dict[str, Comparison]:
    """Each deployment of a study that has a load in common with its baseline, compared with it.

    Args:
        runs: summary rows, with `baseline` (true for the runs of the deployment that the study names so).

    Returns:
        The comparisons by deployment, in the study's order; none where the study names no baseline.
    """
    baseline, others = runs.filter("baseline"), runs.filter(~pl.col("baseline"))
    load = ["workload", "axis", "level"]
    names = others.join(baseline, on=load, how="semi", maintain_order="left")["deployment"].unique(maintain_order=True)
    return {name: compare(baseline, others.filter(pl.col("deployment") == name), metrics) for name in names}


def _called_alike(baseline: pl.DataFrame, candidate: pl.DataFrame) -> pl.DataFrame:
    """The baseline's rows, under the candidate's deployment where each side has only one."""
    ours, theirs = (side["deployment"].unique(maintain_order=True).to_list() for side in (baseline, candidate))
    if len(ours) == len(theirs) == 1:
        return baseline.with_columns(deployment=pl.lit(theirs[0]))
    if not set(ours) & set(theirs):
        raise BenchError(
            f"the baseline has the deployments {', '.join(ours)}, the candidate {', '.join(theirs)}: none in common. Name the two to "
            "compare, as in PATH:DEPLOYMENT."
        )
    return baseline


def _paired(ours: pl.DataFrame, theirs: pl.DataFrame) -> pl.DataFrame:
    """A row a pair of runs, the candidate's columns with `_candidate` at their end, in the study's order, levels rising."""
    both = ours.join(theirs, on=_RUN, suffix="_candidate", maintain_order="left").with_row_index("row")
    first = pl.col("row").min().over("deployment", "workload")
    return both.sort(first, "level", "session", "repeat", "nth").drop("row")


def _numbered(runs: pl.DataFrame) -> pl.DataFrame:
    return runs.with_columns(nth=pl.int_range(pl.len()).over(*CONFIGURATION, "session", "repeat"))


def _estimated(side: pl.DataFrame, metric: str) -> bool:
    """Whether `metric` is a percentile that some run of `side` has without its upper bound."""
    bound = f"{metric.removesuffix('_s')}_bound_s"
    return bound in side.columns and not side.filter(pl.col(metric).is_not_null() & pl.col(bound).is_null()).is_empty()


def _log_ratios(both: pl.DataFrame, metric: str) -> pl.DataFrame:
    ours, theirs = (pl.col(name).cast(pl.Float64) for name in (metric, f"{metric}_candidate"))
    return both.filter((ours > 0) & (theirs > 0)).select(
        *_RUN, pl.lit(metric).alias("metric"), log_ratio=theirs.log() - ours.log()
    )


_KEYS = tuple(name for name in SETTINGS if not name.endswith("_parallel"))
_STATED = "model parameters hardware device tensor_parallel pipeline_parallel data_parallel gpus engine engine_version"
_DEPLOYMENT = (*_STATED.split(), "kv_bytes_per_token", "kv_tokens", *_KEYS, "environment")
# Of a run.
_SENT = "arrival stream cache prompts answers body honour_retry_after num_requests prompt_tokens output_tokens seed"
LOCKED = (*_DEPLOYMENT, *_SENT.split())
# largest relative difference of lengths, or of KV caches, that are measured and count as equal; convention: two runs of one load differ
# by chance
ALIKE = 0.05


@dataclass(frozen=True)
class Differs:
    """A locked variable that differs.

    Attributes:
        deployment: whose it is, where several are compared. loads: workloads and levels at which it does, of what a run has; None of
            what a deployment has.
    """

    variable: str
    baseline: Any
    candidate: Any
    deployment: str | None = None
    loads: tuple[tuple[str, float], ...] | None = None


def differences(both: pl.DataFrame) -> list[Differs]:
    """Each locked variable that differs between the runs of a pair.

    Args:
        both: a row a pair of runs: the baseline's columns, and the candidate's with `_candidate` at their end; `deployment`,
            `workload` and `level` are common.
    """
    several = both["deployment"].n_unique() > 1
    found: list[Differs] = []
    flags = sorted({name.removesuffix("_candidate") for name in both.columns if is_own(name)})
    ends = [end for name in flags for end in (name, f"{name}_candidate") if end not in both.columns]
    both = both.with_columns(pl.lit(None, dtype=pl.String).alias(end) for end in ends)  # a flag of one side alone
    for column in (*LOCKED, *flags):
        apart = both.filter(_apart(column, both))
        if column in _DEPLOYMENT or column in flags:
            rows = apart.select("deployment", column, f"{column}_candidate").unique(maintain_order=True).rows()
            found += [Differs(column, ours, theirs, name if several else None) for name, ours, theirs in rows]
        elif len(apart):
            first = apart.row(0, named=True)
            loads = tuple(apart.select("workload", "level").unique(maintain_order=True).rows())
            found.append(Differs(column, first[column], first[f"{column}_candidate"], loads=loads))
    return found


def _apart(column: str, both: pl.DataFrame) -> pl.Expr:
    """Whether the sides differ. Of natural lengths it takes more than a few tokens: they are measured."""
    ours, theirs = pl.col(column), pl.col(f"{column}_candidate")
    if column in _KEYS or is_own(column):  # without a dtype, nothing is known of that server, or by that version
        known = pl.all_horizontal(pl.col("dtype", "dtype_candidate").is_not_null())
        return known & ours.ne_missing(theirs)
    measured = {"prompt_tokens": ("prompts", "file"), "output_tokens": ("answers", "natural")}.get(column)
    if measured is None or measured[0] not in both.columns:
        return ours.ne_missing(theirs)
    near = ((ours - theirs).abs() <= ALIKE * ours).fill_null(value=False) & (pl.col(measured[0]) == measured[1])
    return ours.ne_missing(theirs) & ~near.fill_null(value=False)
