"""Where a report's numbers are defined."""

from __future__ import annotations

from bench import __version__
from bench.report.blocks import Section, Terms, Text

_TERMS = (
    ("TTFT", "from a request's sending to the first chunk with a token. TPOT: (E2E − TTFT) ÷ (output tokens − 1)."),
    (
        "Sustained",
        "is judged in the steady window of continuous loads (up to C_max, the highest such level), of bursts as a whole.",
    ),
    ("95 % intervals", "are of one start of a server, unless the baseline was measured in several sessions."),
)


def section() -> Section:
    where = "Every definition with its formula and its edges: docs/reference/metrics.md of Saturate"
    return Section("methods", "Methods", [Terms(_TERMS), Text(f"{where} {__version__}.")])
