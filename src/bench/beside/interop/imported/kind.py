"""What a result file of another tool says of its runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_MOST = 1e15  # of a number: beyond it nothing was measured
_NOT_NEGATIVE = ("sent_s", "ttft_s", "e2e_s", "prompt_tokens", "completion_tokens", "cached_tokens")
_TIMEOUT = re.compile(r"time[d_ -]?out", re.IGNORECASE)
# The last is aiohttp's of a lost connection.
_DISCONNECT = re.compile(r"connect|reset by peer|broken pipe|ClientOSError", re.IGNORECASE)
_STATUS = {status.phrase.lower(): status.value for status in HTTPStatus}
_PERCENTILES = {"median": "p50"} | {f"p{p}": f"p{p}" for p in (50, 90, 95, 99)}
Load = tuple[str, str, float]
_NOT_SAID = (
    *("after", "error", "prompt_asked", "output_asked", "prompt_tokens", "completion_tokens", "cached_tokens", "scheduled_s"),
    *("headers_s", "first_byte_s", "first_output_s"),
)


class Part:
    """An object of a result file. What a key lacks is None; what is of another type than is asked for is a ValueError."""

    def __init__(self, content: Any, where: str = "") -> None:
        """Args: where: its place in the file, for faults."""
        self.content = self.typed(content, Mapping, where or "it", "object")
        self.where = where

    @staticmethod
    def typed(value: Any, kind: Any, where: str, name: str) -> Any:
        """The value, if it is of a type. Args: name: of the type."""
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)) or value != value:  # noqa: PLR0124 - NaN
            raise ValueError(f"{where} is {shown(value)}, and no {name}")
        return value

    def _at(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str, kind: Any, name: str) -> Any:
        """A value of a type. Args: name: of the type."""
        value = self.content.get(key)
        return None if value is None else self.typed(value, kind, self._at(key), name)

    def need(self, key: str, found: Any) -> Any:
        """What was found of a key, which has to be there."""
        if found is None:
            raise ValueError(f"{self._at(key)} is missing")
        return found

    def number(self, key: str) -> float | None:
        found: float | None = self.get(key, int | float, "number")
        return found

    def count(self, key: str) -> int | None:
        found: int | None = self.get(key, int, "whole number")
        return found

    def text(self, key: str) -> str | None:
        found: str | None = self.get(key, str, "text")
        return found

    def part(self, key: str) -> Part:
        """An object in it; an empty one where there is none."""
        value = self.content.get(key)
        return Part({} if value is None else value, self._at(key))

    def parts(self, key: str) -> list[Part]:
        """The objects of a list."""
        return [Part(each, f"{self._at(key)}[{i}]") for i, each in enumerate(self.get(key, list, "list") or [])]

    def values(self, key: str, kind: Any = int | float, name: str = "number") -> list[Any] | None:
        """The values of a list, each of a type."""
        found = self.get(key, list, "list")
        return found and [self.typed(each, kind, f"{self._at(key)}[{i}]", name) for i, each in enumerate(found)]

    def times(self, ours: str, scale: float = 1.0, form: str = "{}", mean: str = "mean") -> Iterator[tuple[str, float]]:
        """Mean and percentiles of a latency, as our columns (s). Args: form: of a key. mean: the key of the mean."""
        for key, name in {mean: "mean", **_PERCENTILES}.items():
            if (value := self.number(form.format(key))) is not None:
                yield f"{ours}_{name}_s", scale * value

    def known(self, keys: Mapping[str, str]) -> Iterator[tuple[str, float]]:
        """Numbers by our columns. Args: keys: our column by the file's key."""
        for key, ours in keys.items():
            if (value := self.number(key)) is not None:
                yield ours, value


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """A run of another tool, as its result file has it.

    Attributes:
        version: of the tool; None where the file does not say. model: its name. started: ISO moment; None if not known.
        endpoint: a name in `bench.workloads.endpoints`. load: arrival, axis and level, in words of a workload.
        requests: one record a request, of warm-up none; empty where the file has only aggregates.
        reported: what the tool itself computed, by our column and in our unit, by the tool's own definitions.
        lacks: why the records have no stamps of single chunks; empty where they have.
    """

    version: str | None = None
    model: str
    started: str | None = None
    endpoint: str = "completions"
    stream: bool = True
    load: Load
    requests: Sequence[RequestRecord] = ()
    reported: Mapping[str, float] = field(default_factory=dict)
    lacks: str = ""

    def __post_init__(self) -> None:
        """Refuse what was not measured.

        Raises:
            ValueError: it names the request, or the column, and its value.
        """
        for name, value in {"level": self.load[2], **self.reported}.items():
            if not 0 <= value < _MOST:
                raise ValueError(f"{name} is {shown(value)}")
        if not self.load[2]:
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
        versions: whose files were read. is_result: whether the tool wrote a JSON value, in any version. is_part: whether it is another
            file of the same run. version: of the tool that wrote the value; None where it does not say.
        read: the runs in a file; its JSON value is given too. It raises ValueError where the value is not as expected.
    """

    name: str
    title: str
    file: str
    versions: str
    is_result: Callable[[Any], bool]
    is_part: Callable[[Any], bool] = lambda _: False
    version: Callable[[Any], str | None] = lambda _: None
    read: Callable[[Path, Any], list[PeerRun]]


def all_there(where: str, records: int, by: str, counted: float) -> None:
    """Refuse a list of requests beside a count of more, or of fewer. Args: where: what holds the records. by: what counts them."""
    if records != counted:
        odd = f"{counted - records:.0f} are missing" if records < counted else f"{records - counted:.0f} are not counted"
        raise ValueError(f"{where} has {records} requests, and {by} {counted:.0f}: {odd}")


def no_load(what: str, value: object) -> ValueError:
    """The refusal of a load that Saturate has no word for."""
    return ValueError(f"{what} is {value!r}: such a load is no load that is read")


def held(concurrency: float, requests: float) -> Load:
    """The load of so many requests at a time: a burst where all of them are sent at once."""
    return ("closed" if concurrency < requests else "burst"), "concurrency", float(min(concurrency, requests))


def failure(said: str, status: int | None = None) -> dict[str, Any]:
    """What became of a request that failed, by what a tool says of it, and its HTTP status."""
    status = status or _STATUS.get(said.strip().lower())
    lost = "disconnect" if _DISCONNECT.search(said) else "stream_error"
    outcome = "http_error" if status else "timeout" if _TIMEOUT.search(said) else lost
    return {"outcome": outcome, "error": said or None, "status": status}


def request(
    index: int,
    sent_s: float | None,
    end_s: float | None = None,
    *,
    times: Sequence[float] = (),
    ends: tuple[float | None, float | None] = (None, None),
    chunks: int | None = None,
    outcome: Outcome = "ok",
    status: int | None = None,
    **known: Any,
) -> RequestRecord:
    """A request's record. What was asked for is not known: lengths are those that were counted.

    Args:
        times: of pieces that carried tokens. ends: of the first and the last of them, where single ones are not known, and chunks: how
            many there were. known: further fields.
    """
    first, last = (times[0], times[-1]) if times else (ends[0], ends[1])
    last = ends[1] if ends[1] is not None else last
    count, completion = len(times) or chunks or 0, known.get("completion_tokens")
    streamed = completion if first is not None else None
    gaps = [b - a for a, b in itertools.pairwise(times)]
    at_first = float(1 + sum(1 for _ in itertools.takewhile(lambda gap: gap <= _TOGETHER_S, gaps)))
    if streamed and count:
        at_first = min(at_first * max(1.0, streamed / count), float(streamed))
    return RequestRecord(
        index=index,
        outcome=outcome,
        status=status if outcome != "ok" else 200,
        sent_s=sent_s,
        first_token_s=first,
        last_token_s=last,
        end_s=end_s,
        ttft_s=None if first is None or sent_s is None else first - sent_s,
        e2e_s=None if last is None or sent_s is None else last - sent_s,
        token_times_s=list(times),
        streamed_tokens=streamed,
        streamed_least=min(count, streamed) if streamed and count else streamed,
        first_tokens=at_first,
        arrivals=1 + sum(gap > _TOGETHER_S for gap in gaps) if times else 0,
        **(dict.fromkeys(_NOT_SAID) | known),  # type: ignore[arg-type] # each field that has no default
    )
