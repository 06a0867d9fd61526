"""What is refused of a configuration: before any job starts, with the key, the value and the fix."""

import copy
import re

import pytest
import yaml

from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.read import load_config, load_workload
from tests.support.study import CONTENT, ROOT
from tests.support.swept import study

ROWS = yaml.safe_load((ROOT / "tests/data/refusals.yaml").read_text())


def refusal(load, *given, **more):
    """What is said; nothing where it is taken."""
    try:
        load(*given, **more)
    except BenchError as error:
        return str(error)
    return ""


def changed(content, changes):
    """A study with other values at these paths."""
    content = copy.deepcopy(content)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at = content
        for key in parents:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        at[int(last) if isinstance(at, list) else last] = value
    return content


def planned(content):
    Plan.of(load_config(content, source="x.yaml"))


@pytest.mark.parametrize("group", ROWS)
def test_what_cannot_be_is_refused_with_its_key(group):
    begun = changed(CONTENT, ROWS[group].get("study", {}))
    planned(begun)
    for row in ROWS[group]["rows"]:
        said = refusal(planned, changed(begun, {path: value for path, value in row.items() if path != "said"}))
        assert re.search(".*".join(re.escape(part.strip()) for part in row["said"].split("…")), said, re.DOTALL), (row, said)
        assert "kept-to-ourselves" not in said and len(said) < 1500


def test_a_value_too_long_to_print_is_named_and_very_many_runs_are_counted():
    for path, value, said in (
        ("study.ladders.0.concurrency", list(range(1, 100_003)), "100,002 runs"),
        ("study.ladders.0.prompt_tokens", list(range(1, 40_000)), "119,997 runs"),
        ("decision.slo", [f"ttft_p99={'9' * 400}s"], "decision.slo[0]"),
        ("deployments.a.kv_cache_memory", "9" * 399 + "GiB", "no memory has more than 1,048,576 GiB"),
        ("deployments.a.kv_cache_memory", "9" * 35 + "GiB", "no memory has more than 1,048,576 GiB"),
        (
            "deployments.a.kv_cache_memory",
            [10**5000],
            "deployments.a.kv_cache_memory is a value too long to print: a size is",
        ),
        ("engines.e", {"source": "external", "base_url": f"http://{'a' * 300}"}, "engines.e.base_url is"),
    ):
        told = refusal(planned, changed(CONTENT, {path: value}))
        assert said in told and len(told) < 1000, (path, told)


def test_every_fault_is_told_at_once_with_the_file():
    wrong = changed(CONTENT, {"study.ladders.0.concurrency.0": 0, "deployments.a.modle": "m"})
    assert refusal(load_config, wrong, source="f.yaml").count("f.yaml: ") == 2
    alone = {"arrival": "burst", "prompt_token": 8, "output_tokens": 8}
    assert refusal(load_workload, alone, source="f").startswith("f: prompt_token is not a key. Did you mean prompt_tokens?")


def test_a_fault_of_several_combinations_is_told_once_as_the_file_has_it():
    for sweep, more, said in (
        ({"tensor_parallel": [1, 2, 3], "max_num_seqs": [32, 64]}, {"model": "mha"},
         "t: deployments.one.tensor_parallel is 3: so many devices cannot share 4 query heads"),
        ({"max_num_seqs": [32, 64]}, {"blok_size": 4}, "t: deployments.one.blok_size is not a key. Did you mean block_size?"),
        ({"environment.OMP_NUM_THREADS": [1]}, {}, "t: deployments.one.environment.OMP_NUM_THREADS is 1: it should be a valid string"),
    ):  # fmt: skip
        told = refusal(load_config, study(sweep, **more), source="t")
        assert told.startswith(said) and len(told.splitlines()) == 1, told
