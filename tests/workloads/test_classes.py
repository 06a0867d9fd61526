"""Several classes of requests in one run: what each sends, when, and what is known of each."""

import json
import math
from collections import Counter
from types import SimpleNamespace

import polars as pl
import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.findings.analysis import TABLES, Analysis, write_analysis
from bench.findings.capacity.points import operating_points
from bench.findings.capacity.words import it_misses, narrowed, sustains
from bench.findings.causes import bottleneck, why
from bench.findings.classes import class_rows
from bench.findings.fleet import no_point
from bench.load.client import Load, PreparedLoad, run_load
from bench.load.target import Target
from bench.measure.warmup import warm_up
from bench.parse.slo import goodput
from bench.parse.windows import of_windows
from bench.predict.carried import worst_excess
from bench.predict.sources import load_to_predict
from bench.results import Results
from bench.runs.latencies import served_alike
from bench.study.config import Measurement
from bench.study.decision import Decision
from bench.study.precision import with_requests
from bench.study.read import load_workload, read_workload
from bench.study.slo import Slo, parse_slo
from bench.workloads.classes import dealt
from bench.workloads.schedule import schedule
from tests.support import records
from tests.support.cases import cases
from tests.support.fake_server import fake_server
from tests.support.planted import frame, steady_row

CHAT = {"share": 0.7, "prompt_tokens": 40, "output_tokens": 8}
RAG = {"share": 0.2, "prompt_tokens": {"distribution": "uniform", "min": 100, "max": 300}, "output_tokens": 4}
BATCH = {"share": 0.1, "prompt_tokens": 60, "output_tokens": 20}
LOAD = {"arrival": "poisson", "num_requests": 200, "classes": {"chat": CHAT, "rag": RAG, "batch": BATCH}}


def mixed(**changes):
    return load_workload({key: value for key, value in {**LOAD, **changes}.items() if value is not None}, source="t")


def of_class(planned, name):
    return [request for request in planned if request.request_class == name]


def test_each_class_has_exactly_its_share_and_its_lengths():
    for load in ({}, {"arrival": "closed"}, {"num_requests": None, "duration_s": 20.0}):
        planned = schedule(mixed(**load), 10, "s")
        assert Counter(x.request_class for x in planned) == {"chat": 140, "rag": 40, "batch": 20}, load
        begun = 10 if load.get("arrival") == "closed" else 0  # which ask for what is left of an output
        assert {(x.prompt_tokens, x.output_tokens) for x in of_class(planned[begun:], "chat")} == {(40, 8)}
        assert all(100 <= x.prompt_tokens <= 300 for x in of_class(planned, "rag"))
    burst = schedule(mixed(arrival="burst", num_requests=None), 7, "s")
    assert Counter(x.request_class for x in burst) == {"chat": 5, "rag": 1, "batch": 1}
    assert dealt(10, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}) == {"a": 4, "b": 3, "c": 3}
    assert dealt(1, {"a": 0.2, "b": 0.8}) == {"a": 0, "b": 1}
    assert dealt(0, {"a": 0.2, "b": 0.8}) == {"a": 0, "b": 0}


def test_classes_come_at_the_moments_of_one_load_in_an_order_drawn_from_the_seed():
    alone = load_workload({"arrival": "poisson", "num_requests": 200, "prompt_tokens": 9, "output_tokens": 9}, source="t")
    assert [x.due_s for x in schedule(mixed(), 10, "s")] == [x.due_s for x in schedule(alone, 10, "s")]
    order, again, other = ([x.request_class for x in schedule(mixed(), 10, seed)] for seed in "sst")
    assert order == again != other
    # Of so many batch requests a tenth of the run has as many as chance gives: not one in ten, again and again.
    tenths = [order[at : at + 20].count("batch") for at in range(0, 200, 20)]
    assert sum(tenths) == 20
    assert len(set(tenths)) > 2
    assert [x.request_class for x in schedule(alone, 1, "s")] == [None] * 200
    assert "classes" not in json.dumps(alone.model_dump(mode="json", exclude_defaults=True))


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


def test_a_warm_up_asks_each_class_for_its_model():
    """The first request of an adapter loads it: that is no part of a run."""
    classes = {**LOAD["classes"], "rag": {**RAG, "model": "adapter"}}
    run = SimpleNamespace(
        workload=mixed(arrival="closed", classes=classes), workload_name="w", level=1, digest="d", schedule_seed="0/1"
    )
    measurement = Measurement(warmup_requests=3, request_timeout_s=5.0)
    with fake_server() as server:
        found = warm_up(Target(server.base_url, "base"), [run], measurement, records.launch(vocabulary=100))
        asked = Counter(body["model"] for body in server.bodies)
    first = schedule(run.workload, 1, "0/1")[0].request_class
    assert len(found.ttft_s) == 3 + 2 + 4 == asked.total()
    assert asked["adapter"] == (7 if first == "rag" else 1)


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


def judged(name, count, ttft, *, failed=0):
    """Requests of a class as a summary's column `judged` has them."""
    return [{"ok": i >= failed, "ttft": ttft, "tpot": 0.01, "e2e": ttft + 0.1, "request_class": name} for i in range(count)]


def level(summary, load, **ttfts):
    """A steady level at which each class has a TTFT of its own (s): 160 chats, and 40 of any other class."""
    requests = [each for name, ttft in ttfts.items() for each in judged(name, 160 if name == "chat" else 40, ttft)]
    row = steady_row(summary, load)
    return {**row, "judged": requests, "classes": json.dumps({name: {} for name in ttfts}), "run": f"r{load}"}


def c_max(rows, *slos, **more):
    return operating_points(frame(rows), [parse_slo(slo) for slo in slos], **more).row(0, named=True)


def test_a_class_that_misses_its_limit_is_not_hidden_by_the_others(summary):
    """Four in five requests are chats: of all requests P90 is within 1 s at every level, and of rag it is not at the third."""
    rows = [level(summary, load, chat=0.1, rag=rag) for load, rag in ((2, 0.3), (4, 0.5), (8, 1.5), (16, 2.0))]
    assert c_max(rows, "chat.ttft_p90=1s")["c_max"] == 16
    assert c_max(rows, "ttft_p50=1s")["c_max"] == 16
    found = c_max(rows, "ttft_p50=1s", "chat.ttft_p90=1s", "rag.ttft_p90=1s")
    assert (found["c_max"], found["missed_at"]) == (4, 8)
    assert [miss["by"] for miss in found["missed"]] == ["class_rag_ttft_p90_s"]
    assert found["missed"][0] | {"below": None} == {
        **{"by": "class_rag_ttft_p90_s", "limit_s": 1.0, "reached_s": 1.5, "share": 1.0, "misses": 40, "requests": 40},
        **{"below": None, "growth": None, "close": False},
    }
    assert it_misses(found) == "misses TTFT P90 of rag ≤ 1 s (measured: 1.5 s)"


@cases(("first", "cause"), [(0.9, "prefill"), (0.1, "decode")])
def test_a_class_that_is_too_slow_alone_is_named(summary, first, cause):
    """What of its E2E is too long is told by its own TTFT: the chats' is of no account."""
    rows = [level(summary, load, chat=0.1, rag=1.0) for load in (1, 2)]
    rows = [
        {**row, "steady_class_rag_e2e_p90_s": 1.1, "steady_class_rag_ttft_p50_s": first, "steady_ttft_p50_s": 1.0 - first}
        for row in rows
    ]
    runs, slos = frame(rows), [parse_slo("chat.ttft_p90=1s"), parse_slo("rag.e2e_p90=1s")]
    found = bottleneck(runs, operating_points(runs, slos).row(0, named=True), slos)
    assert (found.cause, found.request_class) == (cause, "rag")
    assert why(found) == "one request of rag alone is too slow: its E2E is 1.1 s; the limit is 1 s"


def test_a_failed_request_counts_for_its_class(summary):
    rows = [level(summary, load, chat=0.1, rag=0.1) for load in (2, 4)]
    rows[1]["judged"] = judged("chat", 160, 0.1) + judged("rag", 40, 0.1, failed=10)
    found = c_max(rows, "chat.ttft_p90=1s", "rag.ttft_p90=1s", failed_share=0.2)
    assert [miss["by"] for miss in found["missed"]] == ["class_rag_ttft_p90_s"]


def test_a_level_without_a_request_of_a_class_is_left_out_and_said_to_be(summary):
    """The least of four levels sent too few requests for one of rag: the others are judged."""
    rows = [level(summary, load, chat=0.1, rag=rag) for load, rag in ((1, 0.1), (2, 0.1), (4, 0.1), (8, 2.0))]
    rows[0]["judged"] = judged("chat", 160, 0.1)
    found = c_max(rows, "rag.ttft_p90=1s")
    assert (found["kind"], found["c_max"], found["missed_at"]) == ("found", 4, 8)
    assert "At 1 request in flight, no request of rag was judged; raise num_requests or its share." in narrowed(found)
    why = "no request of rag was judged; raise num_requests or its share"
    below = c_max([rows[0], rows[3]], "rag.ttft_p90=1s")
    assert (below["kind"], narrowed(below)) == ("below", f"At 1 request in flight, {why}.")
    above = c_max([rows[1], {**rows[0], "level": 4.0}], "rag.ttft_p90=1s")
    assert above["c_max"] == 2 and f"At 4 requests in flight, {why}." in narrowed(above)
    none = c_max(rows[:1], "rag.ttft_p90=1s")
    assert sustains(none) == f"not known: at 1 request in flight {why}"
    assert no_point(none) == f"what it sustains is not known: at 1 request in flight {why}"


def test_a_limit_of_a_class_says_nothing_of_workloads_without_it(summary):
    with_it = [level(summary, load, chat=0.1, rag=2.0) for load in (2, 4)]
    without = [{**steady_row(summary, load), "workload": "plain", "run": f"p{load}"} for load in (2, 4)]
    slos = [parse_slo("rag.ttft_p90=1s")]
    points = operating_points(frame([*with_it, *without]), slos)
    assert points["workload"].to_list() == [with_it[0]["workload"]]
    both = operating_points(frame([*with_it, *without]), [*slos, parse_slo("ttft_p90=1s")])
    assert dict(both.select("workload", "kind").iter_rows()) == {with_it[0]["workload"]: "below", "plain": "above"}


def test_limits_of_a_class_are_those_of_some_curves(summary, tmp_path):
    """A mix, a rate without its classes, and a closed loop without them, which has no capacity."""
    mix = [level(summary, load, chat=0.1, rag=0.5) for load in (2, 4)]
    plain = [{**steady_row(summary, load), "workload": "plain", "run": f"p{load}"} for load in (2, 4)]
    rate = [{**row, "workload": "rate", "axis": "request_rate", "arrival": "poisson"} for row in plain]
    runs, decision = frame([*mix, *plain, *rate]), Decision(slo=["rag.ttft_p90=1s"])
    runs.write_parquet(tmp_path / "summary.parquet")
    write_analysis(Analysis(runs, decision), tmp_path / "analysis", TABLES)
    found = Results.open(tmp_path).capacity(decision.slo)
    assert found["workload"].to_list() == [mix[0]["workload"], "rate"]
    stored = Results.open(tmp_path).analysis("capacity")
    assert found.drop("goodput_rps").equals(stored.drop("goodput_rps"))  # of which these rows have none
    # Other limits: of a curve that had one, and of one that had none.
    tighter = Results.open(tmp_path).capacity(["rag.ttft_p90=0.2s"])
    assert tighter.filter(workload=mix[0]["workload"])["kind"].item() == "below"
    assert Results.open(tmp_path).capacity(["ttft_p90=1s"]).height == 3


def test_goodput_counts_each_request_by_the_limits_of_its_class():
    run = {"classes": json.dumps({"chat": {}, "rag": {}}), "duration_s": 2.0}
    latencies = {"ttft_s": [0.1, 0.6, 0.9, None], "tpot_s": [0.01, 0.01, 0.01, None], "e2e_s": [0.2, 0.7, 1.0, None]}
    of = ["chat", "chat", "rag", "rag"]
    requests = pl.DataFrame({"outcome": ["ok", "ok", "ok", "http_error"], "request_class": of, **latencies})
    found = goodput(run, requests, list(map(parse_slo, ("chat.ttft_p90=0.5s", "rag.ttft_p90=1s", "other.ttft_p90=1ms"))))
    assert [each["request_class"] for each in found.pop("judged")] == of
    assert found == {
        **{"goodput_requests_per_s": 1.0, "slo_share": 0.5},
        **{"class_chat_goodput_requests_per_s": 0.5, "class_chat_slo_share": 0.5},
        **{"class_rag_goodput_requests_per_s": 0.5, "class_rag_slo_share": 0.5},
    }


def test_an_slo_of_a_class_is_known_by_its_column_and_in_words():
    for text in ("chat.ttft_p99=2s", "gpt-4.1.e2e_p50=20ms", "ttft_p90=1s"):
        slo = parse_slo(text)
        assert Slo.of_column(slo.column, slo.limit_s) == slo
    slo = parse_slo("Rag.TTFT_P99 <= 500ms")
    assert (str(slo), slo.column, slo.request_class) == ("TTFT P99 of rag ≤ 500 ms", "class_rag_ttft_p99_s", "rag")


def test_a_class_gets_as_many_requests_as_its_percentile_takes():
    def requests(*slos):
        return with_requests(mixed(num_requests="auto"), 5, 1, [parse_slo(slo) for slo in slos]).num_requests

    alone = requests("ttft_p90=1s")
    assert alone == requests() * 36 // 100  # 36 requests for a P90, 100 without an SLO
    assert requests("batch.ttft_p90=1s") == 10 * alone
    assert requests("other.ttft_p99=1s") == requests()


PLANTED = {"chat": 0.02, "rag": 1.0, "batch": 0.5}  # TTFT of each class (s)


def test_numbers_of_each_class_are_those_of_a_server_whose_latencies_are_known(tmp_path):
    classes = {name: {**LOAD["classes"][name], "model": name} for name in PLANTED}
    (tmp_path / "w.yaml").write_text(json.dumps({**LOAD, "num_requests": 60, "classes": classes}))
    with fake_server(first_of=PLANTED, gap_s=0.002) as server:
        arguments = ["--base-url", server.base_url, "--model", "base", "--workload", str(tmp_path / "w.yaml")]
        options = ("--request-rate", "30", "--set", "seed=classes", "--output-dir", str(tmp_path / "run"))
        assert main(["workload", *arguments, *options]) == 0
    assert main(["parse", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    sent = {"chat": 42, "rag": 12, "batch": 6}
    for name, ttft in PLANTED.items():
        assert summary[f"class_{name}_requests"] == sent[name]
        assert summary[f"class_{name}_failed"] == 0
        assert summary[f"class_{name}_output_tokens"] == LOAD["classes"][name]["output_tokens"]
        assert ttft <= summary[f"class_{name}_ttft_p50_s"] <= ttft + 0.45  # not that of another class
        assert ttft <= summary[f"steady_class_{name}_ttft_p50_s"] <= ttft + 0.45
        tokens = sent[name] * LOAD["classes"][name]["output_tokens"] / summary["duration_s"]
        assert summary[f"class_{name}_throughput_tokens_per_s"] == pytest.approx(tokens)
    assert sum(summary[f"class_{name}_requests"] for name in sent) == summary["requests"]
    parts = sum(summary[f"steady_class_{name}_requests_per_s"] for name in sent)
    assert parts == pytest.approx(summary["steady_requests_per_s"])
    assert summary["wrong_prompt_tokens"] == summary["wrong_output_tokens"] == 0


def test_replayed_limits_of_a_class_count_its_own_requests():
    """Of twenty answers one is of rag, and late: P90 of all is within 1 s, and of rag it is not."""
    ends = [{"sent_s": 0.0, "first_token_s": 2.0 if i == 19 else 0.1, "end_s": 3.0, "output_tokens": 2} for i in range(20)]
    table = pl.DataFrame([{**end, "request_class": "rag" if i == 19 else "chat"} for i, end in enumerate(ends)])
    member = SimpleNamespace(longer=lambda _: 1.0)
    assert worst_excess(member, table, [parse_slo("ttft_p90=1s")]) == pytest.approx(math.log(0.1))
    assert worst_excess(member, table, [parse_slo("ttft_p90=1s"), parse_slo("rag.ttft_p90=1s")]) == pytest.approx(math.log(2))


def test_the_report_has_each_class_at_each_level(summary):
    lengths = {"class_chat_prompt_tokens": 40.0, "class_rag_prompt_tokens": 200.0, "class_rag_throughput_requests_per_s": 0.5}
    rows = [{**level(summary, load, chat=0.1, rag=rag), **lengths} for load, rag in ((2, 0.3), (4, 1.5))]
    rows[1]["judged"][-1]["ok"] = False
    found = class_rows(frame(rows), [parse_slo("rag.ttft_p90=1s")])
    shown = [(x["level"], x["name"], x["requests"], x["failed"], x["prompt_tokens"], x["requests_per_s"]) for x in found]
    assert shown == [
        *((2, "chat", 160, 0, 40.0, None), (2, "rag", 40, 0, 200.0, 0.5)),
        *((4, "chat", 160, 0, 40.0, None), (4, "rag", 40, 1, 200.0, 0.5)),
    ]
    assert [x["latencies"]["ttft"] for x in found] == [
        *(("P95", 0.1, None), ("P90", 0.3, True)),
        *(("P95", 0.1, None), ("P90", 1.5, False)),
    ]
    # What was not measured is not beyond its limit.
    for each in (each for row in rows for each in row["judged"]):
        each["tpot"] = None
    unknown = class_rows(frame(rows[:1]), [parse_slo("rag.tpot_p90=1s")])
    assert {x["latencies"]["tpot"][1:] for x in unknown} == {(None, None)}


def test_classes_have_the_numbers_of_the_steady_window_as_all_requests_do(summary):
    names = {"class_chat_ttft_p50_s": 0.9, "steady_class_chat_ttft_p50_s": 0.2}
    rates = {"class_chat_throughput_requests_per_s": 3.0, "steady_class_chat_requests_per_s": 4.0}
    (steady,) = of_windows(frame([{**level(summary, 2, chat=0.1, rag=0.1), **names, **rates}]))
    row = steady.row(0, named=True)
    assert (row["class_chat_ttft_p50_s"], row["class_chat_throughput_requests_per_s"]) == (0.2, 4.0)


def test_a_replay_is_not_asked_of_classes_that_it_cannot_tell_apart(tmp_path):
    alike = {"chat": {"share": 0.5}, "rag": {"share": 0.5, "body": {"top_p": 0.5}}}
    assert served_alike(alike)
    for more in ({"model": "adapter"}, {"body": {"priority": 1}}, {"cache": "shared", "shared_prefix": 0.5}):
        assert not served_alike({**alike, "rag": {"share": 0.5, **more}})
    # Nor of those whose workload shares a beginning for each.
    lengths = {"output_tokens": 8, "share": 0.5}
    classes = {"chat": {"prompt_tokens": 40, **lengths}, "rag": {"prompt_tokens": 80, **lengths}}
    for name, more in {
        "shared": {"cache": "shared", "shared_prefix": 0.5},
        "body": {"body": {"priority": 1}},
        "plain": {},
    }.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps({"arrival": "poisson", "num_requests": 20, "classes": classes, **more}))
        if name == "shared":
            with pytest.raises(BenchError, match="classes with their own models"):
                load_to_predict(read_workload(file), "shared")
        else:
            assert load_to_predict(read_workload(file), "one").classes
