"""Which engines of a fleet were not as the others: silent, started again, of another version or size, or loaded unevenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import polars as pl

from bench.records.run import DECODE, PREFILL

Check = Literal["silent", "restarted", "version", "kv_tokens", "kv_blocks", "requests", "generation_tokens"]
Miscast = Literal["worker_decodes", "worker_spared", "worker_prefills_too"]
_SIZES: tuple[Check, ...] = ("kv_tokens", "kv_blocks")
SPOILS: tuple[Check, ...] = ("silent", "restarted")  # what takes a run's counts; the rest may be meant so
# probability that a balanced fleet has an unbalanced worker in a run; convention
_BY_CHANCE = 0.001
# relative difference of KV caches that counts as none; convention: what a server finds free on its GPU differs by some blocks
_ALIKE = 0.05


# share by which requests that are counted on both sides may differ; convention: a scrape may miss some at either end
_TWICE = 0.05
_FURTHER = 1.5  # tokens of a request, in the mean, from which on it was decoded; convention


@dataclass(frozen=True)
class WorkerVerdict:
    """One way in which a worker was not as the others of its fleet.

    Attributes:
        worker: its name. check: which way. value: longest time without a scrape (s; None: none at all), number of restarts, version,
            tokens or blocks of the KV cache, or share of the requests or tokens (0–1). usual: what the others have, or 1/n.
    """

    worker: str
    check: Check
    value: float | str | None
    usual: float | str | None = None


def worker_verdicts(workers: Sequence[Mapping[str, Any]], scrape_gap_s: float) -> list[WorkerVerdict]:
    """What sets workers of one run apart.

    A share of the load is another one where it is off 1/n by more than chance gives, if each conversation comes to any worker alike: a
    router that balances better than that never shows it. Where workers have roles, those of one role are compared. Nothing is said of a
    number that a worker does not report.

    Args:
        workers: rows of `bench.records.columns.WORKER_FIELDS`. scrape_gap_s: longest time without a scrape that is not a gap.
    """
    found = []
    for row in workers:
        if row["scrape_gap_s"] is None or row["scrape_gap_s"] > scrape_gap_s:
            found.append(WorkerVerdict(row["worker"], "silent", row["scrape_gap_s"], scrape_gap_s))
        if row["restarts"]:
            found.append(WorkerVerdict(row["worker"], "restarted", row["restarts"]))
    roles = dict.fromkeys(row.get("role") for row in workers)
    alike = [[row for row in workers if row.get("role") == role] for role in roles]
    return [*found, *_versions(workers), *(each for rows in alike for each in (*_limits(rows), *_shares(rows)))]


def prefilling(run: Mapping[str, Any]) -> list[str]:
    """The workers that computed the prompts of requests which others decoded: prefill and decode are disaggregated.

    Such workers make one token of each request, and count together all the requests that the client sent, as the others do: one with
    less is one that had little to do. With vLLM 0.32, its `ExampleConnector` and vLLM's router both count each request, its prompt and
    its first token. Empty where it is not known, and where workers have roles, by which sums are taken.

    Args:
        run: a row of the summary table.
    """
    workers = run.get("workers") or ()
    if (
        not workers
        or any(row.get("role") for row in workers)
        or any(row["requests"] is None or row["generation_tokens"] is None for row in workers)
    ):
        return []
    once = [row for row in workers if _made_one_each(row)]
    others = [row for row in workers if row not in once]
    first, served = (sum(row["requests"] for row in rows) for rows in (once, others))
    least, most = (1 - _TWICE) * run["ok"], (1 + _TWICE) * (run["requests"] + (run.get("client_resent") or 0))
    both = run["ok"] and all(least <= counted <= most for counted in (first, served))
    decoded = both and sum(row["generation_tokens"] for row in others) >= _FURTHER * served
    return [row["worker"] for row in once] if decoded else []


def miscast(run: Mapping[str, Any]) -> tuple[Miscast, list[str]] | None:
    """Which workers do not keep to their roles by what they counted, and how; None where all do, or where it is not known.

    The fleet's prompts are then not those of its requests.

    Args:
        run: a row of the summary table.

    Returns:
        `worker_decodes`: prefill workers that decoded too. Where these had not all of the requests that were answered,
        `worker_prefills_too`: others that only prefilled, by what they made; without any, `worker_spared`: the prefill workers.
    """
    rows = [row for row in run.get("workers") or () if row.get("role") == PREFILL]
    partly = False in (run.get("scraped_before"), run.get("scraped_after"))
    if partly or any(row["requests"] is None or row["generation_tokens"] is None for row in rows):
        return None
    decoded = [row["worker"] for row in rows if row["generation_tokens"] > (1 + _TWICE) * row["requests"]]
    if decoded:
        return "worker_decodes", decoded
    if not rows or sum(row["requests"] for row in rows) >= (1 - _TWICE) * run["ok"]:
        return None
    further = [row["worker"] for row in run["workers"] if row.get("role") == DECODE and _made_one_each(row)]
    return ("worker_prefills_too", further) if further else ("worker_spared", [row["worker"] for row in rows])


def _made_one_each(row: Mapping[str, Any]) -> bool:
    """Whether a worker made one token of each of its requests."""
    return bool(row["requests"]) and 0 < (row["generation_tokens"] or 0) <= (1 + _TWICE) * row["requests"]


def computing(run: Mapping[str, Any]) -> list[str]:
    """The decode workers that computed more of their prompts than the last block of each: KV caches were not passed on, or in part.

    A connector passes on whole blocks, and the last token of a prompt is computed where it is decoded; more than that the sums by role
    lack. Empty where it is not known.

    Args:
        run: a row of the summary table.
    """
    return [
        row["worker"]
        for row in run.get("workers") or ()
        if row.get("role") == DECODE
        and None not in (computed := row.get("prompt_tokens_computed"), row["requests"], row["block_size"])
        and computed > (1 + _TWICE) * row["block_size"] * row["requests"]
    ]


def _usual(values: Sequence[Hashable]) -> Any:
    """The most frequent value; of several, the first one's."""
    return Counter(values).most_common(1)[0][0]


def _versions(workers: Sequence[Mapping[str, Any]]) -> list[WorkerVerdict]:
    known = [row for row in workers if row["version"] is not None]
    usual = _usual([row["version"] for row in known]) if known else None
    return [WorkerVerdict(row["worker"], "version", row["version"], usual) for row in known if row["version"] != usual]


def _limits(workers: Sequence[Mapping[str, Any]]) -> list[WorkerVerdict]:
    """Those whose KV cache is larger or smaller than the others'."""
    for size in _SIZES:
        known = [row for row in workers if row[size]]
        if known and len(known) == len(workers):
            # The worker that most others are like: of two that differ the first one.
            usual = max((row[size] for row in known), key=lambda value: sum(_near(value, row[size]) for row in known))
            return [WorkerVerdict(row["worker"], size, row[size], usual) for row in known if not _near(row[size], usual)]
    return []


def _near(value: float, other: float) -> bool:
    return abs(value - other) <= _ALIKE * max(value, other)


def _shares(workers: Sequence[Mapping[str, Any]]) -> list[WorkerVerdict]:
    """Those that got more or less than their share of the requests; where those are not counted, of the tokens."""
    limit = NormalDist().inv_cdf(1 - _BY_CHANCE / (4 * max(1, len(workers))))  # two sides, two counts
    found: dict[str, WorkerVerdict] = {}
    for counted in ("requests", "generation_tokens"):
        whole = sum(row[counted] or 0.0 for row in workers)
        for row in workers:
            apart = row[f"{counted}_deviation"]
            if apart is not None and abs(apart) > limit and whole:
                share = WorkerVerdict(row["worker"], counted, row[counted] / whole, 1 / len(workers))
                found.setdefault(row["worker"], share)
    return list(found.values())


def workers_of_runs(runs: pl.DataFrame, scrape_gap_s: float) -> dict[str, dict[str, list[WorkerVerdict]]]:
    """What sets workers apart, by deployment and run; a fleet's deployment is there even if nothing does.

    Args:
        runs: the summary table.
    """
    found: dict[str, dict[str, list[WorkerVerdict]]] = {}
    for row in runs.filter(pl.col("workers").is_not_null()).select("deployment", "run", "workers").iter_rows(named=True):
        found.setdefault(row["deployment"], {})[row["run"]] = worker_verdicts(row["workers"], scrape_gap_s)
    return found
