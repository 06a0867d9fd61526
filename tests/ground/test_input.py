"""Whatever a user's file holds, the answer is a result or one message that names the file, the key and what to do."""

import copy
import json
import re

import pytest
import yaml

from bench.axes import AXES
from bench.cli.study import load_plan
from bench.errors import BenchError
from bench.models.config_json import geometry_at
from bench.runs.columns import COLUMNS
from bench.study.config import Ladder
from bench.study.plan import Plan
from bench.study.read import load_config, load_file, load_workload
from bench.workloads.schedule import schedule
from bench.yaml_file import read_yaml
from tests.support.study import CONTENT


def refusal(content):
    with pytest.raises(BenchError) as caught:
        Plan.of(load_config(content, source="test.yaml"))
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def file_refusal(path):
    with pytest.raises(BenchError) as caught:
        Plan.of(load_file(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def alias_bomb(levels):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


def merge_bomb(levels):
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{'<<': [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, levels)]
    return "\n".join(lines).replace("'", "") + "\n"


def test_a_file_that_cannot_be_a_configuration(tmp_path):
    path = tmp_path / "study.yaml"
    for text, said in (
        (b"study: {title: \xe9t\xe9}\n", "not UTF-8 (byte 16: invalid continuation byte). Save the file as UTF-8."),
        (b"study: " + b"[" * 5000 + b"]" * 5000, "nested more than 64 levels deep"),
        ("".join("  " * i + "a:\n" for i in range(1000)).encode(), "nested more than 64 levels deep"),
        (alias_bomb(9).encode(), "more than 200,000 values, with each alias"),
        (merge_bomb(9).encode(), "more than 200,000 values, with each alias"),
        (b"study: &a [*a, *a]\n", "more than 200,000 values"),
        (b"- x\n" * 1_100_000, "larger than 4 MiB"),
        *((b"study: " + value, "a value cannot be read") for value in (b"9" * 5000, b"2026-13-45", b"!!int", b"!!bool maybe", b"!!timestamp soon")),
        (b"study: \x00", "not valid YAML"),
        (b"study:\n\ttitle: a", "Indent with spaces, not with tabs."),
        (b"study: !!python/object:os.system {}", "not valid YAML"),
        (b"\xff\xfes\x00t\x00u\x00", "not UTF-8"),
    ):  # fmt: skip
        path.write_bytes(text)
        assert said in file_refusal(path), text[:40]
    path.write_text("study: a: b # two\tcolons\n")  # a tab behind a text is no indent
    assert "tabs" not in file_refusal(path)


def test_a_mark_of_utf8_and_an_alias_are_read(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_bytes("\ufeffa: &x {b: 1}\nc: {<<: *x, d: 2}\n".encode())
    assert read_yaml(path) == {"a": {"b": 1}, "c": {"b": 1, "d": 2}}


def test_a_lock_that_is_no_file(content, tmp_path):
    for lock in (str(tmp_path), f"{tmp_path}/.", "a\0b", "x/" * 3000):
        content["engines"]["e"] = {"source": "lock", "locks": [lock]}
        assert "engines.e.locks[0] is" in refusal(content), lock[:20]


def test_a_file_that_is_missing_is_named_with_the_study(content, tmp_path):
    length = {"distribution": "empirical", "file": "nowhere.txt", "max": 9}
    for name, entry, said in (
        ("workloads", {"short": content["workloads"]["short"] | {"prompt_tokens": length}}, "nowhere.txt"),
        ("engines", {"e": {"source": "lock", "locks": ["nowhere.lock"]}}, "engines.e.locks[0] is 'nowhere.lock'"),
    ):
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(content | {name: entry}))
        with pytest.raises(BenchError, match=re.escape(f"study.yaml: {said}: no such file")):
            load_plan(tmp_path / "study.yaml", None)
    content["workloads"]["short"]["prompt_tokens"] = {"distribution": "empirical", "file": str(tmp_path)}
    assert str(tmp_path) in refusal(content)


IMPOSSIBLE = [
    ("study.ladders.0.repeats", 1_000_000_000, "3,000,000,000 runs, and a study has 100,000 at most"),
    ("study.ladders.0.concurrency", list(range(1, 100_003)), "100,002 runs"),
    ("study.ladders.0.concurrency", [10**7], "less than or equal to 1000000"),
    ("study.ladders.0.prompt_tokens", list(range(1, 40_000)), "119,997 runs"),
    ("measurement.scrape_interval_s", 1e-9, "measurement.scrape_interval_s is 1e-09"),
    ("measurement.scrape_interval_s", 3600, "less than or equal to 60"),
    ("measurement.scrape_interval_s", float("inf"), "measurement.scrape_interval_s is inf"),
    ("measurement.request_timeout_s", 1e12, "less than or equal to 2592000"),
    ("measurement.ready_timeout_s", 1e300, "less than or equal to 2592000"),
    ("measurement.warmup_requests", 10**12, "less than or equal to 1000000"),
    ("measurement.reference_requests", 10**12, "less than or equal to 1000000"),
    ("study.ladders.0.output_tokens", [10**12], "study.ladders[0].output_tokens[0] is 1000000000000"),
    ("measurement.telemetry", {"dcgm": "htp:/x"}, "measurement.telemetry.dcgm is 'htp:/x': no address; write http://HOST:PORT"),
    ("measurement.telemetry", {"dcgm": "not a url"}, "measurement.telemetry.dcgm is 'not a url': no address"),
    ("measurement.telemetry", {"dcgm": "127.0.0.1:9400/metrics"}, "no address; write http://HOST:PORT"),
    ("measurement.telemetry", {"dcgm": "http://gpus:/metrics"}, "no address; write http://HOST:PORT"),
    ("measurement.telemetry", {"dcgm": "http://gpus:99999/metrics"}, "no address (Port out of range"),
    ("measurement.request_timeout_s", float("nan"), "measurement.request_timeout_s is nan"),
    ("measurement.seed", 2**70, "measurement.seed"),
    ("thresholds.loop_lag_p99_s", -1.0, "thresholds.loop_lag_p99_s is -1.0"),
    ("thresholds.scrape_gap_s", float("nan"), "thresholds.scrape_gap_s is nan"),
    ("thresholds.send_spread_s", float("inf"), "thresholds.send_spread_s is inf"),
    ("thresholds.scrape_share", 2.0, "thresholds.scrape_share is 2.0"),
    ("decision.peak_rps", float("inf"), "decision.peak_rps is inf"),
    ("decision.slo", [f"ttft_p99={'9' * 400}s"], "decision.slo[0]"),
    ("deployments.a.kv_cache_memory", "1e400", "a size is a number of bytes or a text such as 64MiB"),
    ("deployments.a.kv_cache_memory", "99999999999GiB", "no memory has more than 1,048,576 GiB"),
    ("deployments.a.kv_cache_memory", "9" * 399 + "GiB", "a size is a number of bytes"),
    ("deployments.a.kv_cache_memory", "9" * 390 + "GiB", "no memory has more than"),
    ("deployments.a.kv_cache_memory", [10**5000], "deployments.a.kv_cache_memory is a value too long to print: a size is"),
    ("deployments.a.kv_cache_memory", float("inf"), "a size is a number of bytes"),
    ("deployments.a.max_num_seqs", 10**30, "deployments.a.max_num_seqs"),
    ("models.m.architecture.layers", 10**9, "models.m.architecture.layers"),
    ("models.m", {"config": {"max_position_embeddings": "lots"}}, "models.m: config.json: max_position_embeddings is 'lots'; it is"),
    ("models.m", {"config": {"text_config": 5}}, "models.m: config.json: text_config is 5; it is an object"),
    ("workloads.short.prompt_tokens", {"distribution": "normal", "mean": 10.0, "sd": 1e15, "max": 20}, "lower sd"),
    ("workloads.short.prompt_tokens", {"distribution": "lognormal", "median": 10.0, "sigma": 1e6, "max": 20}, "lower sigma"),
]  # fmt: skip


def test_a_value_that_cannot_be_meant(content):
    for place, value, said in IMPOSSIBLE:
        changed = copy.deepcopy(content)
        *parents, key = place.split(".")
        target = changed
        for part in parents:
            target = target[int(part)] if part.isdigit() else target.setdefault(part, {})
        target[key] = value
        assert said in refusal(changed), place


OPEN = {"arrival": "poisson", "prompt_tokens": 32, "output_tokens": 32}


def test_a_load_that_no_client_sends_is_refused_before_it_is_planned(content):
    cases = [
            (OPEN | {"duration_s": 10.0}, [1e12], "study.ladders[0].request_rate: level 1e+12 of workloads.short is 1e+12 requests/s in a run, "
             "and a run of one client has 100,000 at most. Lower the level"),
            (OPEN | {"duration_s": 1000.0}, [1.0, 2000.0], "level 2000 of workloads.short is 2e+06 requests in a run, and a run of one client has "
             "1,000,000 at most. Lower the level, num_requests, duration_s"),
            (OPEN | {"duration_s": 1e12}, [1.0], "workloads.short.duration_s is 1000000000000.0: it should be less than or equal to 2592000"),
            (OPEN | {"num_requests": 10**12}, [1.0], "workloads.short.num_requests is 1000000000000: it should be less than or equal to 1000000"),
            (OPEN | {"num_requests": 10}, [1e-9], "level 1e-09 of workloads.short is 1e+10 s in a run"),
            (OPEN | {"duration_s": 10.0, "step": {"factor": 1e12, "start_s": 1.0, "duration_s": 1.0}}, [1.0], "1e+12 requests/s in a run"),
            (OPEN | {"duration_s": 10.0, "step": {"factor": 1e12, "start_s": 1.0, "duration_s": 1e300}}, [1.0], "step.duration_s is 1e+300"),
            (OPEN | {"duration_s": 10.0, "ramp": {"end_factor": 1e12}}, [1.0], "1e+12 requests/s in a run"),
            (OPEN | {"arrival": "gamma", "burstiness": 1e-300}, [1.0], "workloads.short.burstiness is 1e-300: it should be greater than or"),
            (OPEN | {"num_requests": 9, "endpoint": "chat", "turns": {"count": 10**12, "new_tokens": 4}}, [1.0], "turns.count is 1000000000000"),
            (OPEN | {"num_requests": 2000, "endpoint": "chat", "turns": {"count": 1000, "new_tokens": 4}}, [1.0], "2e+06 requests in a run"),
            (OPEN | {"num_requests": 9, "output_tokens": 10**12}, [1.0], "workloads.short.output_tokens.tokens is 1000000000000"),
            (OPEN | {"arrival": "closed", "num_requests": 10**12}, [1], "workloads.short.num_requests is 1000000000000"),
            (OPEN | {"arrival": "closed"}, [900_000], "level 900000 of workloads.short is 4.5e+06 requests in a run"),
            (OPEN | {"arrival": "closed", "num_requests": 9}, [10**9], "study.ladders[0].concurrency[0] is 1000000000"),
        ]  # fmt: skip
    for workload, levels, said in cases:
        content["workloads"]["short"] = workload
        axis = "concurrency" if workload["arrival"] == "closed" else "request_rate"
        content["study"]["ladders"] = [{"deployment": "a", "workload": "short", axis: levels}]
        content["deployments"]["a"] = {"engine": "e"}
        content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
        content["decision"] = {"slo": ["ttft_p90=1s"]}
        assert said in refusal(content), said


def test_a_load_outside_of_a_study_has_the_same_bounds():
    workload = load_workload(OPEN | {"duration_s": 10.0}, source="test")
    assert workload.excess(1e4) is None
    with pytest.raises(BenchError, match=r"1e\+12 requests/s in a run, and a run of one client has 100,000 at most"):
        schedule(workload, 1e12, "seed")


def test_addresses(content):
    wrong = (
        "junk",
        "127.0.0.1:8000",
        "ftp://x",
        "http://",
        "http://:80",
        "http://x:99999",
        "http://x:port",
        "http://a b",
        "http://[::1",
    )
    wrong += (
        "http://user:secret@x",
        "http://x/?a=b",
        "http://x#y",
        "http://x/\n",
        "http://é\x00",
        "http://" + "a" * 300,
        "http://x/<y>",
    )
    for address in wrong:
        content["engines"]["e"] = {"source": "external", "base_url": address}
        assert "engines.e.base_url is" in refusal(content), address
    for address in ("http://127.0.0.1:8000", "https://x.example/v1", "http://[::1]:80/a/b/", "http://host"):
        content["engines"]["e"] = {"source": "external", "base_url": address}
        assert load_config(content, source="t").engines["e"].base_url == address


def test_very_many_faults_are_not_all_printed(content):
    content["study"]["ladders"] = [{"deployment": "a"}] * 500
    with pytest.raises(BenchError) as caught:
        load_config(content, source="t")
    assert len(str(caught.value).splitlines()) == 31
    assert str(caught.value).endswith("t: and 470 more")


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128,
    "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip


def test_a_config_json_that_holds_no_model(tmp_path):
    unlike = "not what its key means"
    path = tmp_path / "config.json"
    for changed, said in (
        ({"max_position_embeddings": "lots"}, "max_position_embeddings is 'lots'; it is a number from 1"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000; it is a number from 1 to 10,000"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"hidden_size": None}, "does not state 'hidden_size'"),
        ({"hidden_size": [64]}, "hidden_size is [64]"),
        ({"layer_types": 5}, unlike),
        ({"text_config": "x"}, "text_config is 'x'; it is an object"),
        ({"quantization_config": {"quant_method": "gptq", "bits": "four"}}, unlike),
        (b"\xff", ""), (b"[" * 100_000, ""), (b'{"a": ' + b"9" * 5000 + b"}", ""), (b"[]", ""), (b"", ""),
    ):  # fmt: skip
        path.write_bytes(changed if isinstance(changed, bytes) else json.dumps({**LLAMA, **changed}).encode())
        with pytest.raises(BenchError) as caught:
            geometry_at(tmp_path)
        assert str(path) in str(caught.value) and said in str(caught.value), changed


# --- Axes of load: what a key of a ladder, a name of a run and a column say of it

TURNS = {"turns": {"count": 2, "new_tokens": 4}}


def axis_of(axis, levels, **load):
    workload = {"arrival": "closed", "prompt_tokens": 8, "output_tokens": 8, "num_requests": 9, **load}
    ladder = {"deployment": "a", "workload": "w", axis: levels}
    content = {**CONTENT, "workloads": {"w": workload}, "study": {"title": "t", "ladders": [ladder]}}
    return load_config(content, source="t")


def test_each_is_a_key_of_ladders_and_a_column():
    assert set(AXES) <= Ladder.model_fields.keys()
    assert set(AXES) <= COLUMNS.keys()
    assert len({axis.letter for axis in AXES.values()}) == len(AXES)


def test_conversations_that_are_held_are_users():
    lengths = {"prompt_tokens": 8, "output_tokens": 8}
    assert load_workload({"arrival": "burst", **lengths, **TURNS}, source="t").axis == "users"
    assert load_workload({"arrival": "poisson", "num_requests": 2, **lengths, **TURNS}, source="t").axis == "request_rate"
    (run,) = Plan.of(axis_of("users", [2], **TURNS)).runs
    assert run.name.startswith("w_closed_p8_o8_u0002_r1_")


def test_a_load_by_another_axis_is_refused():
    cases = [
        ("concurrency", [2], TURNS, "has users as its load. Write users: "),
        ("users", [2], {}, "has concurrency as its load. Write concurrency: "),
        ("users", "auto", TURNS, "conversations that begin together keep in step"),
        ("concurrency", "auto", TURNS, "Conversations that begin together keep in step"),
        ("users", [1.5], TURNS, "users"),
    ]
    for axis, levels, load, said in cases:
        with pytest.raises(BenchError, match=said.replace("[", r"\[")):
            axis_of(axis, levels, **load)
