"""How a report's numbers are made, in short."""

from __future__ import annotations

from bench import __version__
from bench.report.blocks import Section, Terms, Text

_HOW = (
    "Each run sends one workload at one level of load to a server that was idle before, and records every request at the "
    "client and every Prometheus sample of the server on one clock. Lengths are exact and arrivals follow from a seed, so "
    "deployments that are compared get the same requests."
)
_TERMS = (
    (
        "TTFT",
        "Time to first token: from the moment at which a request was handed to a connection that stood already, to the first "
        "chunk that carries a token. Null without streaming.",
    ),
    ("TPOT", "Time per output token after the first: (E2E − TTFT) ÷ (output tokens − 1). E2E: from sent to the last token."),
    (
        "Throughput",
        "Output tokens of the requests that succeeded ÷ the time from the first request sent to the last token. Its peak is "
        "the most in any one second.",
    ),
    (
        "Steady state",
        "Throughput and latencies of a continuous load are those of its steady window, between ramp and drain; of a burst, "
        "those of the whole run. A load under which the requests in flight keep growing is not sustained.",
    ),
    (
        "Percentiles",
        "By nearest rank, over the requests that succeeded. A P99 with “≤” has an upper bound at 99 % confidence, which takes "
        "662 requests; one with “~” is an estimate without.",
    ),
    (
        "Intervals",
        "Of 95 % confidence, by Student's t over repeats or over levels. Repeats share a server's session: no interval "
        "includes what another start of the server would show, unless the baseline was measured in several sessions.",
    ),
    (
        "KV cache full",
        "A request was preempted, or usage reached 99 %, or requests waited while what was free was less than a prompt, which "
        "an engine admits whole.",
    ),
)


def section() -> Section:
    where = "Every definition with its formula, its edges and how other tools define it: docs/reference/metrics.md of Saturate"
    return Section("methods", "Methods", [Text(_HOW), Terms(_TERMS), Text(f"{where} {__version__}.")])
