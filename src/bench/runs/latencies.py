"""The latencies of a request: what an SLO may limit, and what a run's summary has percentiles of. One more is a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PERCENTILES = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True)
class Latency:
    """One latency, in seconds; a table of requests has it as its name with `_s`.

    Attributes:
        title: in tables and sentences. of: its seconds from the columns of a table of requests (a function from a name to an
            expression); None where the client stamped it. fewest_tokens: completion tokens from which on a request has it, where
            some came after the first moment; 0 if that does not matter. replayed: whether a replay of a server's scheduler has it.
    """

    title: str
    of: Callable[[Callable[[str], Any]], Any] | None = None
    fewest_tokens: int = 0
    replayed: bool = True


LATENCIES: Mapping[str, Latency] = {
    "ttft": Latency("TTFT"),
    # Time to first output token, as AIPerf names it: that of the first token that is not reasoning.
    "ttfo": Latency("TTFO", lambda column: column("first_output_s") - column("sent_s"), replayed=False),
    # As vLLM's benchmark: the latency without the first token. GuideLLM's TPOT includes that token and is not comparable. Where the
    # first moment brought several tokens, or some were never streamed, those did not arrive in that time.
    "tpot": Latency(
        "TPOT", lambda column: (column("e2e_s") - column("ttft_s")) / (column("streamed_tokens") - column("first_tokens")), 2
    ),
    "e2e": Latency("E2E"),
}
