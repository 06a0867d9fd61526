"""What a result file of another tool says of its runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bench.errors import shown
from bench.runs.request import RequestRecord

# longest gap between pieces that came at one moment (s); derived: as `tokens_per_arrival` of docs/reference/metrics.md
_TOGETHER_S = 0.0002
_STATUS = {status.phrase.lower(): status.value for status in HTTPStatus}
_NOT_SAID = "after prompt_asked output_asked headers_s first_byte_s first_output_s"
Load = tuple[str, str, float]


class Part:
    """An object of a result file. Its values are read by their path, such as `metrics.ttft.mean`; what is missing is None, and what is
    of another type than is asked for a ValueError.
    """

    def __init__(self, content: Any, where: str = "it") -> None:
        """Args: where: its place in the file, for faults."""
        self.content, self.where = _typed(content, Mapping, where), where

    def get(self, path: str, kind: Any = int | float, *, need: bool = False) -> Any:
        """A value of a type, a number if no other is named. Args: need: whether a missing one is a ValueError."""
        value: Any = self.content
        for key in path.split("."):
            value = _typed(value, Mapping, f"{self.where}, {path}").get(key)
            if value is None:
                if need:
                    raise ValueError(f"{self.where}, {path} is missing")
                return None
        return _typed(value, kind, f"{self.where}, {path}")

    def part(self, path: str) -> Part:
        """An object in it; an empty one where there is none."""
        return Part(self.get(path, Mapping) or {}, f"{self.where}, {path}")

    def values(self, path: str, kind: Any = int | float) -> list[Any]:
        """The values of a list, each of a type; none where there is no list."""
        return [_typed(each, kind, f"{self.where}, {path}[{i}]") for i, each in enumerate(self.get(path, list) or [])]

    def parts(self, path: str) -> list[Part]:
        """The objects of a list."""
        return [Part(each, f"{self.where}, {path}[{i}]") for i, each in enumerate(self.get(path, list, need=True))]


def _typed(value: Any, kind: Any, where: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool) or value != value:  # noqa: PLR0124 - NaN
        raise ValueError(f"{where} is {shown(value)}, which is of another type")
    return value


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A request, as a tool recorded it. Moments are seconds of any one clock.

    Attributes:
        start, end: when it was sent, and when its answer ended. due: when it was to be sent. times: of pieces that carried tokens.
        first, last: of the first and the last of them, and pieces: how many there were, where `times` does not say it. prompt, output,
            cached: tokens. failed: what the tool says of its failure; None of one that was answered. status: of HTTP.
    """

    start: float
    end: float | None = None
    due: float | None = None
    times: Sequence[float] = ()
    first: float | None = None
    last: float | None = None
    pieces: int | None = None
    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    failed: str | None = None
    status: int | None = None


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """A run of another tool, as its result file has it.

    Attributes:
        version: of the tool; None where the file does not say. model: its name. started: s since 1970; None if not known.
        endpoint: a name in `bench.workloads.endpoints`. load: arrival, axis and level, in words of a workload.
        sent: its requests, of warm-up none. stamps: whether each piece of an answer has its moment.
    """

    version: str | None = None
    model: str
    started: float | None = None
    endpoint: str = "completions"
    stream: bool = True
    load: Load
    sent: Sequence[Sent]
    stamps: bool = True

    @property
    def requests(self) -> list[RequestRecord]:
        """A record a request, in the order of sending."""
        sent = sorted(self.sent, key=lambda each: each.start)
        return [_record(i, each, sent[0].start) for i, each in enumerate(sent)]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A tool's result files.

    Attributes:
        name: in names of folders. title: the tool's. file: which file is read, and how the tool is asked for it. versions: whose files
            were read. keys: by which the JSON value of a file is known. listed: it is a list, whose first item has them. read: the
            runs in a file, of whose JSON value; ValueError where the value is not as expected.
    """

    name: str
    title: str
    file: str
    versions: str
    keys: frozenset[str]
    listed: bool = False
    read: Callable[[Path, Any], Iterable[PeerRun]]

    def wrote(self, content: Any) -> bool:
        """Whether the tool wrote a JSON value."""
        if self.listed:
            content = content[0] if isinstance(content, list) and content else None
        return isinstance(content, dict) and self.keys <= content.keys()


def all_there(records: int, counted: float) -> None:
    """Refuse a list of requests beside a count of others."""
    if records != counted:
        raise ValueError(f"it has {records} requests, and counts {counted:.0f}")


def no_load(what: str, value: object) -> ValueError:
    """The refusal of a load that Saturate has no word for."""
    return ValueError(f"{what} is {value!r}: such a load cannot be read")


def held(concurrency: float, requests: float) -> Load:
    """The load of so many requests at a time: a burst where all of them are sent at once."""
    return ("closed" if concurrency < requests else "burst"), "concurrency", float(min(concurrency, requests))


def _record(index: int, sent: Sent, zero: float) -> RequestRecord:
    """What was asked for is not known: lengths are those that were counted."""

    def since(moment: float | None, start: float = zero) -> float | None:
        return None if moment is None else moment - start

    times, failed = sent.times, sent.failed
    first = times[0] if times else sent.first
    last = times[-1] if times and sent.last is None else sent.last
    status = (sent.status or _STATUS.get(failed.strip().lower())) if failed is not None else 200
    pieces, streamed = len(times) or sent.pieces or 0, None if first is None else sent.output
    gaps = [b - a for a, b in itertools.pairwise(times)]
    at_first = 1.0 + sum(1 for _ in itertools.takewhile(lambda gap: gap <= _TOGETHER_S, gaps))
    return RequestRecord(
        index=index,
        outcome="ok" if failed is None else "http_error" if status else "stream_error",
        error=failed or None,
        status=status,
        prompt_tokens=sent.prompt,
        completion_tokens=sent.output,
        cached_tokens=sent.cached,
        scheduled_s=since(sent.due),
        sent_s=sent.start - zero,
        first_token_s=since(first),
        last_token_s=since(last),
        end_s=since(sent.end),
        ttft_s=since(first, sent.start),
        e2e_s=since(last, sent.start),
        token_times_s=[moment - zero for moment in times],
        streamed_tokens=streamed,
        streamed_least=min(pieces, streamed) if streamed and pieces else streamed,
        first_tokens=min(at_first * max(1.0, streamed / pieces), float(streamed)) if streamed and pieces else at_first,
        arrivals=1 + sum(gap > _TOGETHER_S for gap in gaps) if times else 0,
        **dict.fromkeys(_NOT_SAID.split()),  # type: ignore[arg-type] # fields that have no default
    )
