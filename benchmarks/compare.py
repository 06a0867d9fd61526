"""How often `bench compare` is right, over repeated draws: false verdicts without an effect, and planted regressions found.

A run's log is off by its noise; by what all repeats of a level in a session share (noise × `--shared`); and, where said so, by what all
runs of a session share. Verdicts are of the library's own code, six metrics drawn independently, of which the regression hits one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from typing import Any

import numpy as np
import polars as pl

from bench.analysis import METRICS, regressions
from bench.analysis.compare import CONFIGURATION, overall

NOISES = (0.01, 0.02, 0.05, 0.10)
LEVELS = (3, 6, 12)
REPEATS = (1, 2, 3, 5)
SESSIONS = (0.0, 0.005, 0.01, 0.02, 0.05)
HIT = "throughput_tokens_per_s"
NAMES = [name for name in METRICS if name != "tokens_per_joule"]  # what there is without a GPU
BY = ("draw", "metric")
SET = ("session", "shared", "repeats", "hit")  # what a row was drawn with; the rest of it are rates


def draw(
    generator: np.random.Generator,
    *,
    draws: int,
    levels: int,
    repeats: int,
    noise: float,
    shared: float,
    session: float = 0.0,
    percent: float = 0.0,
    hit: tuple[str, ...] = (HIT,),
) -> pl.DataFrame:
    """Pairs of `draws` comparisons, as `overall` takes them. The metrics in `hit` are `percent` worse."""
    shape = (draws, len(NAMES), levels, repeats, 2)

    def component(deviation: float, *axes: int) -> Any:
        return generator.normal(0, deviation, [1 if axis in axes else size for axis, size in enumerate(shape)])

    logs = component(noise) + component(noise * shared, 3) + component(session, 2, 3)
    ratios = logs[..., 1] - logs[..., 0]
    for i, name in enumerate(NAMES):
        if name in hit:
            ratios[:, i] += math.log1p((-1 if METRICS[name].higher_is_better else 1) * percent / 100)
    index = np.indices(shape[:-1])
    return pl.DataFrame(
        {
            "draw": index[0].ravel(),
            "metric": np.array(NAMES)[index[1].ravel()],
            "level": index[2].ravel().astype(float),
            "log_ratio": ratios.ravel(),
        }
    ).with_columns(pl.lit(name).alias(name) for name in CONFIGURATION if name != "level")


def rates(told: pl.DataFrame) -> tuple[float, float]:
    """Shares of the draws: with any verdict but `no evidence`; with `worse` for the metric that is hit."""
    draws = told["draw"].n_unique()
    any_verdict = told.filter(pl.col("verdict") != "no evidence")["draw"].n_unique()
    found = told.filter((pl.col("metric") == HIT) & (pl.col("verdict") == "worse"))["draw"].n_unique()
    return any_verdict / draws, found / draws


def table(generator: np.random.Generator, draws: int, shared: float, percent: float) -> list[dict[str, Any]]:
    """False verdicts of six metrics, and the regression found among six and by itself, for each noise, number of levels and repeats."""
    rows = []
    for noise, levels, repeats in itertools.product(NOISES, LEVELS, REPEATS):
        common: dict[str, Any] = {"draws": draws, "levels": levels, "repeats": repeats, "noise": noise, "shared": shared}
        false, _ = rates(overall(draw(generator, **common), by=BY))
        planted = draw(generator, **common, percent=percent)
        _, among_six = rates(overall(planted, by=BY))
        _, alone = rates(overall(planted.filter(metric=HIT), by=BY))
        rows.append(
            {"noise": noise, "levels": levels, "repeats": repeats, "false": false, "found": among_six, "found_alone": alone}
        )
    return rows


def sessions(generator: np.random.Generator, draws: int, shared: float) -> list[dict[str, Any]]:
    """False verdicts where each session is off by something of its own, which all its runs share: 2 % noise, 6 levels, 3 repeats."""
    return [
        {"session": session, "false": rates(overall(
            draw(generator, draws=draws, levels=6, repeats=3, noise=0.02, shared=shared, session=session), by=BY))[0]}
        for session in SESSIONS
    ]  # fmt: skip


def methods(generator: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """False verdicts as repeats of a level share more, with the levels' means as the sample and with each pair (else as `sessions`)."""
    rows = []
    for shared in (0.0, 0.5, 1.0):
        nothing = draw(generator, draws=draws, levels=6, repeats=3, noise=0.02, shared=shared)
        every_pair = nothing.with_columns(level=pl.lit(0.0))
        rows.append(
            {"shared": shared, "levels": rates(overall(nothing, by=BY))[0], "pairs": rates(overall(every_pair, by=BY))[0]}
        )
    return rows


def beyond(generator: np.random.Generator, draws: int, shared: float, percent: float) -> list[dict[str, Any]]:
    """Draws in which a metric is called worse by more than `percent` when one is worse by just that, and when all are."""
    rows = []
    for hit in ((HIT,), tuple(NAMES)):
        pairs = draw(generator, draws=draws, levels=12, repeats=3, noise=0.01, shared=shared, percent=percent, hit=hit)
        called = regressions(overall(pairs, by=BY), percent)["draw"].n_unique()
        rows.append({"hit": len(hit), "false": called / draws})
    return rows


def level_verdicts(generator: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """False verdicts of single levels, each by the 95 % interval of its own repeats, as those share more."""
    rows = []
    for shared, repeats in itertools.product((0.0, 0.5, 1.0), REPEATS[1:]):
        pairs = draw(generator, draws=draws, levels=6, repeats=repeats, noise=0.02, shared=shared)
        one = pairs.filter(metric=HIT).with_columns(draw=pl.col("draw") * 6 + pl.col("level").cast(pl.Int64))
        rows.append({"shared": shared, "repeats": repeats, "false": rates(overall(one, by=BY))[0]})
    return rows


def _found(row: dict[str, Any]) -> str:
    return f"{100 * row['found']:.0f} ({100 * row['found_alone']:.0f})"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="draws a cell (default: %(default)s)")
    parser.add_argument(
        "--shared",
        type=float,
        default=0.5,
        help="what repeats of a level share, as a multiple of the noise (default: %(default)s)",
    )
    parser.add_argument("--percent", type=float, default=5.0, help="the planted regression (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    result = {
        "rates": table(generator, options.draws, options.shared, options.percent),
        "sessions": sessions(generator, options.draws, options.shared),
        "methods": methods(generator, options.draws),
        "beyond": beyond(generator, options.draws, options.shared, options.percent),
        "levels": level_verdicts(generator, options.draws),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"A {options.percent:g} % regression found in % of {options.draws} draws: among six metrics (by itself).")
    print(
        f"{'levels':>6}{'repeats':>9}" + "".join(f"{f'noise {noise:.0%}':>14}" for noise in NOISES) + f"{'false, at most':>17}"
    )
    for levels, repeats in itertools.product(LEVELS, REPEATS):
        cells = [row for row in result["rates"] if (row["levels"], row["repeats"]) == (levels, repeats)]
        found = "".join(f"{_found(row):>14}" for row in cells)
        print(f"{levels:>6}{repeats:>9}{found}{100 * max(row['false'] for row in cells):>17.1f}")
    every = [row["false"] for row in result["rates"]]
    print(f"False verdicts without an effect: {100 * sum(every) / len(every):.1f} % in the mean of all cells.")
    for name in ("sessions", "methods", "beyond", "levels"):
        print(f"\n{name}: false verdicts (%)")
        for row in result[name]:
            print(
                "  "
                + "  ".join(
                    f"{key} {value:g}" if key in ("session", "shared", "repeats") else f"{key} {100 * value:.1f}"
                    for key, value in row.items()
                )
            )


if __name__ == "__main__":
    main()
