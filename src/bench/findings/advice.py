"""What else follows from the runs, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from bench.axes import AXES
from bench.parse.stream import engine_is_ahead
from bench.report.blocks import Answer
from bench.runs.sentences import filled, load_text, sure_text

_RATIO = 1.5  # least ratio of two loads that count as different; convention
_FRONT_END = (
    "{workload} on {deployment} is limited between engine and client, for example by the API server: at {load} the engine makes a "
    "token of each request every {server_itl_mean_s:ms}, and clients get one every {client_s:ms}[; its GPUs are busy "
    "{gpu_utilisation_mean:share} of the time]. More API server processes (vLLM: `--api-server-count`) may yield more than "
    "{throughput_tokens_per_s:,.0f} tokens/s."
)


def advice(runs: pl.DataFrame, points: pl.DataFrame) -> list[str]:
    """What the runs advise. Args: runs: summary rows. points: of `operating_points`; empty without SLOs."""
    return [*pools(points), *front_end(runs.filter("valid"))]


def pools(points: pl.DataFrame) -> Iterator[str]:
    """Workloads of different lengths whose rates on one server differ by half, in intervals that do not overlap."""
    for part in points.drop_nulls("usable_rps").partition_by("deployment", maintain_order=True):
        rows = part.sort("usable_rps", descending=True).to_dicts()
        most, least = rows[0]["usable_low"], rows[-1]["usable_high"]
        apart = most is not None and least is not None and most > least
        lengths = [(rows[0][name] or 0.0, rows[-1][name] or 0.0) for name in ("prompt_tokens", "output_tokens")]
        others = any(max(each) >= _RATIO * min(each) for each in lengths)  # the same requests at other moments need no pool
        if apart and others and rows[0]["usable_rps"] >= _RATIO * rows[-1]["usable_rps"]:
            rates = [sure_text(row["usable_rps"], row["usable_low"], row["usable_high"])[0] for row in rows]
            carried = ", ".join(f"{rate} of {row['workload']}" for rate, row in zip(rates, rows, strict=True))
            yield (
                f"Give each workload its own pool: within its SLOs one {rows[0]['deployment']} sustains, in requests/s, {carried}. A "
                "mixed pool is sized by the heaviest."
            )


def front_end(valid: pl.DataFrame) -> Iterator[str]:
    """Curves whose engine makes tokens faster than clients get them: the fastest such level of each."""
    ahead = valid.filter(engine_is_ahead().fill_null(False))
    for _, part in ahead.group_by("deployment", "workload", maintain_order=True):
        most = part.sort("throughput_tokens_per_s").row(-1, named=True)
        client_s = most["tpot_mean_s"] if most["itl_mean_s"] is None else most["itl_mean_s"]
        unit = AXES[most["axis"]].counted(conversations=(most["turns"] or 1) > 1)
        yield filled(_FRONT_END, {**most, "client_s": client_s, "load": load_text(most["level"], unit)})


def answer(found: tuple[str, ...]) -> Answer:
    """What the runs advise beyond what would raise each limit."""
    return Answer("advice", "What else follows from these runs?", found)
