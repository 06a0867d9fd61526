"""Permutation importance of each factor for a metric, on configurations that the model has not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from bench.analysis.factors import cells, factors_of, metrics_of, varying
from bench.statistics import TAIL
from bench.study.questions import FEWEST_CONFIGURATIONS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FEWEST_SCORE = 0.5  # R² on unseen configurations below which what it owes to a factor says little; convention
_FOLDS = 5  # folds of the cross-validation; convention
_ROUNDS = 2  # times that the configurations are split into folds; convention
_SHUFFLES = 20  # shuffles of a factor in each fold; convention


def importances(runs: pl.DataFrame) -> pl.DataFrame:
    """How much worse a model predicts a metric when one factor is shuffled, on configurations that it has not seen.

    Gradient-boosted trees learn the logarithm of the metric (itself, where it can be 0). In each of two rounds, five of them learn
    four fifths of the configurations each, so that every configuration is predicted by one that has not seen it. A factor's
    importance is the loss of R² over all configurations when its column is shuffled, twenty times a round. Repeats are averaged
    before, so that none of a configuration's stands on both sides.

    Args:
        runs: rows of `with_metrics`, of one family.

    Returns:
        One row a metric and factor: `metric`, `factor`, `importance` (mean), `low`, `high` (2.5 % to 97.5 % of all shuffles), `score`
        (mean R²), `score_low`, `score_high` (over rounds), `n` configurations. `importance` and its spread are null where `score` is
        below 0.5: a model that does not predict the metric says nothing of its factors. No row for a metric that is known in fewer
        than 20 configurations, or is the same in all.

    Source: Breiman 2001. scikit-learn's `permutation_importance` would shuffle within a fold;
    docs/explanation/decisions.md has what that does to small studies.
    """
    table = cells(runs)
    partly = [name for name in factors_of(table) if table[name].is_not_null().any()]
    rows = []
    for metric, title in metrics_of(table).items():
        known = table.drop_nulls([metric, *partly])
        factors, names = varying(known), factors_of(known)
        if not factors or known.height < FEWEST_CONFIGURATIONS or known[metric].n_unique() < 2:
            continue
        y = known[metric].log() if known[metric].min() > 0 else known[metric]  # type: ignore[operator]
        scores, lost = _shuffled(known.select(pl.col(factors).to_physical().cast(pl.Float64)).to_numpy(), y.to_numpy())
        score = sum(scores) / len(scores)
        for factor, values in zip(factors, lost, strict=True):
            known_losses = pl.Series(values if score >= FEWEST_SCORE else [], dtype=pl.Float64)
            rows.append(
                {
                    "metric": title,
                    "factor": names[factor],
                    "importance": known_losses.mean(),
                    "low": known_losses.quantile(TAIL, "linear"),
                    "high": known_losses.quantile(1 - TAIL, "linear"),
                    "score": score,
                    "score_low": min(scores),
                    "score_high": max(scores),
                    "n": known.height,
                }
            )
    numbers = dict.fromkeys(("importance", "low", "high", "score", "score_low", "score_high"), pl.Float64)
    return pl.DataFrame(rows, schema={"metric": pl.String, "factor": pl.String, **numbers, "n": pl.Int64})


def _shuffled(x: Floats, y: Floats) -> tuple[list[float], list[list[float]]]:
    """R² of each round, and each factor's losses of R², one a shuffle.

    Args:
        x: configurations × factors. y: the metric.
    """
    import numpy as np  # noqa: PLC0415 - two seconds of imports with the next, for the studies that have factors alone
    from sklearn.metrics import r2_score  # noqa: PLC0415

    scores: list[float] = []
    lost: list[list[float]] = [[] for _ in range(x.shape[1])]
    for turn in range(_ROUNDS):
        random = np.random.default_rng(turn)
        predict = _held_out(x, y, turn)
        scores.append(float(r2_score(y, predict(x[None])[0])))
        for factor, losses in enumerate(lost):
            shuffled = np.repeat(x[None], _SHUFFLES, axis=0)
            shuffled[:, :, factor] = random.permuted(shuffled[:, :, factor], axis=1)
            losses += [scores[-1] - float(r2_score(y, values)) for values in predict(shuffled)]
    return scores, lost


def _held_out(x: Floats, y: Floats, seed: int) -> Callable[[Floats], Floats]:
    """What predicts `y` of copies × configurations × factors, each configuration by a model that learned without it."""
    import numpy as np  # noqa: PLC0415 - as above
    from sklearn import config_context  # noqa: PLC0415
    from sklearn.ensemble import GradientBoostingRegressor  # noqa: PLC0415
    from sklearn.model_selection import KFold  # noqa: PLC0415

    folds = KFold(_FOLDS, shuffle=True, random_state=seed).split(x)
    with config_context(skip_parameter_validation=True):  # they are the defaults, looked at once a tree: a quarter of the time
        models = [(GradientBoostingRegressor(random_state=0).fit(x[learn], y[learn]), test) for learn, test in folds]

    def predict(copies: Floats) -> Floats:
        values = np.empty(copies.shape[:2])
        for model, test in models:
            values[:, test] = model.predict(copies[:, test].reshape(-1, x.shape[1])).reshape(len(copies), -1)
        return values

    return predict
