"""The traffic of an access log in words."""

from __future__ import annotations

from collections.abc import Iterator

from bench.beside.traffic.arrivals import Described
from bench.beside.traffic.log import Log
from bench.errors import count_text, shown_share, three_digits

_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))
_ROLES = {"arrival": "arrivals", "prompt": "prompt tokens", "output": "answer tokens"}
_MANY = 0.1  # share of rows left out that deserves a word


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
        said = f"{shape.shape:.3g} ({shape.low:.3g} to {shape.high:.3g} at 95 %: Poisson is {poisson}within)"
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
