"""What a cache of the server's size serves, held against an engine whose truth is planted: eviction and preemption included."""

import random
from dataclasses import replace
from types import SimpleNamespace

from bench.workloads.prefix_cache import Room, room_of, served_tokens
from bench.workloads.schedule import PlannedRequest, expected_cached_tokens, schedule
from bench.workloads.workload import Workload
from tests.support import records
from tests.support.naive_engine import serve
from tests.support.trace_blocks import written

BLOCK, OWN = 16, 48  # tokens of the server's blocks, and of the trace's


def sessions(folder, seed, count=10):
    """Of agents: turns whose prompts begin with the one before, after 96 tokens that all of them share; at the moments of arrival."""
    draw, rows, at, new = random.Random(seed), [], 0.0, 2
    for _ in range(count):
        at += draw.expovariate(3)
        ids, moment = [0, 1], at
        for _ in range(draw.randint(2, 5)):
            ids, new = [*ids, *range(new, new + draw.randint(1, 3))], new + 3
            length = len(ids) * OWN - draw.randrange(OWN)
            rows.append(
                {"arrival_s": moment, "prompt_tokens": length, "output_tokens": draw.randint(4, 40), "hash_ids": ids, "block_tokens": OWN}
            )  # fmt: skip
            moment += draw.uniform(0.5, 3)
    file = written(folder, *rows, name=f"{seed}.jsonl")
    return schedule(Workload(arrival="trace", trace=file), 1.0, "s")


def planted(plans, blocks, sequences=16):
    """Records of an engine with so many blocks, and the prompt tokens that its cache served."""
    prompts = {plan.index: tuple((plan.blocks[i // OWN], i) for i in range(plan.prompt_tokens)) for plan in plans}
    asked = [(plan.index, plan.prompt_tokens, plan.output_tokens, plan.due_s) for plan in plans]
    table = serve(
        asked,
        lambda decodes, firsts, prefill, context, attended: 0.01 + 4e-4 * decodes + 1.2e-4 * prefill,  # noqa: ARG005
        tokens=256, sequences=sequences, blocks=blocks, block_size=BLOCK, prompt_of=prompts.get,
    )  # fmt: skip
    found = [
        SimpleNamespace(completion_tokens=None, index=i, outcome="ok", sent_s=sent, first_token_s=first, end_s=end)
        for i, sent, first, end in table.select("index", "sent_s", "first_token_s", "end_s").iter_rows()
    ]
    return found, table["cached_tokens"].sum(), table["preemptions"].sum()


def test_above_capacity_what_is_evicted_is_known(tmp_path):
    """To a point of all prompt tokens, where the cache serves up to half less than was sent before; with preemptions too."""
    lost, preempted = 0.0, 0
    for seed in range(3):
        plans = sessions(tmp_path, seed)
        tokens = sum(plan.prompt_tokens for plan in plans)
        for blocks in (90, 60):
            found, truth, preemptions = planted(plans, blocks)
            assert abs(served_tokens(plans, found, Room(blocks, BLOCK, 16)) - truth) / tokens <= 0.01
            lost = max(lost, (expected_cached_tokens(plans, BLOCK) - truth) / tokens)
            preempted += preemptions
    assert lost > 0.25
    assert preempted > 0
    # All at once: the server admits what it has room for, so that what was cached is evicted later than it was sent.
    plans = [replace(plan, due_s=0.0) for plan in sessions(tmp_path, 1)]
    tokens = sum(plan.prompt_tokens for plan in plans)
    for blocks, sequences in ((2000, 4), (90, 16)):
        found, truth, _ = planted(plans, blocks, sequences)
        assert abs(served_tokens(plans, found, Room(blocks, BLOCK, sequences)) - truth) / tokens <= 0.02


def answered(count, tokens=None):
    """Records of requests a second apart, each of which takes half a second."""
    times = [{"index": i, "sent_s": i, "first_token_s": i + 0.1, "end_s": i + 0.5} for i in range(count)]
    return [SimpleNamespace(completion_tokens=tokens, outcome="ok", **each) for each in times]


def test_a_slot_keeps_the_prompt_that_it_had_last_and_an_answer_what_it_had():
    """Two slots: the third request finds its beginning in the first one's; the fourth, in nobody's, takes the one that is free longest."""
    plans = [
        PlannedRequest(i, i, 40, 4, float(i), blocks=blocks, block_tokens=20)
        for i, blocks in enumerate([(0, 1), (2, 3), (0, 4), (5, 6), (2, 3), (0, 4)])
    ]
    found = answered(6)
    # 2 finds 20 in slot 0; 3 takes slot 1; 4 finds nothing, and takes slot 0; so does 5 with slot 1.
    assert served_tokens(plans, found, Room(None, 1, 2)) == 20
    assert served_tokens(plans, found, Room(None, 1, 4)) == 20 + 39 + 39  # a prompt's last token is always computed
    plans = [PlannedRequest(i, i, 40, 4, float(i), blocks=(0,), block_tokens=40) for i in range(2)]
    found = answered(2)
    assert served_tokens(plans, found, Room(20, 8, 1)) == 32
    found[0].outcome = "timeout"
    assert (served_tokens(plans, found, Room(20, 8, 1)), served_tokens(plans, found, Room(3, 8, 1))) == (0, None)
    # Natural answers of 10 tokens, of 1,000 that were allowed: the third finds the first's blocks, which 1,000 would evict.
    plans = [PlannedRequest(i, i % 2, 160, 1000, float(i), reusable_tokens=160 * (i == 2)) for i in range(3)]
    found = answered(3, tokens=10)
    assert served_tokens(plans, found, Room(75, 16, 2)) == 144
    for each in found:
        each.completion_tokens = None
    assert (served_tokens(plans, found, Room(75, 16, 2)) or 0) < 144


def test_room_is_known_where_the_rules_are():
    for kind, engines, kv_tokens, room in [
        ("vllm", 1, 1584, Room(100, 16, 8)),
        ("vllm", 1, None, Room(100, 16, 8)),
        ("vllm", 2, 1584, None),  # each has a cache of its own
        ("vllm", 1, 1200, None),  # layers keep different tokens
        ("sglang", 1, 1584, None),  # another way to evict
    ]:
        facts = SimpleNamespace(kv_blocks=100, block_size=16, kv_tokens=kv_tokens)
        launch = records.launch(kind=kind, max_num_seqs=8, slots=False)
        assert room_of(facts, launch, engines) == room, kv_tokens
        assert room_of(facts, replace(launch, replicas=2), engines) is None, kv_tokens
