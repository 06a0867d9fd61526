"""An engine's steps, read from the moments at which tokens reached the client."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from bench.predict.limits import Limits
from bench.predict.passes import Neighbours, context_read, passes_of

_Row = dict[str, Any]

INTERVAL_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "at_s": pl.Float64,
    "took_s": pl.Float64,
    "steps": pl.Int64,
    "decodes": pl.Int64,
    "firsts": pl.Int64,
    "prefill": pl.Int64,
    "context": pl.Float64,
    "attended": pl.Float64,
    "pass_tokens": pl.List(pl.Float64),
    "passes": pl.List(pl.Float64),
    "idle": pl.Boolean,
}
_APART = 0.25  # gap between stamps of two steps ÷ the shortest gaps between a request's tokens; convention
_SHORT = 0.1  # quantile of the gaps between a request's tokens that counts as the shortest; convention
_PREEMPTED = 3  # groups without a token of a request, after which it was computed anew; tuned: benchmarks.predict


@dataclass
class _Prompt:
    """A request's prompt. Attributes: sent: when (s). tokens: of it. done: those that are computed, or that a cache served."""

    sent: float
    tokens: int
    done: int

    @property
    def left(self) -> int:
        return self.tokens - self.done

    def compute(self, count: int) -> float:
        """Compute more tokens; returns the tokens that these read."""
        read = count * (self.done + count / 2)
        self.done += count
        return read


@dataclass
class _Group:
    """Tokens that came together.

    Attributes:
        at: when the last of them came. tokens: by request, the number of its stamp. again: requests that had been preempted, with the
            moment of the token before. ahead: a request of which a part of the prompt was computed with them, whose token came later.
    """

    at: float
    tokens: dict[int, int]
    again: dict[int, float] = field(default_factory=dict)
    ahead: int | None = None

    @property
    def firsts(self) -> list[int]:
        """Requests whose first token is in it."""
        return [request for request, number in self.tokens.items() if number == 0]

    @property
    def decoding(self) -> list[int]:
        """Requests that had a token before, and were not preempted since."""
        return [request for request, number in self.tokens.items() if number and request not in self.again]


def intervals(requests: pl.DataFrame, limits: Limits) -> pl.DataFrame:
    """The time between groups of tokens that came together, and what the engine computed in it.

    Stamps of all requests, in order, fall apart into groups, each of which is the end of a step: where the next one is far, or where a
    request would be in a group twice. A group's interval begins with the group before it, or, where no request was being answered
    then, when the first of its requests was sent. Prompts whose first token is in a group were computed in its interval; what its
    budget had left went to the prompts behind them, as far as these had been sent and could be admitted.

    Args:
        requests: one row a request: `outcome`, `prompt_tokens`, `cached_tokens`, `sent_s`, `end_s`, `token_times_s`. limits: of the
            scheduler.

    Returns:
        One row an interval: `at_s` (its end), `took_s`; `steps` (of the engine, 1 but for long prompts that nothing else accompanies);
        `decodes` (tokens that are not a request's first), `firsts` (requests with their first token, or the first since they were
        preempted), `prefill` (tokens of prompts, and of what was computed again),
        `context` (tokens that the decodes read, of all their requests), `attended` (the same of prompt tokens), `pass_tokens` and
        `passes` (tokens that go through the layers together, and how many such passes there are, in the mean), `idle` (whether the
        engine had nothing to do before).
    """
    ok = requests.filter((pl.col("outcome") == "ok") & (pl.col("token_times_s").list.len() > 0))
    if ok.is_empty():
        return pl.DataFrame(schema=INTERVAL_SCHEMA)
    stamps = ok.with_row_index("request").select("request", time="token_times_s").explode("time").sort("time")
    gaps = stamps.select(gap=pl.col("time").diff().over("request"))["gap"].drop_nulls()
    short = gaps.quantile(_SHORT) if len(gaps) else None
    groups = _groups(stamps["request"].to_list(), stamps["time"].to_list(), short or 0.0)
    served = ok["cached_tokens"].fill_null(0).to_list()
    prompts = [_Prompt(*row) for row in zip(ok["sent_s"].to_list(), ok["prompt_tokens"].to_list(), served, strict=True)]
    rows = [_row(groups[i - 1] if i else None, group, prompts, limits) for i, group in enumerate(groups)]
    _compute(rows, groups, prompts, limits)
    if limits.pass_tokens is not None:
        # Those that failed may have held slots, as may those whose prompt a slot had in part, nobody knows which.
        known = requests["sent_s"].count() == ok.height and not any(served)
        _split(rows, groups, limits, known=known)
    return pl.DataFrame(rows, schema=INTERVAL_SCHEMA)


def _groups(requests: list[int], times: list[float], short: float) -> list[_Group]:
    counts: dict[int, int] = {}
    last: dict[int, int] = {}
    groups: list[_Group] = []
    for request, time in zip(requests, times, strict=True):
        if not groups or time - groups[-1].at > _APART * short or request in groups[-1].tokens:
            groups.append(_Group(time, {}))
        number = counts.get(request, 0)
        counts[request] = number + 1
        groups[-1].tokens[request] = number
        groups[-1].at = time
        if len(groups) - last.get(request, len(groups)) > _PREEMPTED:
            groups[-1].again[request] = groups[last[request] - 1].at
        last[request] = len(groups)
    return _whole(groups)


def _whole(groups: list[_Group]) -> list[_Group]:
    """Groups that are the rest of the one before: none of their requests is in it, and each had tokens earlier."""
    found: list[_Group] = []
    for group in groups:
        if found and not group.firsts and not group.again and not group.tokens.keys() & found[-1].tokens.keys():
            found[-1].tokens |= group.tokens
            found[-1].at = group.at
        else:
            found.append(group)
    return found


def _row(before: _Group | None, group: _Group, prompts: list[_Prompt], limits: Limits) -> _Row:
    """An interval without its prompts' tokens."""
    firsts = group.firsts
    goes_on = before is not None and any(request in before.tokens for request in group.tokens)
    begin, idle = before.at if before is not None else -math.inf, False
    if not goes_on and firsts:  # it may have waited for the first of them to come
        sent = min(prompts[request].sent for request in firsts)
        begin, idle = max(begin, sent), sent >= begin
    decoding = group.decoding
    held = [prompts[request].tokens + group.tokens[request] - 1 for request in decoding]
    return {
        "at_s": group.at,
        "took_s": group.at - begin if math.isfinite(begin) else math.nan,
        "steps": 1,
        "decodes": len(decoding),
        "firsts": len(group.tokens) - len(decoding),
        "prefill": 0,
        "context": float(sum(held)) if limits.pass_tokens is None else context_read(limits, held),
        "attended": 0.0,
        "pass_tokens": [],
        "passes": [],
        "idle": idle,
    }


def _compute(rows: list[_Row], groups: list[_Group], prompts: list[_Prompt], limits: Limits) -> None:
    """Enter the prompt tokens of each interval, as the scheduler would have cut them.

    A request that decodes gets a token every step, so an interval with one is a single step: what of a prompt it has no room for was
    computed in the steps before, whenever the prompt was sent.
    """
    ending = [_ending(group, prompts) for group in groups]
    order = deque((request, prompt, i) for i, each in enumerate(ending) for request, prompt in each.items())
    rooms = [max(1, limits.tokens - row["decodes"]) for row in rows]
    until = list(itertools.accumulate(rooms, initial=0))  # tokens of prompts that so many intervals have room for
    before = math.nan
    for i, (row, group) in enumerate(zip(rows, groups, strict=True)):
        spent = 0
        for prompt in ending[i].values():
            order.popleft()
            spent += prompt.left
            row["attended"] += prompt.compute(prompt.left)
        row["steps"] = steps = 1 if row["decodes"] else max(1, math.ceil(spent / rooms[i]))
        begin = row["at_s"] - row["took_s"]
        scheduled, before = before if limits.ahead and not row["idle"] else begin, begin
        left = rooms[i] * steps - spent
        if order and 0 < left < order[0][1].left and len(group.tokens) < limits.sequences:
            # With room for all of the next prompt, its token would be in this group: it came too late for the step.
            request, prompt, last = order[0]
            after = until[last + 1] - until[i + 1]  # room until its token came
            held = _blocks(row["context"], row["decodes"], limits)
            held += sum(_blocks(each.tokens, 1, limits) for each in (*ending[i].values(), prompt))
            fits = limits.blocks is None or held <= limits.blocks - 1
            in_time = prompt.sent <= scheduled and prompt.left > left + after - rooms[last]
            needed = prompt.left > after and rows[last]["decodes"]
            if needed or (in_time and fits):
                row["attended"] += prompt.compute(left)
                group.ahead = request
                spent += left
        row["prefill"] = spent
        row["pass_tokens"], row["passes"] = [(row["decodes"] + spent) / steps], [float(steps)]


def _ending(group: _Group, prompts: list[_Prompt]) -> dict[int, _Prompt]:
    """The prompts whose last part gave the group a token. Of requests that had been preempted, all that they held."""
    again = {
        request: _Prompt(sent, prompts[request].tokens + group.tokens[request], 0) for request, sent in group.again.items()
    }
    return {request: prompts[request] for request in group.firsts} | again


def _split(rows: list[_Row], groups: list[_Group], limits: Limits, *, known: bool) -> None:
    """Enter the passes that the steps of slots fall into. Args: known: whether no request but these may have held a slot."""
    neighbours = Neighbours(limits)
    last = {request: i for i, group in enumerate(groups) for request in group.tokens}
    taken: set[int] = set()
    for i, (row, group) in enumerate(zip(rows, groups, strict=True)):
        computed = [*group.firsts, *group.again, *([] if group.ahead is None else [group.ahead])]
        for request in sorted({*computed} - taken):
            neighbours.take(request)
            taken.add(request)
        slots, beside = neighbours.beside(group.decoding), neighbours.beside(computed)
        both = (slots, beside) if known and slots is not None and beside is not None else None
        steps = row["steps"]
        found = passes_of(limits, row["decodes"], len(computed), -(-row["prefill"] // steps), both)
        row["pass_tokens"], row["passes"] = [tokens for tokens, _ in found], [steps * number for _, number in found]
        neighbours.free([request for request in group.tokens if last[request] == i])


def _blocks(tokens: float, requests: int, limits: Limits) -> float:
    """KV blocks that so many tokens of so many requests take, in the mean."""
    return 0.0 if limits.blocks is None else (tokens + requests * (limits.block_size - 1) / 2) / limits.block_size
