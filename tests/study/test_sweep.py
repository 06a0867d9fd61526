"""A deployment with `sweep` is the deployments that one would have written out."""

import copy
import json

import jsonschema
import pytest

from bench.beside.archive.pack import packed_study
from bench.report.measuring import jobs_line, measuring_lines, starts
from bench.study.plan import Plan
from bench.study.read import load_config, load_file
from bench.study.reference import schema
from tests.support.study import ROOT
from tests.support.swept import STUDY, study


def plan(content):
    return Plan.of(load_config(content, source="t"))


def names(sweep, **more):
    return list(plan(study(sweep, **more)).deployments)


def test_names_say_what_the_sweep_gives():
    for sweep, expected in (
        ({"max_num_seqs": [32, 64]}, ["one-seqs32", "one-seqs64"]),
        ({"model": ["mha", "mqa"], "tensor_parallel": 1}, ["one-mha-tp1", "one-mqa-tp1"]),
        ({"max_num_seqs": [32, 64], "block_size": [16, 32]},
         ["one-seqs32-block16", "one-seqs32-block32", "one-seqs64-block16", "one-seqs64-block32"]),
        ({"block_size": 16, "max_num_seqs": [32, 64]}, ["one-block16-seqs32", "one-block16-seqs64"]),
        ([{}, {"max_num_seqs": 64}, {"block_size": [16, 32], "prefix_caching": True}],
         ["one", "one-seqs64", "one-block16-prefix-on", "one-block32-prefix-on"]),
        ({"max_num_seqs": [None, 64], "kv_cache_dtype": [None, "fp8"]}, ["one", "one-kv-fp8", "one-seqs64", "one-seqs64-kv-fp8"]),
        ({"kv_cache_memory": ["64MiB", "1.5GiB"]}, ["one-kv64mib", "one-kv1.5gib"]),
        ({"flags.max-num-batched-tokens": [2048, 8192]}, ["one-max-num-batched-tokens2048", "one-max-num-batched-tokens8192"]),
        ({"flags.cache-type-k": ["q4_0", "f16"]}, ["one-cache-type-k-q4-0", "one-cache-type-k-f16"]),
        ({"environment.OMP_NUM_THREADS": ["1", "2"]}, ["one-omp-num-threads1", "one-omp-num-threads2"]),
        ({"flags.ngl": [-1, 1, "-0.5", -2.5]}, ["one-ngl-minus1", "one-ngl1", "one-ngl-minus0.5", "one-ngl-minus2.5"]),
        ({"flags.x": [1, True, 0, False]}, ["one-x1", "one-x-on", "one-x0", "one-x-off"]),
        ({"flags.enable-chunked-prefill": [True, False]}, ["one-enable-chunked-prefill-on", "one-enable-chunked-prefill-off"]),
    ):  # fmt: skip
        assert names(sweep) == expected, sweep


def test_a_name_that_would_be_too_long_ends_with_a_digest_and_stays():
    config = '{"method": "ngram", "num_speculative_tokens": %d, "prompt_lookup_max": 4}'
    found = names({"flags.speculative-config": [config % 2, config % 4]})
    assert len(set(found)) == 2
    assert all(len(name) <= 60 and name.startswith("one-speculative-config-method-ngram-") for name in found)
    assert set(found) < set(names({"flags.speculative-config": [config % 2, config % 3, config % 4, None]}))


def test_combinations_are_the_deployments_that_one_would_write_out():
    content = study({"max_num_seqs": [32, 64], "flags.seed": [1, 2]}, flags={"stream-interval": 4})
    written = copy.deepcopy(STUDY)
    one = written["deployments"].pop("one")
    written["deployments"] = {
        f"one-seqs{seqs}-seed{seed}": {**one, "max_num_seqs": seqs, "flags": {"stream-interval": 4, "seed": seed}}
        for seqs in (32, 64)
        for seed in (1, 2)
    }
    ladder = written["study"]["ladders"][0]
    written["study"]["ladders"] = [{**ladder, "deployment": name} for name in written["deployments"]]
    assert load_config(content, source="t") == load_config(written, source="t")
    assert plan(content).digest == plan(written).digest
    assert packed_study(content, plan(content), "*") == packed_study(written, plan(written), "*")


def test_the_base_in_a_ladder_stands_for_all_combinations_and_a_ladder_may_name_one():
    assert {run.deployment.name for run in plan(study({"max_num_seqs": [None, 64]})).runs} == {"one", "one-seqs64"}
    content = study({"max_num_seqs": [32, 64]})
    content["study"] |= {"baseline": "one-seqs32"}
    content["study"]["ladders"] += [{"deployment": "one-seqs64", "workload": "closed", "concurrency": [8]}]
    found = plan(content)
    assert [run.level for run in found.runs_of("one-seqs64")].count(8) == 1
    assert {row["baseline"] for row in found.rows if row["deployment"] == "one-seqs32"} == {True}


def test_what_is_added_renames_and_measures_nothing_again():
    before = plan(study({"max_num_seqs": [32, 64], "block_size": [16, 32]}))
    assert len(before.runs) == 8
    for more in (
        {"max_num_seqs": [16, 32, 64], "block_size": [16, 32]},
        {"max_num_seqs": [64, 32], "block_size": [32, 16, 8]},
        {"max_num_seqs": [32, 64], "block_size": [16, 32], "kv_cache_dtype": [None, "fp8"]},
        [{"max_num_seqs": [32, 64], "block_size": [16, 32]}, {"dtype": "float16"}],
    ):
        runs = {run.key: run.digest for run in plan(study(more)).runs}
        assert len(runs) > 8, more
        assert {run.key: run.digest for run in before.runs}.items() < runs.items(), more


def test_editors_know_the_keys_of_a_sweep():
    known = json.loads(schema())
    for sweep in ({"max_num_seqs": [1, 2], "flags.x": "y"}, [{}, {"model": "mqa", "tensor_parallel": [1, None]}]):
        content = study(sweep)
        jsonschema.validate(content, known)
        del content["deployments"]["one"]["model"]  # which the sweep may give
        jsonschema.validate(content, known)
        wrong = sweep if isinstance(sweep, dict) else sweep[1]
        wrong["max_seqs"] = [1]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(study(sweep), known)


def test_starts_of_a_server_are_those_of_the_sessions_that_lack_a_run():
    content = study({"max_num_seqs": [32, 64, 128]})
    content["study"] |= {"sessions": 2}
    content["study"]["ladders"][0] |= {"repeats": 2}
    found = plan(content)
    assert starts(found, lambda _: False, ()) == 3 * 2
    assert starts(found, lambda run: run.deployment.name != "one-seqs64", ()) == 2
    assert starts(found, lambda run: not (run.deployment.name == "one-seqs64" and found.place_of(run).session == 2), ()) == 1
    (line, *_) = measuring_lines(found, lambda run: run.deployment.name != "one-seqs64", ())
    assert line.startswith("“t”: to measure: 4 runs of one-seqs64, in 2 starts of a server. Of 12 runs")
    content["engines"]["none"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
    assert starts(plan(content), lambda _: False, ()) == 0
    (line, *_) = measuring_lines(plan(study({"max_num_seqs": list(range(1, 13))})), lambda _: False, ())
    assert "one-seqs8 and 4 more, in 12 starts of a server." in line


def test_what_goes_to_a_cluster_and_what_stays():
    h200 = Plan.of(load_file(ROOT / "config/studies/h200.yaml"))
    said = jobs_line(h200, lambda run: run.deployment.name != "gpt2-xl", ())
    assert said.startswith("On a cluster (profiles/slurm), measuring is 1 job, one a session, each of 1 GPU of the type that")
    assert said.endswith("has of h200. All else runs where the workflow does.")
    assert jobs_line(h200, lambda _: True, ()) == jobs_line(plan(study({"max_num_seqs": [32]})), lambda _: False, ()) == ""
