"""What prompts of a trace share: exactly the blocks that its ids name, up to the first that differs; and who follows whom."""

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.beside.archive.pack import packed_study
from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.runs.request import RequestForm
from bench.study.plan import Plan, longest_request
from bench.study.read import load_config
from bench.workloads.prompts.random_ids import letters
from bench.workloads.schedule import at_least_s, expected_cached_tokens, schedule
from bench.workloads.trace import chained, read_trace
from bench.workloads.workload import Workload
from tests.support.cases import cases
from tests.support.fake_server import fake_server
from tests.support.study import CONTENT, ROOT
from tests.support.trace_blocks import common, written


def mooncake(*requests):
    return [
        {"timestamp": 1000 * i, "input_length": length, "output_length": 2, "hash_ids": ids}
        for i, (length, ids) in enumerate(requests)
    ]


def replay(file, **more):
    return Workload.model_validate({"arrival": "trace", "trace": file, **more})


def prompts(workload, seed="run", form=None):
    target = Target("http://h", "m", forms={workload.endpoint: form} if form else {})
    make = exchanges(target, workload, seed=seed, vocabulary=5000)
    sent = [json.loads(make(x).payload.split(b"\r\n\r\n")[1]) for x in schedule(workload, 1.0, "s")]
    return [body["prompt"] if "prompt" in body else body["messages"][0]["content"] for body in sent]


def test_prompts_share_the_blocks_of_their_common_leading_ids_and_nothing_else(tmp_path):
    """The third has an id of the first behind another beginning: no prefix cache could serve it there."""
    file = written(tmp_path, *mooncake((1300, [0, 1, 2]), (1500, [0, 1, 3]), (1100, [9, 1, 2]), (1200, [0, 1, 2])))
    one, two, three, four = prompts(replay(file))
    assert [len(each) for each in (one, two, three, four)] == [1300, 1500, 1100, 1200]
    assert common(one, two) == 1024
    assert common(one, three) == common(two, three) == 0
    assert common(one, four) == 1200  # to the end of the shorter of two last blocks of one id
    assert one[512:1024] != three[512:1024]


def test_prompts_are_those_of_their_run_and_share_nothing_without_ids(tmp_path):
    file = written(tmp_path, *mooncake((1300, [0, 1, 2]), (1500, [0, 1, 3])))
    assert prompts(replay(file)) == prompts(replay(file))
    assert common(prompts(replay(file))[0], prompts(replay(file), seed="another")[0]) == 0
    one, two = prompts(replay(file, trace_block=0))
    assert common(one, two) == 0
    assert [x.blocks for x in schedule(replay(file, trace_block=0), 1.0, "s")] == [(), ()]
    # Ids of whole blocks alone leave the rest to the request.
    whole = replay(written(tmp_path, *mooncake((1300, [0, 1]), (1301, [0, 1])), name="whole.jsonl"))
    one, two = prompts(whole)
    assert common(one, two) == 1024
    assert [x.reusable_tokens for x in schedule(whole, 1.0, "s")] == [0, 1024]


def test_text_shares_as_many_tokens(tmp_path):
    """A server that adds 7 tokens and takes two for a letter: to the letter in which the shared tokens end."""
    file = written(tmp_path, *mooncake((60, [0, 1]), (61, [0, 2])))
    load = replay(file, trace_block=32, endpoint="chat")
    plain = prompts(load, form=RequestForm())
    assert [len(text) // 2 for text in plain] == [60, 61]
    assert common(*plain) // 2 == 32
    form = RequestForm(letter_tokens=2, template_tokens=7, counted=True)
    one, two = prompts(load, form=form)
    assert (one.count(" "), one.count(".")) == (26, 1)
    assert (two.count(" "), two.count(".")) == (27, 0)
    assert common(one, two) // 2 == 13  # the last of which begins at token 7 + 2 × 12 = 31
    assert letters([3]) == " a"


# What a prefix cache can serve of it.


def test_what_was_sent_before_is_reusable(tmp_path):
    rows = mooncake((1300, [0, 1, 2]), (1500, [0, 1, 3]), (1100, [9, 1, 2]), (1200, [0, 1, 2]), (1024, [0, 1]))
    planned = schedule(replay(written(tmp_path, *rows)), 1.0, "s")
    assert [x.reusable_tokens for x in planned] == [0, 1024, 0, 1200, 1024]
    assert expected_cached_tokens(planned, 16) == 1024 + 1184 + 1008  # a prompt's last token is always computed


@given(st.integers(0, 10**6))
def test_reusable_is_what_two_prompts_begin_with(seed):
    """Of random chains, by comparing the ids that are sent with all that were sent before."""
    draw = random.Random(seed)
    chains, size = {}, draw.choice([3, 4])
    ids = [[draw.randrange(2) for _ in range(draw.randrange(1, 5))] for _ in range(8)]
    lengths = [len(each) * size - draw.randrange(size) for each in ids]
    numbers = [chained(chains, each, length, size) for each, length in zip(ids, lengths, strict=True)]
    for (i, one), (j, two) in itertools.combinations(enumerate(numbers), 2):
        alike = common(ids[i], ids[j])
        assert common(one, two) == alike
        assert not set(one[alike:]) & set(two[alike:])


def test_a_table_s_cell_has_its_ids_as_json(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text('arrival_s;prompt_tokens;output_tokens;hash_ids;block_tokens\n0;40;1;["a", "b"];32\n1;40;1;["a", "c"];32\n')
    one, two = read_trace(str(file))
    assert common(one.blocks, two.blocks) == 1
    with pytest.raises(BenchError, match="the tokens in a block are not known"):
        read_trace(written(tmp_path, {"arrival_s": 0, "prompt_tokens": 40, "output_tokens": 1, "hash_ids": ["a", "b"]}))


def studied(**files):
    return {
        **CONTENT,
        "workloads": {name: {"arrival": "trace", "trace": file} for name, file in files.items()},
        "study": {"title": "t", "ladders": [{"deployment": "a", "workload": name, "time_scale": [1]} for name in files]},
    }


def test_what_a_trace_shares_is_part_of_the_digest(tmp_path, monkeypatch):
    """Runs of traces whose ids were ignored are measured again, and no others; a pack knows them without the file."""
    shared = written(tmp_path, *mooncake((130, [0])))
    plain = written(tmp_path, {"arrival_s": 0, "prompt_tokens": 8, "output_tokens": 2}, name="plain.jsonl")
    content = studied(w=shared, v=plain)
    plan = Plan.of(load_config(content, source="t"), root=ROOT)
    assert [run.definition.get("trace_block") for run in plan.runs] == [512, None]
    study = packed_study(content, plan, "*")
    monkeypatch.chdir(tmp_path)
    for file in (shared, plain):
        (tmp_path / file).unlink()
    assert [run.digest for run in Plan.of(load_config(study, source="t"), root=ROOT).runs] == [run.digest for run in plan.runs]


def test_both_say_what_is_shared(tmp_path):
    file = written(tmp_path, *mooncake((1300, [0, 1, 2])))
    with pytest.raises(BenchError, match="say what prompts share, and so does cache shared"):
        schedule(replay(file, cache="shared", shared_prefix=0.5), 1.0, "s")
    alone = schedule(replay(file, cache="shared", shared_prefix=0.5, trace_block=0), 1.0, "s")
    assert alone[0].reusable_tokens == 650
    with pytest.raises(ValueError, match="trace_block belongs to arrival trace"):
        Workload(arrival="burst", prompt_tokens=4, output_tokens=4, trace_block=16)


# Requests that follow others.

SESSION = [
    {"id": "b", "arrival_s": 7.5, "prompt_tokens": 8, "output_tokens": 2},
    {"id": "a", "arrival_s": 5, "prompt_tokens": 40, "output_tokens": 4, "hash_ids": [1, 2], "block_tokens": 32},
    {"id": "a1", "parent": "a", "after_s": 0.5, "prompt_tokens": 40, "output_tokens": 4, "hash_ids": [1, 3], "block_tokens": 32},
    {"id": "a2", "parent": "a", "prompt_tokens": 9, "output_tokens": 4},
    {"id": "a11", "parent": "a1", "after_s": 1, "prompt_tokens": 64, "output_tokens": 4, "hash_ids": [1, 2], "block_tokens": 32},
]  # fmt: skip


def test_a_session_stands_together_behind_its_first_request(tmp_path):
    requests = read_trace(written(tmp_path, *SESSION))
    assert [(x.arrival_s, x.after, x.after_s, x.root) for x in requests] == [
        (0.0, (), 0.0, 0), (None, (0,), 0.0, 0), (None, (0,), 0.5, 0), (None, (2,), 1.0, 0), (2.5, (), 0.0, 4)
    ]  # fmt: skip
    assert [x.prompt_tokens for x in requests] == [40, 9, 40, 64, 8]
    planned = schedule(replay(written(tmp_path, *SESSION)), 2.0, "s")
    assert [(x.due_s, x.after, x.think_s, x.conversation) for x in planned] == [
        (0.0, (), 0.0, 0), (None, (0,), 0.0, 0), (None, (0,), 0.25, 0), (None, (2,), 0.5, 0), (1.25, (), 0.0, 4)
    ]  # fmt: skip
    assert [x.reusable_tokens for x in planned] == [0, 0, 32, 40, 0]
    assert longest_request(replay(written(tmp_path, *SESSION))) == 68
    sent = prompts(replay(written(tmp_path, *SESSION)))
    assert [len(each) for each in sent] == [40, 9, 40, 64, 8]
    assert [common(sent[0], other) for other in sent[1:]] == [0, 32, 40, 0]


# A fan-out and a join: two begin by themselves, another follows the first; the last waits for three.
JOIN = [
    {"id": "z", "arrival_s": 9, "prompt_tokens": 3, "output_tokens": 2},
    {"id": "last", "parent": ["c", "b", "a2", "b"], "after_s": 0.3, "prompt_tokens": 8, "output_tokens": 2},
    {"id": "b", "arrival_s": 0.4, "prompt_tokens": 7, "output_tokens": 60},
    {"id": "a", "arrival_s": 0, "prompt_tokens": 4, "output_tokens": 2, "parent": []},
    {"id": "a2", "parent": "a", "prompt_tokens": 5, "output_tokens": 2},
    {"id": "c", "parent": ["a"], "after_s": 0.1, "prompt_tokens": 6, "output_tokens": 2},
]


@cases("as_json", [False, True])
def test_a_request_that_waits_for_several_stands_behind_all_of_them(tmp_path, as_json):
    """Those that begin by themselves are of its session too; a CSV file has the list as JSON."""
    rows = [{**row, "parent": json.dumps(row["parent"])} if as_json and "parent" in row else row for row in JOIN]
    rows = [{**row, "parent": "a"} if row.get("parent") == '"a"' else row for row in rows]
    requests = read_trace(written(tmp_path, *rows))
    assert [(x.prompt_tokens, x.arrival_s, x.after, x.after_s, x.root) for x in requests] == [
        (4, 0.0, (), 0.0, 0),
        (5, None, (0,), 0.0, 0),
        (6, None, (0,), 0.1, 0),
        (7, 0.4, (), 0.0, 0),
        (8, None, (2, 3, 1), 0.3, 0),
        (3, 9.0, (), 0.0, 5),
    ]
    planned = schedule(replay(written(tmp_path, *rows)), 2.0, "s")
    assert (planned[4].after, planned[4].think_s, planned[4].due_s) == ((2, 3, 1), 0.15, None)
    assert at_least_s(planned[:5]) == pytest.approx(0.35)  # b at 0.2, and half of 0.3 s after it


def test_a_request_leaves_after_the_last_of_those_that_it_waits_for(tmp_path):
    """The one that began last ends last, as its answer is long: a join that waited for the first alone would be half a second early."""
    file = written(tmp_path, *JOIN[1:])
    with fake_server(gap_s=0.01) as server:
        result = run_load(Target(server.base_url, "m"), Load(workload=replay(file), level=1.0, seed="s"))
    records = {r.prompt_asked: r for r in result.records}
    assert [r.outcome for r in result.records] == ["ok"] * 5
    slow, last = records[7], records[8]
    assert slow.end_s == max(records[tokens].end_s for tokens in (5, 6, 7)) > records[5].end_s + 0.5
    assert last.after == slow.index
    assert last.scheduled_s == pytest.approx(slow.end_s + 0.3, abs=1e-5)
    assert last.sent_s >= last.scheduled_s
    assert last.index == 4
