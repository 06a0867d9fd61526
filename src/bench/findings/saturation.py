"""Where each curve saturates: the loads at which its signals begin, in words and as a table. Their chart: `kv_saturation`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.axes import AXES, CONCURRENCY
from bench.errors import listed
from bench.findings.capacity.words import UNFILLED
from bench.findings.predicted import ceiling_text
from bench.findings.regions import POINTS, knees, regions, turning_point
from bench.parse.windows import level_value
from bench.report.blocks import Answer, Block, Cell, Column, Section, Table, Text, shortened
from bench.runs.columns import schema_of
from bench.runs.sentences import filled

if TYPE_CHECKING:
    from bench.findings.tables import Tables
    from bench.findings.view import View

_CURVE = ["deployment", "workload"]


def saturation(runs: pl.DataFrame) -> pl.DataFrame:
    """Where each deployment saturates under each workload, by its KV cache, its queue and its throughput, and as predicted.

    The KV cache: the lowest level of which every valid run filled it, as have all higher levels; the level below it bounds it from
    below. The queue: the same of requests that wait once the load stands. Null where no level did: nothing is extrapolated. The
    throughput: its turning points, as `regions` finds them.

    Args:
        runs: summary rows.

    Returns:
        One row a deployment and workload, with the columns of `saturation` in `bench/runs/analysis.toml`.
    """
    rows, turns = [], regions(runs)
    valid = runs.filter("counts_valid")  # a late client does not change what the server counts
    for (deployment, workload), group in valid.group_by(_CURVE, maintain_order=True):
        levels: list[float] = group["level"].unique().sort().to_list()
        # A late client changes these.
        timed = group.filter("valid").group_by("level").agg(level_value("throughput_tokens_per_s")).drop_nulls()
        highest = timed.sort("throughput_tokens_per_s", "level", descending=[True, False])["level"]
        measured, below = _from(group, pl.col("saturated"))
        queue, queue_below = _from(group, pl.col("waiting_standing") > 0)
        # A prediction in requests says nothing about a rate.
        counted = group["axis"][0] == CONCURRENCY
        predicted = group["predicted_saturation"].drop_nulls().max() if counted else None
        beyond = (i for i, level in enumerate(levels) if predicted is not None and level >= predicted)  # type: ignore[operator]
        expected = next(beyond, None)
        # Of a cache that is full at the lowest level already, a prediction below that is neither right nor wrong.
        shown = levels.index(measured) - expected if measured is not None and expected is not None else None
        rows.append(
            {key: group[key][0] for key in (*_CURVE, "axis", "model", "kv_bytes_per_token", "parameters")}
            | {"measured": measured, "below": below, "queue": queue, "queue_below": queue_below, "predicted": predicted}
            | {
                "cache_known": bool(group["saturated"].is_not_null().any()),
                "levels_apart": None if shown is None or (below is None and not shown) else shown,
                "peak_at": next(iter(highest), None),
            }
            | turns[str(deployment), str(workload)]
        )
    return pl.DataFrame(rows, schema=schema_of("saturation"))


def _from(group: pl.DataFrame, sign: pl.Expr) -> tuple[float | None, float | None]:
    """The lowest level from which on all runs of which it is known show `sign`, and the level below it; null where there is none."""
    known = group.select("level", sign=sign).drop_nulls()
    levels = known.group_by("level").agg(pl.col("sign").all()).sort("level")
    loads, signs = levels["level"].to_list(), levels["sign"].to_list()
    first = next((i for i in range(len(loads)) if all(signs[i:])), None)
    return (None, None) if first is None else (loads[first], loads[first - 1] if first else None)


Row = Mapping[str, Any]
_NAMED = 5  # most loads that a title names
_SET = (
    "Set `decision.slo`, such as `slo: [ttft_p99=1s]`, to learn what is sustained within limits on latency; nothing is measured "
    "again."
)
_PREDICTED = "[ ({predicted:.3g} predicted)]"


def answer(rows: Sequence[Row], *, several_workloads: bool) -> Answer:
    """Where each curve saturates.

    Args:
        rows: of `bench.findings.saturation`, without SLOs: within those fewer may be sustained than fit.
    """
    lines = shortened([f"{_name(row, several_workloads)}: {_cache(row)}; {_throughput(row)}." for row in rows])
    return Answer(
        "concurrency", "At what concurrency does the KV cache fill, and where does throughput peak?", lines, do=(_SET,)
    )


def _name(row: Row, several: bool) -> str:
    return f"{row['deployment']} · {row['workload']}" if several else str(row["deployment"])


def _cache(row: Row) -> str:
    if row["measured"] is None:
        return filled(UNFILLED[row["cache_known"]] + "[ ({predicted:.3g} in flight predicted)]", row)
    return filled("the KV cache is full at {measured:g} in flight[, and not at {below:g}]" + _PREDICTED, row)


def title(rows: Sequence[Row]) -> str | None:
    """At which loads KV caches are full, as a title; None where that is not known, or of too many curves.

    Args:
        rows: of `bench.findings.saturation`.
    """
    counted = [row for row in rows if row["axis"] == CONCURRENCY]
    full = [row for row in counted if row["measured"] is not None]
    if not counted or not all(row["cache_known"] for row in counted) or len(full) > _NAMED:
        return None
    several = len({row["workload"] for row in counted}) > 1
    named = [{**row, "name": _name(row, several) if len(counted) > 1 else None} for row in full]
    loads = [filled("{measured:g} in flight[ on {name}]" + _PREDICTED, row) for row in named]
    return f"The KV cache is full at {listed(loads)}" if loads else "No load filled the KV cache"


def _throughput(row: Row) -> str:
    text = turning_point(row, "saturation", AXES[row["axis"]].short)
    if row["saturation_at"] is not None:
        what = "peaks" if row["saturation_kind"] == "peak" else "stops growing"
        return f"throughput {what} at {text}"
    known = row["saturation_kind"] in ("above", "below")
    return f"throughput stops growing {text}" if known else f"where throughput peaks is not known: {text}"


def prediction_title(apart: Iterable[int | None]) -> str | None:
    """On how many curves the KV cache is full at the level that geometry predicts; None where no curve has both.

    Args:
        apart: measured levels between the two, of each curve (`levels_apart` of `bench.findings.saturation`).
    """
    known = [each for each in apart if each is not None]
    if not known:
        return None
    met = sum(each == 0 for each in known)
    if met == 0:
        return "The KV cache is full at other levels than geometry predicts"
    share = f"{met} of {len(known)} curves" if met < len(known) or met > 1 else "the one curve that shows it"
    return f"The KV cache is full at the level that geometry predicts on {share}"


def lesson(results: Tables) -> str:
    """That memory and what users can have are two limits, where two curves of a workload show it; else empty.

    They do where a load at which one curve's SLOs are missed, with room left in its cache, is sustained by one whose cache holds less,
    and geometry predicts on each curve that shows it where the cache fills.
    """
    predicted = {(row["deployment"], row["workload"]): row["predicted"] for row in results.saturation.iter_rows(named=True)}
    fills = results.saturation["levels_apart"].drop_nulls()
    points = results.points.filter(axis=CONCURRENCY).to_dicts() if fills.len() and (fills == 0).all() else []
    for large in [point for point in points if point["kind"] in ("found", "below")]:
        fits = predicted.get((large["deployment"], large["workload"])) or 0.0
        by = [miss["by"] for miss in large["missed"] if not miss["close"]]
        for small in [point for point in points if point["workload"] == large["workload"] and point["c_max"] is not None]:
            fewer = predicted.get((small["deployment"], small["workload"])) or math.inf
            if by and fewer < fits and small["c_max"] >= large["missed_at"] < fits:
                slo = next((each for each in results.decision.slos if each.column in by), "what is wanted")
                return (
                    f"Geometry decides when the cache fills, compute decides what users can have: {large['deployment']}'s cache holds "
                    f"{fits:.3g} requests, {small['deployment']}'s {fewer:.3g}, and yet it misses {slo} at {large['missed_at']:g} in "
                    f"flight, which {small['deployment']} sustains."
                )
    return ""


_TABLE = (
    Column("deployment", "curve"),
    Column("parameters (M)", "parameters", "%.1f", 1e-6),
    Column("KV bytes a token", "kv_bytes_per_token", "%d"),
    Column("predicted", "predicted", "%.1f"),
    Column("KV cache full at", "full"),
    Column("standing queue", "queue"),
    Column("knee", "knee"),
    Column("equilibrium A|B", "equilibrium"),
    Column("saturation B|C", "saturation"),
)
_MEANING = (
    "Predicted: KV tokens ÷ tokens a request, in whole blocks. Full, queue: from here on every valid run filled the cache, or "
    "had requests waiting once the load stood. Knee: TTFT's P99 is three times its P50 while throughput flattens. A|B: up to "
    "here a request keeps 80 % of its throughput at the lowest level; B|C: throughput is highest; each with its 95 % interval."
)


def section(view: View) -> Section:
    """Where each curve saturates, without workloads of swept lengths at a single load: they saturate nowhere."""
    results = view.results
    swept = results.runs.filter(
        (pl.col("workload") != pl.col("family")) & (pl.col("level").n_unique().over("deployment", "workload") == 1)
    )
    known = results.saturation.join(swept, on=["deployment", "workload"], how="anti", maintain_order="left")
    bent = knees(results.curves)
    rows = [
        {
            **row,
            "full": _first(row["measured"], row["below"], known=row["cache_known"]),
            "knee": _first(bent.get((row["deployment"], row["workload"])), None),
            "queue": _first(row["queue"], None),
            **{str(name): turning_point(row, name) for name in POINTS},
        }
        for row in view.of_curves(known.iter_rows(named=True))
    ]
    device = results.device.title if results.device else ""
    ceilings = [Text(ceiling_text(found, device)) for found in results.analysis.findings.ceilings]
    blocks: list[Block] = [Table("Predicted and measured saturation", _TABLE, rows), Text(_MEANING), *ceilings] if rows else []
    return Section("saturation", "Where each deployment saturates", blocks)


def _first(at: float | None, below: float | None, *, known: bool = True) -> Cell:
    """The lowest load at which something shows, and the highest at which it does not."""
    if at is None:
        return Cell("not seen" if known else "not known")
    return Cell(f"{at:g}" if below is None else f"{at:g} (not yet at {below:g})", at)
