"""An engine whose truth is planted: continuous batching step by step, token by token, with a stamp for each. It shares no code with the
replay, so that the two can be held against each other.
"""

import math
from dataclasses import dataclass, field

import polars as pl

TURNAROUND_S = 0.0005  # of the client of a closed loop: the next step has begun by then


@dataclass
class Sequence:
    index: int
    prompt: int
    output: int
    sent: float
    stamps: list = field(default_factory=list)
    in_cache: int = 0
    blocks: int = 0
    preemptions: int = 0
    decoding: bool = False

    @property
    def target(self):
        """Tokens whose keys and values have to be there before the next token comes."""
        return self.prompt + len(self.stamps)


def serve(  # noqa: PLR0912, PLR0915 - one loop, to be read from top to bottom
    requests, seconds, *, tokens, sequences, blocks=None, block_size=1, held=None, random=None, noise=0.0
):
    """Serve `requests` (index, prompt, output, due) and return the table that a client would have written.

    Args:
        seconds: of a step, from (decodes, firsts, prefill, context, attended). tokens: a step's budget. held: as of a closed loop.
    """
    free = math.inf if blocks is None else blocks - 1
    due = sorted(requests, key=lambda each: (each[3] or 0.0, each[0]))
    coming = [(each[3] or 0.0, each) for each in due] if held is None else [(0.0, each) for each in due[:held]]
    later = [] if held is None else due[held:]
    waiting, running, done, now = [], [], [], 0.0

    def need(sequence, count):
        return math.ceil(count / block_size) - sequence.blocks

    while coming or waiting or running:
        waiting += [Sequence(r[0], r[1], r[2], at) for at, r in coming if at <= now]
        coming = [(at, r) for at, r in coming if at > now]
        if not waiting and not running:
            now = min(at for at, _ in coming)
            continue
        budget, plan = tokens, []
        for sequence in list(running):
            if sequence not in running or not sequence.decoding:
                continue
            while need(sequence, sequence.in_cache + 1) > free:
                victim = running.pop()
                free += victim.blocks
                victim.blocks = victim.in_cache = 0
                victim.decoding = False
                victim.preemptions += 1
                plan = [(each, count) for each, count in plan if each is not victim]
                waiting.insert(0, victim)
                if victim is sequence:
                    break
            if sequence in running:
                free -= need(sequence, sequence.in_cache + 1)
                sequence.blocks += max(0, need(sequence, sequence.in_cache + 1))
                plan.append((sequence, 1))
        budget -= len(plan)
        decodes = [each for each, _ in plan]
        for sequence in running:
            left = sequence.target - sequence.in_cache
            if sequence not in decodes and budget > 0 and left > 0:
                plan.append((sequence, min(left, budget)))
                budget -= plan[-1][1]
        while waiting and budget > 0 and len(running) < sequences and need(waiting[0], waiting[0].target) <= free:
            sequence = waiting.pop(0)
            taken = need(sequence, sequence.target)
            free -= taken
            sequence.blocks += taken
            running.append(sequence)
            plan.append((sequence, min(sequence.target, budget)))
            budget -= plan[-1][1]
        chunks = [(each, count) for each, count in plan if each not in decodes]
        firsts = [each for each, count in chunks if each.in_cache + count == each.target]
        took = seconds(
            decodes=len(decodes),
            firsts=len(firsts),
            prefill=sum(count for _, count in chunks),
            context=sum(each.in_cache for each in decodes),
            attended=sum(count * (each.in_cache + count / 2) for each, count in chunks),
        )
        now += took * (math.exp(noise * random.standard_normal()) if noise else 1.0)
        for sequence, count in plan:
            sequence.in_cache += count
            if sequence.in_cache == sequence.target:
                sequence.stamps.append(now)
                sequence.decoding = True
        for sequence in [each for each in running if len(each.stamps) == each.output]:
            running.remove(sequence)
            free += sequence.blocks
            done.append(sequence)
            if later:
                coming.append((now + TURNAROUND_S, later.pop(0)))
    done.sort(key=lambda each: each.index)
    return pl.DataFrame(
        {
            "index": [each.index for each in done],
            "after": pl.Series([None] * len(done), dtype=pl.Int64),
            "outcome": ["ok"] * len(done),
            "prompt_asked": [each.prompt for each in done],
            "output_asked": [each.output for each in done],
            "prompt_tokens": [each.prompt for each in done],
            "completion_tokens": [each.output for each in done],
            "cached_tokens": pl.Series([None] * len(done), dtype=pl.Int64),
            "scheduled_s": [each.sent for each in done],
            "sent_s": [each.sent for each in done],
            "first_token_s": [each.stamps[0] for each in done],
            "end_s": [each.stamps[-1] for each in done],
            "token_times_s": [each.stamps for each in done],
            "preemptions": [each.preemptions for each in done],
        }
    )
