"""The traffic of an access log in words."""

from __future__ import annotations

from collections.abc import Iterator

from bench.beside.traffic.arrivals import FEWEST_GAPS, Described
from bench.beside.traffic.log import Log
from bench.errors import count_text, shown_share, three_digits

_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))
_ROLES = {"arrival": "arrivals", "prompt": "prompt tokens", "output": "answer tokens"}
_FAR = 1.5  # times as dispersed in long windows as the gaps' shape says: the rate changes
_UNLIKE = 0.1  # distance of gaps from their fit that deserves a word
_MANY = 0.1  # share of rows left out that deserves a word
_RELATED = 0.1  # rank correlation that deserves one


def _seconds(value: float) -> str:
    unit, size = next((each for each in _UNITS if value >= 2 * each[1]), ("s", 1))
    return f"{value / size:.3g} {unit}"


def read_lines(log: Log) -> Iterator[str]:
    """What was read, from which columns; what was left out, and what that means."""
    columns = ", ".join(f"{what} from {log.columns[role]}" for role, what in _ROLES.items() if role in log.columns)
    yield f"{log.path}: {count_text(f'{log.rows:,}', 'row')}; {columns}."
    for each in log.left_out:
        yield f"Left out: {count_text(f'{each.count:,}', 'row')} with {each.why} (first {each.place}: {each.value})."
    if (gone := sum(each.count for each in log.left_out)) > _MANY * log.rows:
        yield f"What follows covers the other {shown_share(1 - gone / log.rows)}: more requests came than it says."


def arrival_rows(found: Described) -> list[list[str]]:
    """How requests arrive, one row each."""
    rate = "not known: all came in one instant" if found.rate is None else f"{three_digits(found.rate)} requests/s"
    rows = [["requests", f"{found.requests:,}"], ["span", _seconds(found.span_s)], ["mean rate", rate]]
    rows += [[f"peak rate in {_seconds(each.seconds)}", f"{three_digits(each.peak)} requests/s"] for each in found.windows]
    shape = found.burstiness
    if shape is None:
        said = "not known: too few requests, or too coarse a clock"
    elif shape.equal:
        said = "equal gaps: no shape"
    else:
        poisson = "" if shape.poisson else "not "
        coarse = "; from counts, as the clock is coarse" if shape.distance is None else f"; KS distance {shape.distance:.3f}"
        said = f"{shape.shape:.3g} ({shape.low:.3g} to {shape.high:.3g} at 95 %: Poisson is {poisson}within){coarse}"
    rows.append(["burstiness (shape of gamma gaps)", said])
    for each in found.windows:
        if each.dispersion is not None:
            rows.append([f"dispersion in {_seconds(each.seconds)} (1: Poisson)", f"{each.dispersion:.3g}"])
    return rows


def length_rows(found: Described) -> list[list[str]]:
    """Percentiles of both lengths, with a head."""
    names, both = list(found.prompts), (("prompts", found.prompts), ("answers", found.outputs))
    rows = [[what, *(three_digits(of[name]) for name in names)] for what, of in both]
    return [["tokens", *(name.upper() if name[0] == "p" else name for name in names)], *rows]


def unlike(found: Described, scale: float) -> Iterator[str]:
    """What the written workloads do not have of the log."""
    if scale != 1:
        yield (
            f"The replay is {scale:g} times as fast, in the same order: gaps keep their burstiness, and what lasted a minute lasts "
            f"{60 / scale:.3g} s."
        )
    if found.burstiness is None or found.rate is None:
        yield (
            f"Nothing that resembles the log was written: it has {count_text(found.requests, 'request')} in {_seconds(found.span_s)}, "
            f"and a shape of gaps takes {FEWEST_GAPS + 1} or more, over many ticks of the log's clock."
        )
        return
    distance = found.burstiness.distance
    if distance is not None and distance > _UNLIKE:
        yield f"The log's gaps do not follow a gamma distribution (KS distance {distance:.2f}): bursts of the two differ."
    alone = 1 / found.burstiness.shape
    far = next((each for each in found.windows if (each.dispersion or 0) > _FAR * max(1.0, alone)), None)
    if far:
        yield (
            f"The resembling workload has one rate throughout. The log's changes: its dispersion in {_seconds(far.seconds)} is "
            f"{far.dispersion:.3g}, and such gaps alone make {alone:.2g}. Take the replay where bursts or hours matter."
        )
    if found.correlation is not None and abs(found.correlation) >= _RELATED:
        yield f"It draws prompt and answer lengths independently; in the log their rank correlation is {found.correlation:+.2f}."
