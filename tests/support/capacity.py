"""Curves with planted latencies, misses and failures, and the operating point that they have."""

from bench.findings.capacity.points import operating_points
from bench.study.slo import parse_slo
from tests.support.planted import frame, steady_row

TTFT = [parse_slo("ttft_p99=2s")]


def point(rows, slos=TTFT):
    """The operating point of one curve. Args: slos: as parsed, or one as text."""
    return operating_points(frame(rows), [parse_slo(slos)] if isinstance(slos, str) else slos).row(0, named=True)


def missed_by(row):
    return [miss["by"] for miss in row["missed"]]


def curve(summary, ttft, *, levels=(1, 2, 4, 8), **more):
    """A closed loop with one TTFT a level; other columns are lists, one value a level."""
    return [
        steady_row(summary, level, ttft=ttft[i], **{key: values[i] for key, values in more.items()})
        for i, level in enumerate(levels)
    ]


def by_level(summary, what, counts, row=steady_row, **more):
    """A curve of which so many requests of each level are `slow` or `failed`."""
    return [row(summary, level, **{what: count, **more}) for level, count in counts.items()]


def again(rows, **more):
    """The rows as repeats of one level."""
    return [{**row, "repeat": i, "run": f"r{row['level']:g}-{i}", **more} for i, row in enumerate(rows, start=1)]
