"""A configuration that is taken, and its runs: names that say all, digests that change when a measurement must.

What is refused: tests/study/test_refusals.py.
"""

import json

import pytest

from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.read import load_config, load_file
from bench.study.reference import reference, schema
from tests.support.study import ROOT


def plan_of(content, **changes):
    return Plan.of(load_config({**content, **changes}, source="test"), root=ROOT)


def test_what_is_part_of_what_a_deployment_is(content):
    """A model that was edited measures anew; a key that was renewed does not."""
    content["engines"]["e"] = {"source": "external", "base_url": "http://h"}
    catalogued = {"models": {"m": {"catalogue": "gpt2-xl"}}}
    packaged, server = {"package": f"a==1 --hash=sha256:{'0' * 64}", "path": "m.gguf"}, {"e": content["engines"]["e"]}
    local = {"e": {"kind": "llama.cpp", "source": "command", "command": ["llama-server"]}}
    for before, after, same in (
        (catalogued, {"models": {"m": {"catalogue": "gpt2-xl", "config": {"n_layer": 47}}}}, False),
        (
            {"models": {"m": packaged}, "engines": local},
            {"models": {"m": {**packaged, "package": f"a==1 --hash=sha256:{'1' * 64}"}}, "engines": local},
            False,
        ),
        ({}, {"engines": {"e": {**server["e"], "headers": {"X-Key": "$A_KEY"}}}}, True),
        ({}, {"engines": {"e": {**server["e"], "metrics": "http://h:1/metrics"}}}, False),
    ):
        digests = [plan_of(content, **changes).deployments["a"].digest for changes in (before, after)]
        assert (digests[0] == digests[1]) is same, after


def test_a_run_is_called_by_all_that_defines_its_load_and_repeats_multiply(content):
    runs = plan_of(content).runs
    assert [run.name.rsplit("_", 1) for run in runs] == [
        [f"short_burst_p32_o32_c{level:04}_r1", run.digest[:8]] for level, run in zip((1, 2, 4), runs, strict=True)
    ]
    content["study"]["ladders"][0]["repeats"] = 3
    runs = plan_of(content).runs
    assert len(runs) == len({run.name for run in runs}) == len({run.digest for run in runs}) == 9


def test_a_changed_workload_or_deployment_is_another_run_in_another_folder(content):
    before = plan_of(content).runs[0]
    content["workloads"]["short"]["output_tokens"] = 33
    assert plan_of(content).runs[0].record != before.record
    content["workloads"]["short"]["output_tokens"] = 32
    assert plan_of(content).runs[0].record == before.record
    content["deployments"]["a"]["max_num_seqs"] = 8
    assert plan_of(content).runs[0].record != before.record


def test_words_and_thresholds_change_no_digest(content):
    before = [run.digest for run in plan_of(content).runs]
    content["study"]["title"] = "other"
    content["thresholds"] = {"scrape_gap_s": 9.0}
    assert [run.digest for run in plan_of(content).runs] == before


def test_a_target_that_was_taken_for_a_study_is_named(content, here):
    with pytest.raises(BenchError, match=r"^results/figures/all is a target and no study\. Write `--` before the targets"):
        load_config(content, source="t", files=[here / "results/figures/all"])


def test_select_narrows_and_refuses_what_matches_nothing(content):
    whole = plan_of(content)
    assert len(whole.runs) == len(whole.every)
    two = [whole.runs[0].key, whole.runs[-1].key]
    assert [run.key for run in plan_of(content, select=two).runs] == two
    plan = plan_of(content, select="*c0002*")
    assert len(plan.every) == len(whole.every) > len(plan.runs)
    assert [run.level for run in plan.runs] == [2]
    with pytest.raises(BenchError, match=r"matches none of the study's 3 runs\. Runs have names such as a/short_burst"):
        plan_of(content, select="*c0009*")


def test_every_shipped_configuration_is_accepted():
    for file in (ROOT / "config").rglob("*.yaml"):
        assert load_file(file).study.ladders, file


def test_the_reference_and_the_schema_are_those_of_the_models():
    assert (ROOT / "config/README.md").read_text() == reference(), "run `make config` and commit the result"
    assert (ROOT / "workflow/schemas/config.schema.json").read_text() == schema(), "run `make config` and commit the result"


def test_every_key_and_part_of_a_file_has_its_meaning_in_the_reference():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert not [row for row in rows if row.rstrip().endswith("|  |")]
    parts = [part for part in json.loads(schema())["$defs"].values() if "properties" in part]
    assert not [part["title"] for part in parts if part["description"].splitlines()[0] not in reference()]
