"""The latencies of a request, which an SLO may limit and a run's summary has percentiles of, and the classes of requests. One more
latency is a row here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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


_CLASS = "class_"  # what the columns of a class begin with
_STEADY = "steady_"  # what those of a steady window do


def class_column(request_class: str | None, column: str) -> str:
    """The summary's column of a class for one of all requests, such as `class_chat_ttft_p99_s` or `steady_class_chat_ttft_p99_s`;
    without a class that column itself.
    """
    if request_class is None:
        return column
    steady = _STEADY if column.startswith(_STEADY) else ""
    return f"{steady}{_CLASS}{request_class}_{column.removeprefix(steady)}"


def class_names(classes: str | None) -> list[str]:
    """The classes of a run, in the configuration's order. Args: classes: the summary's column of that name."""
    return list(json.loads(classes)) if classes else []


def served_alike(classes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether classes differ in nothing that a replay of a server does not have: a model, a priority, or a beginning that their prompts
    share. Args: classes: as a configuration has them, or with what is their workload's.
    """
    kinds = {(each.get("model"), (each.get("body") or {}).get("priority")) for each in classes.values()}
    return len(kinds) < 2 and not any(each.get("cache") in ("shared", "repeated") for each in classes.values())


def parts_of(definition: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What each class of a run is, as its record has it; the run itself, where it has no classes."""
    classes = definition.get("classes")
    for each in classes.values() if classes else ({},):
        gone = ("cache", "shared_prefix") if "prompts" in each else ()  # which belong to the workload's prompts
        yield {**{key: value for key, value in definition.items() if key not in gone}, **each}
