"""Several classes of requests in one run: what each sends, when, and what is known of each."""

import json
import math
from collections import Counter

import pytest

from bench.errors import BenchError
from bench.load.client import Load, PreparedLoad, run_load
from bench.load.schedule import schedule
from bench.load.target import Target
from bench.study import load_workload
from bench.study.classes import dealt
from tests.fake_server import fake_server

CHAT = {"share": 0.7, "prompt_tokens": 40, "output_tokens": 8}
RAG = {"share": 0.2, "prompt_tokens": {"distribution": "uniform", "min": 100, "max": 300}, "output_tokens": 4}
BATCH = {"share": 0.1, "prompt_tokens": 60, "output_tokens": 20}
LOAD = {"arrival": "poisson", "num_requests": 200, "classes": {"chat": CHAT, "rag": RAG, "batch": BATCH}}


def mixed(**changes):
    return load_workload({key: value for key, value in {**LOAD, **changes}.items() if value is not None}, source="t")


def of_class(planned, name):
    return [request for request in planned if request.request_class == name]


@pytest.mark.parametrize("load", [{}, {"arrival": "closed"}, {"num_requests": None, "duration_s": 20.0}])
def test_each_class_has_exactly_its_share_and_its_lengths(load):
    planned = schedule(mixed(**load), 10, "s")
    assert Counter(x.request_class for x in planned) == {"chat": 140, "rag": 40, "batch": 20}
    begun = 10 if load.get("arrival") == "closed" else 0  # which ask for what is left of an output
    assert {(x.prompt_tokens, x.output_tokens) for x in of_class(planned[begun:], "chat")} == {(40, 8)}
    assert all(100 <= x.prompt_tokens <= 300 for x in of_class(planned, "rag"))


def test_a_burst_has_as_many_requests_as_its_level():
    planned = schedule(mixed(arrival="burst", num_requests=None), 7, "s")
    assert Counter(x.request_class for x in planned) == {"chat": 5, "rag": 1, "batch": 1}


def test_the_moments_are_those_of_the_load_without_classes():
    alone = load_workload({"arrival": "poisson", "num_requests": 200, "prompt_tokens": 9, "output_tokens": 9}, source="t")
    assert [x.due_s for x in schedule(mixed(), 10, "s")] == [x.due_s for x in schedule(alone, 10, "s")]


def test_classes_come_in_an_order_drawn_from_the_seed():
    order = [x.request_class for x in schedule(mixed(), 10, "s")]
    assert (
        order == [x.request_class for x in schedule(mixed(), 10, "s")] != [x.request_class for x in schedule(mixed(), 10, "t")]
    )
    # Of so many batch requests a tenth of the run has as many as chance gives: not one in ten, again and again.
    tenths = [order[at : at + 20].count("batch") for at in range(0, 200, 20)]
    assert sum(tenths) == 20
    assert len(set(tenths)) > 2


def test_another_class_leaves_the_lengths_of_the_others_as_they_are():
    more = {"chat": {**CHAT, "share": 0.6}, "rag": RAG, "batch": BATCH, "code": {**CHAT, "share": 0.1}}
    before, after = (schedule(each, 10, "s") for each in (mixed(), mixed(classes=more)))
    lengths = [[x.prompt_tokens for x in of_class(planned, "rag")] for planned in (before, after)]
    assert lengths[0] == lengths[1]
    orders = [[x.request_class for x in planned if x.request_class in ("rag", "batch")] for planned in (before, after)]
    assert orders[0] == orders[1]


def test_a_class_may_arrive_by_itself():
    regular = {**LOAD["classes"], "batch": {**BATCH, "arrival": "constant"}}
    planned = schedule(mixed(classes=regular), 10, "s")
    moments = [x.due_s for x in of_class(planned, "batch")]
    assert moments == pytest.approx([i * 1.0 for i in range(20)])  # a tenth of 10 requests a second
    assert [x.due_s for x in planned] == sorted(x.due_s for x in planned)
    assert [x.index for x in planned] == list(range(200))


def test_shares_are_dealt_to_whole_numbers():
    assert dealt(10, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}) == {"a": 4, "b": 3, "c": 3}
    assert dealt(1, {"a": 0.2, "b": 0.8}) == {"a": 0, "b": 1}
    assert dealt(0, {"a": 0.2, "b": 0.8}) == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": {"chat": CHAT, "rag": RAG}}, "the shares of the classes are 0.9 together"),
        ({"classes": {"chat": CHAT}}, "a single class is the workload itself"),
        ({"classes": {**LOAD["classes"], "batch": {"share": 0.1, "prompt_tokens": 9}}}, "classes.batch: prompt_tokens and output_tokens"),
        ({"classes": {**LOAD["classes"], "batch": {**BATCH, "output_tokens": {"distribution": "natural", "max": 9}}}},
         "answers of classes.batch end by themselves, and those of classes.chat have the lengths asked for"),
        ({"classes": {**LOAD["classes"], "batch": {**BATCH, "body": {"max_tokens": 3}}}}, "classes.batch: body holds max_tokens"),
        ({"classes": {**LOAD["classes"], "batch": {**BATCH, "burstiness": 2.0}}}, "classes.batch.burstiness belongs to an arrival"),
        ({"arrival": "closed", "classes": {**LOAD["classes"], "batch": {**BATCH, "arrival": "constant"}}},
         "classes.batch.arrival: arrival closed has no rate"),
        ({"duration_s": 3.0}, "t: both num_requests and duration_s are given"),
        ({"turns": {"count": 2, "new_tokens": 5}}, "classes do not go with turns"),
        ({"arrival": "trace", "trace": "x.csv", "num_requests": None}, "a trace says what each of its requests is"),
        ({"classes": {**LOAD["classes"], "batch": {**BATCH, "archetype": "chat"}}}, "classes.batch.archetype is 'chat'"),
    ],
)  # fmt: skip
def test_what_cannot_be_mixed_is_refused_by_name(changes, message):
    with pytest.raises(BenchError) as error:
        mixed(**changes)
    assert message in str(error.value)


def test_requests_are_those_of_their_class():
    classes = {
        "chat": {**CHAT, "body": {"priority": 0}},
        "rag": {**RAG, "model": "adapter", "cache": "shared", "shared_prefix": 0.5, "body": {"priority": 2, "top_p": 0.5}},
        "batch": BATCH,
    }
    load = mixed(arrival="closed", num_requests=20, classes=classes, body={"top_p": 0.9})
    with fake_server() as server:
        records = run_load(Target(server.base_url, "base"), Load(load, 1, "s")).records
        asked = Counter((body["model"], body.get("priority"), body["top_p"]) for body in server.bodies)
        rag = [body["prompt"] for body in server.bodies if body["model"] == "adapter"]
    assert asked == {("base", 0, 0.9): 14, ("adapter", 2, 0.5): 4, ("base", None, 0.9): 2}
    assert Counter(record.request_class for record in records) == {"chat": 14, "rag": 4, "batch": 2}
    shortest = min(map(len, rag))
    assert len({tuple(ids[: shortest // 2]) for ids in rag}) == 1
    assert len({tuple(ids[:shortest]) for ids in rag}) == len(rag)


def test_what_each_class_shares_is_sent_before_the_run():
    shared = {"cache": "shared", "shared_prefix": 0.5}
    classes = {"chat": {**CHAT, **shared}, "rag": {**RAG, **shared, "prompt_tokens": 200}, "batch": BATCH}
    with fake_server() as server:
        primed = PreparedLoad(Target(server.base_url, "m"), Load(mixed(arrival="closed", classes=classes), 1, "s")).prime()
    assert sorted(record.prompt_tokens for record in primed) == [20, 100]


def test_files_of_all_classes_decide_what_is_sent(tmp_path):
    (tmp_path / "a.txt").write_text("One\nTwo\nThree\n")
    prompts = {"share": 0.2, "prompts": str(tmp_path / "a.txt"), "output_tokens": 4}
    load = mixed(classes={"chat": CHAT, "rag": prompts, "batch": BATCH}, endpoint="chat", arrival="closed", num_requests=15)
    assert load.files == [str(tmp_path / "a.txt")]
    assert not load.lengths_known
    with fake_server() as server:
        run_load(Target(server.base_url, "m"), Load(load, 1, "s"))
        texts = [body["messages"][0]["content"].splitlines()[-1] for body in server.bodies]
    assert sorted(text for text in texts if text in ("One", "Two", "Three")) == ["One", "Three", "Two"]


def test_a_workload_without_classes_is_as_it_was():
    plain = load_workload({"arrival": "closed", "num_requests": 3, "prompt_tokens": 9, "output_tokens": 9}, source="t")
    assert "classes" not in json.dumps(plain.model_dump(mode="json", exclude_defaults=True))
    assert [x.request_class for x in schedule(plain, 1, "s")] == [None] * 3
    assert math.isclose(sum(x.output_tokens for x in schedule(plain, 1, "s")[1:]), 18)
