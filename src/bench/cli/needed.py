"""`bench compare --plan`: how many sessions a difference takes, before anything is measured."""

from __future__ import annotations

from types import SimpleNamespace

from bench.analysis import Noise, sessions_for, visible
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, two_digits

__all__ = ["plan_sessions"]

_DIFFERENCE = 5.0
_BETWEEN = 10.0
_LADDER = (4, 6, 8, 12, 16)  # sessions of each side that are shown beside the number that it takes


def plan_sessions(options: SimpleNamespace) -> None:
    """Print the sessions that the wanted difference takes, and what other numbers of them could see."""
    if not 0 < options.noise < 100:
        raise BenchError(f"--noise is {options.noise:g}: a percentage above 0 and below 100.")
    difference = _DIFFERENCE if options.difference is None else options.difference
    if not difference:
        raise BenchError("--difference is 0: no number of sessions shows that. Give the smallest that would change a decision.")
    between = _BETWEEN if options.between is None else options.between
    noise = Noise(options.noise / 100, between / 100)
    metrics = len(options.metric) if options.metric else 6
    takes = sessions_for(difference / 100, noise, options.levels, options.repeats, metrics)
    sees = {k: 100 * visible(noise, k, options.levels, options.repeats, metrics) for k in sorted({*_LADDER, takes or 4})}
    if options.json:
        print_json(
            {
                "difference": difference,
                "noise": options.noise,
                "between": between,
                "levels": options.levels,
                "repeats": options.repeats,
                "metrics": metrics,
                "sessions": takes,
                "could_see": sees,
            }
        )
        return
    number = "more than 100 sessions" if takes is None else f"{takes} sessions"
    print(f"{difference:g} % over {options.levels} levels takes {number} of each deployment, interleaved (A B B A …).")
    print(
        f"Runs differ by {options.noise:g} %, sessions next to each other by {between:g} % (standard deviations; --noise, --between); "
        f"repeats: {options.repeats}; metrics: {metrics}."
    )
    print()
    rows = [[str(sessions), f"{two_digits(seen)} %"] for sessions, seen in sees.items()]
    print_table([["sessions", "could see, in 8 of 10 cases"], *rows], ">>")
