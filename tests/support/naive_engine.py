"""An engine whose truth is planted: continuous batching step by step, token by token, with a stamp for each. It shares no code with the
replay, so that the two can be held against each other.
"""

import math
from dataclasses import dataclass, field

import polars as pl

TURNAROUND_S = 0.0005  # of the client of a closed loop: the next step has begun by then


@dataclass(eq=False)  # one is itself alone; equal fields would be compared at each step
class Sequence:
    index: int
    prompt: int
    output: int
    sent: float
    stamps: list = field(default_factory=list)
    in_cache: int = 0
    blocks: list = field(default_factory=list)
    preemptions: int = 0
    decoding: bool = False
    made: int = 0  # tokens that are there or on their way
    served: int = 0  # prompt tokens, by the prefix cache, when it was first admitted
    slot: int = -1

    @property
    def target(self):
        """Tokens whose keys and values have to be there before the next token comes."""
        return self.prompt + self.made


class Blocks:
    """KV blocks, each with all tokens up to its end, looked for one by one. Without `prompt_of` nothing is ever found."""

    def __init__(self, blocks, size, prompt_of):
        self.size, self.prompt_of = size, prompt_of
        self.free = list(range(1, blocks))  # in the order in which they are given out
        self.holders, self.holds = dict.fromkeys(range(blocks), 0), {}

    def tokens(self, sequence):
        return (*self.prompt_of(sequence.index), *((sequence.index, "output", i) for i in range(len(sequence.stamps))))

    def found(self, sequence):
        """The blocks that hold its first tokens, but for the last one."""
        blocks, tokens = [], self.tokens(sequence) if self.prompt_of else ()
        for end in range(self.size, len(tokens), self.size):
            alike = [block for block, held in self.holds.items() if held == tokens[:end]]
            if not alike:
                break
            blocks.append(alike[0])
        return blocks

    def missing(self, sequence, count):
        return math.ceil(count / self.size) - len(sequence.blocks)

    def admit(self, sequence):
        """Whether all of it fits; then it has its blocks."""
        again = self.found(sequence)
        new = math.ceil(sequence.target / self.size) - len(again)
        if new + sum(block in self.free for block in again) > len(self.free):
            return False
        for block in again:
            if block in self.free:
                self.free.remove(block)
            self.holders[block] += 1
        sequence.blocks, sequence.in_cache = again, len(again) * self.size
        self.grow(sequence, sequence.target)
        self.note(sequence, sequence.target)
        return True

    def grow(self, sequence, count):
        for _ in range(max(0, self.missing(sequence, count))):
            block = self.free.pop(0)
            self.holds.pop(block, None)
            self.holders[block] = 1
            sequence.blocks.append(block)

    def note(self, sequence, computed):
        """Its full blocks can be found."""
        tokens = self.tokens(sequence) if self.prompt_of else ()
        for block, end in zip(sequence.blocks, range(self.size, len(tokens) + 1, self.size), strict=False):
            if end <= computed:
                self.holds[block] = tokens[:end]

    def release(self, sequence):
        """Blocks that can be found are given out last, others first."""
        for block in sequence.blocks[sequence.in_cache // self.size :]:
            if self.holders[block] == 1:
                self.holds.pop(block, None)
        self.note(sequence, sequence.in_cache)
        freed = []
        for block in reversed(sequence.blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                freed.append(block)
        known = [block for block in freed if block in self.holds]
        self.free = [block for block in freed if block not in self.holds] + self.free + known
        sequence.blocks = []


class Slots:
    """Room for whatever comes."""

    def missing(self, sequence, count):  # noqa: ARG002
        return 0

    def admit(self, sequence):  # noqa: ARG002
        return True

    free = ()

    def grow(self, *_):
        pass

    def release(self, *_):
        pass


def split(plan, decodes, most):
    """A step of llama.cpp's slots, token by token: (tokens of each pass), and the cells that decodes and prompts read."""
    left = {each.slot: count for each, count in plan}
    holds = {each.slot: each.in_cache for each, _ in plan}
    decoding = {each.slot for each in decodes}
    order = sorted(decoding) + sorted(left.keys() - decoding)
    passes, context, attended = [], 0, 0
    while any(left.values()):
        together = []
        for slot in order:
            if left[slot] and len(together) < most and (not together or slot == together[-1] + 1):
                together.append(slot)
        each = min(*(left[slot] for slot in together), most // len(together))
        for slot in together:
            left[slot] -= each
            holds[slot] += each
        cells = 256 * math.ceil(max(holds[slot] for slot in together) / 256)
        passes.append(each * len(together))
        context += cells * each * sum(slot in decoding for slot in together)
        attended += cells * each * sum(slot not in decoding for slot in together)
    return passes, context, attended


def serve(  # noqa: PLR0915 - one loop, to be read from top to bottom
    requests,
    seconds,
    *,
    tokens,
    sequences,
    blocks=None,
    block_size=1,
    held=None,
    random=None,
    noise=0.0,
    prompt_of=None,
    path_s=0.0,
    wake_s=0.0,
    slots=None,
    pass_tokens=512,
    planned_steps=1,
):
    """Serve `requests` (index, prompt, output, due) and return the table that a client would have written.

    Args:
        seconds: of a step, from (decodes, firsts, prefill, context, attended). tokens: a step's budget. held: as of a closed loop.
        prompt_of: the tokens of a request's prompt, where a prefix cache reuses them. path_s: from the client to the queue.
        wake_s: what a step takes longer that finds the engine idle. slots: in the order in which they have been free, where a step
            falls into passes of at most `pass_tokens`; `seconds` is then given `passes`, too.
        planned_steps: 1, or 2 where a step is planned while the one before it runs: a queue of batches as in vLLM's
            `EngineCore.step_with_batch_queue`, in which an empty batch takes no time.
    """
    cache = Slots() if blocks is None else Blocks(blocks, block_size, prompt_of)
    due = sorted(requests, key=lambda each: (each[3] or 0.0, each[0]))
    coming = [(each[3] or 0.0, each) for each in due] if held is None else [(0.0, each) for each in due[:held]]
    later = [] if held is None else due[held:]
    waiting, running, done, now, idle = [], [], [], 0.0, True
    batches = []

    def plan_step():  # noqa: PLR0912 - as above
        """What the next step computes, by what is known now; what it computes counts as computed from then on."""
        budget, plan, preempted = tokens, [], False
        for sequence in list(running):
            if sequence not in running or not sequence.decoding or sequence.made == sequence.output:
                continue
            while cache.missing(sequence, sequence.in_cache + 1) > len(cache.free):
                victim = running.pop()
                cache.release(victim)
                victim.in_cache = 0
                victim.decoding, preempted = False, True
                victim.preemptions += 1
                plan = [(each, count) for each, count in plan if each is not victim]
                waiting.insert(0, victim)
                if victim is sequence:
                    break
            if sequence in running:
                cache.grow(sequence, sequence.in_cache + 1)
                plan.append((sequence, 1))
        budget -= len(plan)
        decodes = [each for each, _ in plan]
        for sequence in running:
            left = sequence.target - sequence.in_cache
            if sequence not in decodes and not sequence.decoding and budget > 0 and left > 0:
                plan.append((sequence, min(left, budget)))
                budget -= plan[-1][1]
        while waiting and budget > 0 and len(running) < sequences and not preempted and cache.admit(waiting[0]):
            sequence = waiting.pop(0)
            if not sequence.preemptions:
                sequence.served = sequence.in_cache
            running.append(sequence)
            if slots:
                sequence.slot = slots.pop(0)
            plan.append((sequence, min(sequence.target - sequence.in_cache, budget)))
            budget -= plan[-1][1]
        chunks = [(each, count) for each, count in plan if each not in decodes]
        firsts = [each for each, count in chunks if each.in_cache + count == each.target]
        computed = {
            "decodes": len(decodes),
            "firsts": len(firsts),
            "prefill": sum(count for _, count in chunks),
            "context": sum(each.in_cache for each in decodes),
            "attended": sum(count * (each.in_cache + count / 2) for each, count in chunks),
        }
        if slots is not None:
            passes, computed["context"], computed["attended"] = split(plan, decodes, pass_tokens)
            computed |= {"passes": tuple((tokens, 1) for tokens in passes)}
        answered = []
        for sequence, count in plan:
            sequence.in_cache += count
            if sequence.in_cache == sequence.target:
                sequence.made += 1
                sequence.decoding = True
                answered.append(sequence)
        return answered, computed if plan else None

    while coming or waiting or running:
        waiting += [Sequence(r[0], r[1], r[2], at) for at, r in coming if at + path_s <= now]
        coming = [(at, r) for at, r in coming if at + path_s > now]
        if not waiting and not running:
            now, idle = min(at for at, _ in coming) + path_s, True
            batches = []
            continue
        while len(batches) < planned_steps:
            batches.append(plan_step())
        answered, computed = batches.pop(0)
        if computed is not None:
            took = seconds(**computed)
            took, idle = took + (wake_s if idle else 0.0), False
            now += took * (math.exp(noise * random.standard_normal()) if noise else 1.0)
        for sequence in answered:
            sequence.stamps.append(now)
        ended = [each for each in (*running, *waiting) if len(each.stamps) == each.output]
        for sequence in sorted(ended, key=lambda each: each.slot):
            if sequence in waiting:  # it was preempted while its last token was computed
                waiting.remove(sequence)
            else:
                running.remove(sequence)
                cache.release(sequence)
            if slots is not None:
                slots.append(sequence.slot)
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
            "cached_tokens": pl.Series([each.served if prompt_of else None for each in done], dtype=pl.Int64),
            "scheduled_s": [each.sent for each in done],
            "sent_s": [each.sent for each in done],
            "first_token_s": [each.stamps[0] for each in done],
            "end_s": [each.stamps[-1] for each in done],
            "token_times_s": [each.stamps for each in done],
            "preemptions": [each.preemptions for each in done],
        }
    )
