"""What a result file of another tool says of its runs, and how the tool defines what it reports."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import shown
from bench.runs.request import Outcome, RequestRecord
from bench.runs.request_table import REQUEST_SCHEMA, measured

# longest gap between pieces that came at one moment (s); derived: as `tokens_per_arrival` of docs/reference/metrics.md
_TOGETHER_S = 0.0002
_MOST = 1e12  # of a number: beyond it nothing was measured
_NOT_NEGATIVE = ("sent_s", "ttft_s", "e2e_s", "prompt_tokens", "completion_tokens", "cached_tokens")
_TIMEOUT = re.compile(r"time[d_ -]?out", re.IGNORECASE)
_DISCONNECT = re.compile(
    r"connect|reset by peer|broken pipe|ClientOSError", re.IGNORECASE
)  # the last is aiohttp's of a lost connection
_STATUS = {status.phrase.lower(): status.value for status in HTTPStatus}


@dataclass(frozen=True)
class Definition:
    """How a tool defines a metric where Saturate defines it otherwise.

    Attributes:
        metric: as tables name it. text: the tool's definition. source: file of the tool that has it.
    """

    metric: str
    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """A run of another tool, as its result file has it.

    Attributes:
        version: of the tool; None where the file does not say. model: its name. started: ISO moment; None if not known.
        endpoint: a name in `bench.workloads.endpoints`. arrival, axis, level: the load, in words of a workload.
        requests: one record a request, of warm-up none; empty where the file has only aggregates.
        reported: what the tool itself computed, by our column and in our unit, by the tool's own definitions.
        lacks: why the records have no stamps of single chunks; empty where they have.
    """

    version: str | None
    model: str
    started: str | None = None
    endpoint: str = "completions"
    stream: bool = True
    arrival: str
    axis: str
    level: float
    requests: Sequence[RequestRecord] = ()
    reported: Mapping[str, float] = field(default_factory=dict)
    lacks: str = ""

    def __post_init__(self) -> None:
        """Refuse what was not measured.

        Raises:
            ValueError: it names the request, or the column, and its value.
        """
        numbers = {"level": self.level, **self.reported}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
                raise ValueError(f"{name} is {shown(value)}")
        if not self.level:
            raise ValueError("the load is 0")
        for each in self.requests:
            for name in _NOT_NEGATIVE:
                value = getattr(each, name)
                if each.sent_s is None or (value is not None and not 0 <= value < _MOST):
                    raise ValueError(f"request {each.index}: {name} is {shown(value)}")
        _ = self.table

    @cached_property
    def table(self) -> pl.DataFrame:
        """The requests as a table."""
        return measured(pl.DataFrame([vars(each) for each in self.requests], schema=REQUEST_SCHEMA))


@dataclass(frozen=True, kw_only=True)
class Format:
    """A tool's result files.

    Attributes:
        name: in names of folders. title: the tool's. file: which file is read, and how the tool is asked for it.
        versions: whose files were read. definitions: what the tool defines otherwise.
        is_result: whether the tool wrote a JSON value, in any version. is_part: whether it is another file of the same run.
        version: of the tool that wrote the value; None where it does not say.
        read: the runs in a file; its JSON value is given too. It raises ValueError where the value is not as expected.
    """

    name: str
    title: str
    file: str
    versions: str
    definitions: tuple[Definition, ...]
    is_result: Callable[[Any], bool]
    is_part: Callable[[Any], bool] = lambda _: False
    version: Callable[[Any], str | None] = lambda _: None
    read: Callable[[Path, Any], list[PeerRun]]


def seconds(values: Mapping[str, Any], scale: float, columns: Mapping[str, str]) -> dict[str, float]:
    """What a tool reports of times, by our column (s). Args: scale: of its unit. columns: our column by the tool's key.

    Raises:
        ValueError: a value is no number.
    """
    return {ours: scale * number(values[key], key) for key, ours in columns.items() if values.get(key) is not None}


def number(value: Any, key: str) -> float:
    """`value`, if it is a number.

    Raises:
        ValueError: it is not a number, such as one that is written as text.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is {shown(value)}, and no number")
    return value


def all_there(where: str, records: int, by: str, counted: int) -> None:
    """Refuse a list of requests beside a count of more, or of fewer.

    Args:
        where: what holds the records. by: what counts them.

    Raises:
        ValueError: it says how many are missing.
    """
    if records != counted:
        odd = f"{counted - records} are missing" if records < counted else f"{records - counted} are not counted"
        raise ValueError(f"{where} has {records} requests, and {by} {counted}: {odd}")


def held(concurrency: int, requests: int) -> tuple[str, str, float]:
    """Arrival, axis and level of a load of so many requests at a time: a burst where all of them are sent at once."""
    return (
        ("closed", "concurrency", float(concurrency)) if concurrency < requests else ("burst", "concurrency", float(requests))
    )


def failure(said: str, status: int | None = None) -> tuple[Outcome, int | None]:
    """What became of a request that failed, by what a tool says of it, and its HTTP status."""
    status = status or _STATUS.get(said.strip().lower())
    if status:
        return "http_error", status
    if _TIMEOUT.search(said):
        return "timeout", None
    return ("disconnect" if _DISCONNECT.search(said) else "stream_error"), None


def request(
    index: int,
    *,
    sent_s: float | None,
    first_token_s: float | None = None,
    last_token_s: float | None = None,
    end_s: float | None = None,
    token_times_s: Sequence[float] = (),
    chunks: int | None = None,
    prompt_tokens: int | None = None,
    completion_tokens: int | None = None,
    cached_tokens: int | None = None,
    scheduled_s: float | None = None,
    outcome: Outcome = "ok",
    error: str | None = None,
    status: int | None = None,
) -> RequestRecord:
    """A request's record. What was asked for is not known: lengths are those that were counted.

    Args:
        chunks: pieces that carried tokens, where single stamps are not known.
    """
    count = len(token_times_s) or chunks or 0
    streamed = completion_tokens if first_token_s is not None else None
    together = itertools.takewhile(lambda gap: gap <= _TOGETHER_S, (b - a for a, b in itertools.pairwise(token_times_s)))
    at_first = float(1 + sum(1 for _ in together))
    if streamed and count:
        at_first = min(at_first * max(1.0, streamed / count), float(streamed))
    return RequestRecord(
        index=index,
        after=None,
        outcome=outcome,
        error=error,
        status=status if outcome != "ok" else 200,
        prompt_asked=None,
        output_asked=None,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=cached_tokens,
        scheduled_s=scheduled_s,
        sent_s=sent_s,
        headers_s=None,
        first_byte_s=None,
        first_token_s=first_token_s,
        first_output_s=None,
        last_token_s=last_token_s,
        end_s=end_s,
        ttft_s=None if first_token_s is None or sent_s is None else first_token_s - sent_s,
        e2e_s=None if last_token_s is None or sent_s is None else last_token_s - sent_s,
        token_times_s=list(token_times_s),
        streamed_tokens=streamed,
        streamed_least=min(count, streamed) if streamed and count else streamed,
        first_tokens=at_first,
        arrivals=1 + sum(b - a > _TOGETHER_S for a, b in itertools.pairwise(token_times_s)) if token_times_s else 0,
    )
