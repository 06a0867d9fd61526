"""Weka's traces of agents' sessions (AgentX), as requests of our own format: one session a line, subagents inside it.

Source: the records of semianalysisai/cc-traces-weka-042026 and -062126, as AIPerf (`weka_trace`) and inference-perf (`WekaTrace`) read
them: `t` is a request's start and `api_time` its duration, in seconds since the session's start; `in` and `out` are tokens; `hash_ids`
name the whole blocks of its prompt, and a local scope is the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench.errors import BenchError
from bench.table_file import Row


class _Call(NamedTuple):
    """One request of a session: where it stands, its start and end (s since the session's start), and what is written of it."""

    place: str
    start: float
    end: float
    values: Mapping[str, Any]


class Sessions:
    """Files of sessions, as `bench.workloads.trace` reads traces of others."""

    what = "Weka's sessions"

    @staticmethod
    def reads(lines: Sequence[Row]) -> bool:
        """Whether the lines of a file are sessions."""
        return {"block_size", "requests"} <= {*lines[0].values}

    @staticmethod
    def rows(path: str, lines: Sequence[Row]) -> list[Row]:
        """The requests of all sessions, as rows with the columns of our own format.

        Sessions have no moments among each other: all begin at once, as so many agents side by side. A request follows the session's
        request before it and the subagents that ended between them; a subagent's first one follows the session's request that began
        last.

        Raises:
            BenchError: a line is no session.
        """
        try:
            return [row for line in lines for row in _rows_of(line)]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BenchError(
                f"{path}: not as Weka writes sessions ({error!r}): each of `requests`, of a subagent too, has t and api_time in s."
            ) from None


def _rows_of(line: Row) -> Iterator[Row]:
    main: list[_Call] = []
    subagents: list[list[_Call]] = []
    for number, request in enumerate(line.values["requests"], 1):
        place = f"{line.place}, request {number}"
        if request.get("type") == "subagent":
            subagents.append([_call(f"{place}.{i}", each) for i, each in enumerate(request["requests"], 1)])
        else:
            main.append(_call(place, request))
    subagents = list(filter(None, subagents))
    ended = [calls[-1] for calls in subagents]
    for i, call in enumerate(main):
        joined = [each for each in ended if i and main[i - 1].start <= each.start and each.end <= call.start]
        yield _row(line, call, [main[i - 1], *joined] if i else [])
    for calls in subagents:
        before = [call for call in main if call.start <= calls[0].start]
        parents = [before[-1:], *([call] for call in calls)]
        yield from (_row(line, call, each) for call, each in zip(calls, parents, strict=False))


def _call(place: str, request: Mapping[str, Any]) -> _Call:
    start = float(request["t"])
    return _Call(place, start, start + float(request.get("api_time") or 0.0), request)


def _row(line: Row, call: _Call, parents: Sequence[_Call]) -> Row:
    scope = "" if line.values.get("hash_id_scope") == "global" else line.place
    when: dict[str, Any] = {"arrival_s": call.start}
    if parents:
        wait = max(0.0, call.start - max(each.end for each in parents))
        when = {"parent": [each.place for each in parents], "after_s": wait}
    lengths = {ours: call.values.get(its) for its, ours in (("in", "prompt_tokens"), ("out", "output_tokens"))}
    named = [f"{scope}/{name}" for name in call.values.get("hash_ids") or ()]
    return Row(call.place, {"id": call.place, **when, **lengths, "hash_ids": named, "block_tokens": line.values["block_size"]})
