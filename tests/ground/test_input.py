"""Whatever a user's file holds, the answer is a result or one message that names the file, the key and what to do."""

import json
import re

import pytest
import yaml

from bench.cli.study import load_plan
from bench.errors import BenchError
from bench.models.config_json import geometry_at
from bench.study.plan import Plan
from bench.study.read import load_config, load_file, load_workload
from bench.workloads.schedule import schedule
from bench.yaml_file import read_yaml

OPEN = {"arrival": "poisson", "prompt_tokens": 32, "output_tokens": 32}


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
        (b"- x\n" * 2_200_000, "larger than 8 MiB"),
        *((b"study: " + value, "a value cannot be read") for value in (b"9" * 5000, b"2026-13-45", b"!!int", b"!!bool maybe", b"!!timestamp soon")),
        (b"study: \x00", "not valid YAML"),
        (b"study:\n\ttitle: a", "Indent with spaces, not with tabs."),
        (b"study: !!python/object:os.system {}", "not valid YAML"),
        (b"\xff\xfes\x00t\x00u\x00", "not UTF-8"),
        *((text, "") for text in (b"", b"- 1\n", b"a: [", b"a: b: c")),
        (b"a: 1\nb: 2\na: 3\n", "line 3: the key 'a' appears twice"),
    ):  # fmt: skip
        path.write_bytes(text)
        assert said in file_refusal(path), text[:40]
    path.write_text("study: a: b # two\tcolons\n")  # a tab behind a text is no indent
    assert "tabs" not in file_refusal(path)


def test_a_mark_of_utf8_and_an_alias_are_read(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_bytes("\ufeffa: &x {b: 1}\nc: {<<: *x, d: 2}\n".encode())
    assert read_yaml(path) == {"a": {"b": 1}, "c": {"b": 1, "d": 2}}


def test_a_file_that_is_missing_is_named_with_the_study(content, tmp_path):
    length = {"distribution": "empirical", "file": "nowhere.txt", "max": 9}
    for name, entry, said in (
        (
            "workloads",
            {"short": content["workloads"]["short"] | {"prompt_tokens": length}},
            "nowhere.txt, which a workload reads",
        ),
        ("engines", {"e": {"source": "lock", "locks": ["nowhere.lock"]}}, "engines.e.locks[0] is 'nowhere.lock'"),
    ):
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(content | {name: entry}))
        with pytest.raises(BenchError, match=re.escape(f"study.yaml: {said}: no such file")):
            load_plan(tmp_path / "study.yaml", None)
    large = tmp_path / "large.lock"
    with large.open("wb") as stream:
        stream.truncate(8 * 2**20 + 1)
    (tmp_path / "study.yaml").write_text(
        yaml.safe_dump(content | {"engines": {"e": {"source": "lock", "locks": [str(large)]}}})
    )
    with pytest.raises(BenchError, match=r"large\.lock': not a readable file \(larger than 8 MiB\)"):
        load_plan(tmp_path / "study.yaml", None)
    content["workloads"]["short"]["prompt_tokens"] = {"distribution": "empirical", "file": str(tmp_path)}
    assert str(tmp_path) in refusal(content)


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128,
    "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip


def test_a_config_json_that_holds_no_model(tmp_path):
    unlike = "has an invalid value"
    path = tmp_path / "config.json"
    for changed, said in (
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"hidden_size": None}, "does not state 'hidden_size'"),
        ({"layer_types": 5}, unlike),
        ({"text_config": "x"}, "text_config is 'x'; it must be an object"),
        ({"quantization_config": {"quant_method": "gptq", "bits": "four"}}, unlike),
        (b"\xff", ""), (b"[" * 100_000, ""), (b'{"a": ' + b"9" * 5000 + b"}", ""), (b"[]", ""), (b"", ""),
    ):  # fmt: skip
        path.write_bytes(changed if isinstance(changed, bytes) else json.dumps({**LLAMA, **changed}).encode())
        with pytest.raises(BenchError) as caught:
            geometry_at(tmp_path)
        assert str(path) in str(caught.value) and said in str(caught.value), changed


# --- Axes of load: what a key of a ladder, a name of a run and a column say of it


def test_a_load_outside_of_a_study_has_the_same_bounds():
    workload = load_workload(OPEN | {"duration_s": 10.0}, source="test")
    assert workload.excess(1e4) is None
    with pytest.raises(BenchError, match=r"1e\+12 requests/s in a run, and a run of one client has 100,000 at most"):
        schedule(workload, 1e12, "seed")
