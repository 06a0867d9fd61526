"""What a result file of another tool says of its runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bench.errors import shown
from bench.runs.request import Outcome, RequestRecord

# longest gap between pieces that came at one moment (s); derived: as `tokens_per_arrival` of docs/reference/metrics.md
_TOGETHER_S = 0.0002
_STATUS = {status.phrase.lower(): status.value for status in HTTPStatus}
_NOT_SAID = "after error prompt_asked output_asked prompt_tokens completion_tokens cached_tokens scheduled_s headers_s"
Load = tuple[str, str, float]


def typed(value: Any, kind: Any, where: str) -> Any:
    """The value, if it is of a type. Args: where: its place in the file, for faults."""
    if not isinstance(value, kind) or isinstance(value, bool) or value != value:  # noqa: PLR0124 - NaN
        raise ValueError(f"{where} is {shown(value)}, which is of another type")
    return value


class Part:
    """An object of a result file. Its values are read by their path, such as `metrics.ttft.mean`; what is missing is None, and what is
    of another type than is asked for a ValueError.
    """

    def __init__(self, content: Any, where: str = "it") -> None:
        """Args: where: its place in the file, for faults."""
        self.content, self.where = typed(content, Mapping, where), where

    def get(self, path: str, kind: Any = int | float, *, need: bool = False) -> Any:
        """A value of a type, a number if no other is named. Args: need: whether a missing one is a ValueError."""
        value: Any = self.content
        for key in path.split("."):
            value = typed(value, Mapping, f"{self.where}, {path}").get(key)
            if value is None:
                if need:
                    raise ValueError(f"{self.where}, {path} is missing")
                return None
        return typed(value, kind, f"{self.where}, {path}")

    def part(self, path: str) -> Part:
        """An object in it; an empty one where there is none."""
        return Part(self.get(path, Mapping) or {}, f"{self.where}, {path}")

    def values(self, path: str, kind: Any = int | float) -> list[Any]:
        """The values of a list, each of a type; none where there is no list."""
        return [typed(each, kind, f"{self.where}, {path}[{i}]") for i, each in enumerate(self.get(path, list) or [])]

    def parts(self, path: str) -> list[Part]:
        """The objects of a list."""
        return [Part(each, f"{self.where}, {path}[{i}]") for i, each in enumerate(self.get(path, list, need=True))]


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """A run of another tool, as its result file has it.

    Attributes:
        version: of the tool; None where the file does not say. model: its name. started: ISO moment; None if not known.
        endpoint: a name in `bench.workloads.endpoints`. load: arrival, axis and level, in words of a workload.
        requests: one record a request, of warm-up none. stamps: whether each piece of an answer has its moment.
    """

    version: str | None = None
    model: str
    started: str | None = None
    endpoint: str = "completions"
    stream: bool = True
    load: Load
    requests: Sequence[RequestRecord]
    stamps: bool = True


@dataclass(frozen=True, kw_only=True)
class Format:
    """A tool's result files.

    Attributes:
        name: in names of folders. title: the tool's. file: which file is read, and how the tool is asked for it. versions: whose files
            were read. is_result: whether the tool wrote a JSON value. read: the runs in a file, of whose JSON value; ValueError where
            the value is not as expected.
    """

    name: str
    title: str
    file: str
    versions: str
    is_result: Callable[[Any], bool]
    read: Callable[[Path, Any], list[PeerRun]]


def iso(seconds: float) -> str:
    """A moment, counted from 1970, as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def all_there(records: int, counted: float | None) -> None:
    """Refuse a list of requests beside a count of others."""
    if counted is not None and records != counted:
        raise ValueError(f"it has {records} requests, and counts {counted:.0f}")


def no_load(what: str, value: object) -> ValueError:
    """The refusal of a load that Saturate has no word for."""
    return ValueError(f"{what} is {value!r}: such a load cannot be read")


def held(concurrency: float, requests: float) -> Load:
    """The load of so many requests at a time: a burst where all of them are sent at once."""
    return ("closed" if concurrency < requests else "burst"), "concurrency", float(min(concurrency, requests))


def failure(said: str, status: int | None = None) -> dict[str, Any]:
    """What became of a request that failed, by what a tool says of it, and its HTTP status."""
    status = status or _STATUS.get(said.strip().lower())
    return {"outcome": "http_error" if status else "stream_error", "error": said or None, "status": status}


def request(
    index: int,
    sent_s: float,
    end_s: float | None = None,
    *,
    times: Sequence[float] = (),
    ends: tuple[float | None, float | None] = (None, None),
    chunks: int | None = None,
    outcome: Outcome = "ok",
    status: int | None = 200,
    **known: Any,
) -> RequestRecord:
    """A request's record. What was asked for is not known: lengths are those that were counted.

    Args:
        times: of pieces that carried tokens. ends: of the first and the last of them, where single ones are not known, and chunks: how
            many there were. known: further fields.
    """
    first = times[0] if times else ends[0]
    last = ends[1] if ends[1] is not None or not times else times[-1]
    pieces, streamed = len(times) or chunks or 0, None if first is None else known.get("completion_tokens")
    gaps = [b - a for a, b in itertools.pairwise(times)]
    at_first = 1.0 + sum(1 for _ in itertools.takewhile(lambda gap: gap <= _TOGETHER_S, gaps))
    return RequestRecord(
        index=index,
        outcome=outcome,
        status=status,
        sent_s=sent_s,
        first_byte_s=None,
        first_output_s=None,
        first_token_s=first,
        last_token_s=last,
        end_s=end_s,
        ttft_s=None if first is None else first - sent_s,
        e2e_s=None if last is None else last - sent_s,
        token_times_s=list(times),
        streamed_tokens=streamed,
        streamed_least=min(pieces, streamed) if streamed and pieces else streamed,
        first_tokens=min(at_first * max(1.0, streamed / pieces), float(streamed)) if streamed and pieces else at_first,
        arrivals=1 + sum(gap > _TOGETHER_S for gap in gaps) if times else 0,
        **(dict.fromkeys(_NOT_SAID.split()) | known),  # type: ignore[arg-type] # each field that has no default
    )
