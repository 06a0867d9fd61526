"""The traffic of an access log in words: from `bench.beside.traffic`."""

from __future__ import annotations

from collections.abc import Iterator

from bench.beside.traffic.arrivals import FEWEST_GAPS, Burstiness
from bench.beside.traffic.describe import Described, Lengths
from bench.beside.traffic.log import Log
from bench.errors import shown_share, three_digits

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_ROLES = {"arrival": "arrivals", "prompt": "prompt tokens", "output": "answer tokens", "text": "texts"}
_FAR = 1.5  # times as dispersed in long windows as the gaps' shape says: the rate changes
_UNLIKE = 0.1  # distance of gaps from their fit that deserves a word
_MANY = 0.1  # share of rows left out that deserves a word
_RELATED = 0.1  # rank correlation that deserves one


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _seconds(value: float) -> str:
    for unit, size in (("days", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def read_line(log: Log) -> str:
    """What was read, from which columns."""
    columns = ", ".join(f"{what} from {log.columns[role]}" for role, what in _ROLES.items() if role in log.columns)
    return f"{log.path}: {_rows(log.rows)}; {columns}."


def left_out_lines(log: Log) -> Iterator[str]:
    """One line for each reason why rows are no requests with lengths, and what that means."""
    for each in log.left_out:
        yield f"Left out: {_rows(each.count)} with {each.why} (first {each.place}: {each.value})."
    gone = sum(each.count for each in log.left_out)
    if gone > _MANY * log.rows:
        yield f"All that follows is of the other {shown_share(1 - gone / log.rows)}: more requests came than it says."


def arrival_rows(found: Described) -> list[list[str]]:
    """How requests arrive, one row each."""
    rate = "not known: all came in one instant" if found.rate is None else f"{three_digits(found.rate)} requests/s"
    rows = [["requests", f"{found.requests:,}"], ["span", _seconds(found.span_s)], ["mean rate", rate]]
    rows += [[f"peak rate in {_seconds(each.seconds)}", f"{three_digits(each.peak)} requests/s"] for each in found.windows]
    rows.append(["burstiness (shape of gamma gaps)", _burstiness(found.burstiness)])
    for each in found.windows:
        if each.dispersion is not None:
            p = "" if each.p is None else ", p < 0.001" if each.p < 0.001 else f", p = {each.p:.2g}"
            rows.append([f"dispersion in {_seconds(each.seconds)} (1: Poisson)", f"{each.dispersion:.3g}{p}"])
    if found.concurrency:
        known = found.concurrency
        rows.append(["requests in flight", f"{three_digits(known.mean)} in the mean, {known.most:,} at most"])
    if found.shared is not None:
        rows.append(["shared prefixes", f"{shown_share(found.shared)} of the prompts' characters"])
    return rows


def _burstiness(found: Burstiness | None) -> str:
    if found is None:
        return "not known: too few requests, or too coarse a clock"
    if found.equal:
        return "equal gaps: no shape"
    poisson = "Poisson is within" if found.poisson else "Poisson is not within"
    source = "" if found.source == "gaps" else "; from counts, as the clock is coarse"
    return f"{found.shape:.3g} ({found.low:.3g} to {found.high:.3g} at 95 %: {poisson}){source}"


def hour_rows(found: Described) -> list[list[str]]:
    """Requests/s by hour of the day, six hours a row; none where the log holds no day."""
    if found.hours is None:
        return []
    cells = ["–" if rate is None else three_digits(rate) for rate in found.hours]
    return [[f"{first:02d}–{first + 5:02d} h", *cells[first : first + 6]] for first in range(0, 24, 6)]


def length_rows(found: Described) -> list[list[str]]:
    """Percentiles of both lengths, with a head."""
    names = list(found.prompts.percentiles)
    return [
        ["tokens", *(name.upper() if name[0] == "p" else name for name in names)],
        *(
            [what, *(three_digits(of.percentiles[name]) for name in names)]
            for what, of in (("prompts", found.prompts), ("answers", found.outputs))
        ),
    ]


def fit_rows(found: Described) -> list[list[str]]:
    """How far fitted distributions are from the log, with a head."""
    rows = [["fit", "distribution", "KS distance", "P50", "P90", "P99", "taken"]]
    shape = found.burstiness
    if shape:
        kind = "equal gaps" if shape.equal else f"gamma, shape {shape.shape:.3g}"
        distance = "–" if shape.distance is None else f"{shape.distance:.3f}"
        rows.append(["gaps", kind, distance, "–", "–", "–", "Poisson" if shape.poisson else "gamma"])
    return [*rows, *(_fit_row(what, of) for what, of in (("prompts", found.prompts), ("answers", found.outputs)))]


def _fit_row(what: str, of: Lengths) -> list[str]:
    fit = of.fit
    if fit is None:
        return [what, "none: one length, or too few", "–", "–", "–", "–", "the log's own lengths"]
    errors = [f"{100 * error:+.0f} %" for error in fit.errors.values()]
    kind = f"lognormal, median {three_digits(fit.median)}, sigma {fit.sigma:.3g}, {fit.low:,} to {fit.high:,}"
    return [what, kind, f"{fit.distance:.3f}", *errors, "lognormal" if fit.close else "the log's own lengths"]


def remarks(log: Log, found: Described) -> Iterator[str]:
    """What a reader has to know of these numbers."""
    yield from log.notes
    if found.concurrency and found.concurrency.requests < found.requests:
        yield f"Requests in flight are of the {found.concurrency.requests:,} whose duration is known."
    if found.shared is not None:
        yield (
            "Shared prefixes are what a prefix cache without bounds would find, by blocks of 64 characters. Tokens differ; the "
            "workloads share nothing (`cache: shared` with `shared_prefix` would)."
        )


def unlike(found: Described, scale: float) -> Iterator[str]:
    """What the written workloads do not have of the log."""
    if scale != 1:
        others = (
            "More users would bring their gaps between those of others, which is smoother."
            if scale > 1
            else "Fewer users would send fewer requests in a burst, which would last as long as now."
        )
        yield (
            f"The replay is {scale:g} times as fast, in the same order: gaps keep their burstiness, and what lasted a minute lasts "
            f"{60 / scale:.3g} s. {others}"
        )
    if found.burstiness is None or found.rate is None:
        if found.rate is None:
            why = "it has one request" if found.requests == 1 else "all its requests came in one instant"
        elif found.requests <= FEWEST_GAPS:
            why = f"it has {found.requests} requests, and {FEWEST_GAPS + 1} are the fewest"
        else:
            why = "its clock is too coarse for so short a log"
        yield f"Nothing that resembles the log was written: {why}."
        return
    distance = found.burstiness.distance
    if distance is not None and distance > _UNLIKE:
        yield f"The log's gaps do not follow a gamma distribution (KS distance {distance:.2f}): bursts of the two differ."
    expected = 1 / found.burstiness.shape
    for each in found.windows:
        if each.dispersion is not None and each.dispersion > _FAR * max(1.0, expected):
            yield (
                f"The resembling workload has one rate throughout. The log's changes: its dispersion in {_seconds(each.seconds)} is "
                f"{each.dispersion:.3g}, and such gaps alone make {max(expected, 0):.2g}. Take the replay where bursts or hours matter."
            )
            break
    if found.correlation is not None and abs(found.correlation) >= _RELATED:
        yield f"It draws prompt and answer lengths independently; in the log their rank correlation is {found.correlation:+.2f}."
