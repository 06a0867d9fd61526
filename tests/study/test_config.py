"""A configuration that is taken: what it comes to, and its reference. What is refused: tests/study/test_refusals.py."""

import json

from bench.study import Plan, load_config, load_file
from bench.study.reference import reference, schema
from bench.study.renamed import with_new_names
from tests.support.study import ROOT


def test_every_shipped_configuration_is_accepted():
    for file in (ROOT / "config").rglob("*.yaml"):
        assert load_file(file).study.ladders, file


def test_a_baseline_shares_a_load_with_another_deployment(content):
    content["deployments"]["b"] = content["deployments"]["a"]
    content["study"]["baseline"] = "b"
    content["study"]["ladders"].append({"deployment": "b", "workload": "short", "concurrency": [4, 8]})
    rows = Plan.of(load_config(content, source="f.yaml")).rows
    assert {(row["deployment"], row["baseline"]) for row in rows} == {("a", False), ("b", True)}


def test_a_merged_key_may_be_overridden():
    config = load_file(ROOT / "config/config.yaml")
    assert config.models["tiny-mqa"].architecture.kv_heads == 1
    assert config.models["tiny-mha"].architecture.kv_heads == 4


def test_the_reference_and_the_schema_are_those_of_the_models():
    assert (ROOT / "config/README.md").read_text() == reference(), "run `bench config` and commit the result"
    assert (ROOT / "workflow/schemas/config.schema.json").read_text() == schema(), "run `bench config` and commit the result"


def test_every_key_has_a_meaning():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert not [row for row in rows if row.rstrip().endswith("|  |")]


def test_the_reference_has_each_part_of_a_file():
    """By the sentence that says what it is."""
    parts = json.loads(schema())["$defs"].values()
    assert not [
        part["title"] for part in parts if "properties" in part and part["description"].splitlines()[0] not in reference()
    ]


def test_renaming_a_key_measures_nothing_again(content):
    content["engines"]["e"]["backend"] = "cuda"
    engine = Plan.of(load_config(content, source="t")).deployments["a"].identity["engine"]
    assert engine == {"source": "command", "command": ["true"], "device": "cuda"}


def test_an_older_packs_keys_are_brought_up_to_date(content):
    older = {**content, "engines": {"e": {**content["engines"]["e"], "device": "cuda"}}, "decision": {"device": "h100"}}
    config = load_config(with_new_names(older), source="t")
    assert (config.engines["e"].backend, config.decision.accelerator) == ("cuda", "h100")
