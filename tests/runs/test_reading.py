"""Records are what their fields declare, old ones can still be read, and a message names what is wrong."""

import json
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import yaml

from bench.beside.archive.pack import read_index
from bench.errors import BenchError
from bench.models.checkpoint_record import Checkpoint
from bench.runs import launch as launch_module
from bench.runs.deployment import DeploymentFacts, Start
from bench.runs.files import read, write_record
from bench.runs.launch import EngineRecord, Launch, Settings
from bench.runs.request_table import request_table
from bench.runs.run import RECORD, ReferenceLoad, read_record, read_run
from bench.runs.summary import RunSummary, read_run_summary, write_run_summary
from bench.study.state import remember_study
from tests.support import records
from tests.support.study import ROOT

# As the first version that resolved launches wrote them.
PLAN = {
    "parameters": 10, "device_memory_bytes": 2**34, "weight_bytes": 40, "overhead_bytes": 5, "kv_cache_bytes": 2**20, "kv_bytes_per_token": 512,
    "kv_bytes_per_token_per_device": 512, "block_size": 16, "kv_tokens": 2048,
}  # fmt: skip
LAUNCH = {
    "deployment": "a", "model": "m", "digest": "d", "served_name": "a", "base_url": None, "device": "cuda", "vocabulary": 512,
    "argv": ["vllm", "serve", "m", "--max-num-seqs", "8", "--max-num-seqs", "9", "--max-model-len=4096", "--dtype", "float16", "--block-size", "16",
             "--no-enable-prefix-caching", "--load-format", "dummy", "--enforce-eager"],
    "environment": {}, "plan": PLAN,
}  # fmt: skip
# As it was written before records were typed, to the byte; `config` is whatever a publisher wrote.
CHECKPOINT = """{
  "model": "m",
  "source": "someone/model",
  "revision": null,
  "path": "results/checkpoints/m/model",
  "config": {
    "model_type": "mamba2",
    "time_step_limit": [
      0.0,
      Infinity
    ],
    "\\u00e9": null
  },
  "parameters": 10,
  "weight_bytes": null
}
"""
INDEX_TEXT = """{
 "format": 1,
 "title": "A study of \\u00e9",
 "packed": "2026-11-01T10:00:00Z",
 "commit": null,
 "protocol": 5,
 "runs": {
  "a/r": "d"
 },
 "missing": [
  "a/s"
 ],
 "files": {
  "study.yaml": "s"
 }
}
"""
SUMMARY_TEXT = """{
  "deployment": "a",
  "run": "r",
  "trace": "\\u00e9.csv",
  "digest": "d",
  "level": 4.0,
  "repeat": 1,
  "a_column_of_then": NaN,
  "metrics_missing": [
    "x"
  ],
  "scrape_endpoint": null,
  "scrape_gaps": {
    "v": null
  }
}
"""


def refused(reads, folder, name, content):
    """The message about a record of this content."""
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(BenchError) as error:
        reads(folder / name)
    return str(error.value)


def test_what_is_written_is_read(tmp_path):
    run = records.run(reference=ReferenceLoad(round=1, seconds=(0.1, 0.2, 0.3)), environment={"A": "b"})
    launch = records.launch(plan={"kv_groups": ((1024, 6), (None, 1))}, max_num_seqs=8, environment={"A": "b"})
    starts = (Start(ready_s=50.0, first_token_s=52.5), Start(ready_s=33.0, first_token_s=34.5))
    facts = records.facts(hardware=records.MACHINE, cache_config={"x": None}, kv_tokens=7, starts=starts)
    assert facts.start_ups_s == (52.5, 34.5)
    assert records.facts(managed=False).start_ups_s == ()
    write_record(run, tmp_path / RECORD)
    write_record(launch, tmp_path / "launch.json")
    write_record(facts, tmp_path / "deployment.json")
    write_record(records.engine(), tmp_path / "engine.json")
    assert read_run(tmp_path) == run
    assert read(Launch, tmp_path / "launch.json") == launch
    assert read(DeploymentFacts, tmp_path / "deployment.json") == facts
    assert read(EngineRecord, tmp_path / "engine.json") == records.engine()
    write_record(records.checkpoint(config={"a": [1]}), tmp_path / "checkpoint.json")
    assert read(Checkpoint, tmp_path / "checkpoint.json") == records.checkpoint(config={"a": [1]})


def test_checkpoints_packs_and_summaries_are_read_and_written_to_the_byte(tmp_path):
    file = tmp_path / "checkpoint.json"
    file.write_text(CHECKPOINT)
    checkpoint = read(Checkpoint, file)
    assert (checkpoint.path, checkpoint.parameters, checkpoint.weight_bytes) == ("results/checkpoints/m/model", 10, None)
    assert checkpoint.config["time_step_limit"] == [0, float("inf")]
    file.unlink()
    write_record(checkpoint, file)
    assert file.read_text() == CHECKPOINT
    file.write_text(INDEX_TEXT)
    index = read_index(file)
    assert (index.runs, index.missing, index.files) == ({"a/r": "d"}, ("a/s",), {"study.yaml": "s"})
    assert (index.title, index.commit, index.protocol) == ("A study of é", None, 5)
    file.write_text(SUMMARY_TEXT)
    summary = read_run_summary(file)
    assert (summary.deployment, summary.run, summary.level, summary.repeat, summary.gpu_count_seen) == ("a", "r", 4, 1, None)
    assert (summary.metrics_missing, summary.counters_fell, summary.scrape_gaps) == (("x",), (), {"v": None})
    assert list(summary.figures) == list(json.loads(SUMMARY_TEXT))  # in their order, be they columns of today or not
    write_run_summary(RunSummary.of(summary.figures), file)
    assert file.read_text() == SUMMARY_TEXT


def test_settings_that_are_no_numbers_are_left_to_the_engine():
    assert launch_module.settings_of({"max-model-len": "16k", "max-num-seqs": True}) == Settings(random_weights=False)
    assert launch_module.settings_of({}) == Settings()


# Of each kind what reads it, one of them, and what is said around the place.
INDEX, SUMMARY = json.loads(INDEX_TEXT), json.loads(SUMMARY_TEXT)
KINDS = {
    "summary.json": (read_run_summary, SUMMARY, "Parse its run again: `bench parse`."),
    "launch.json": (partial(read, Launch), LAUNCH, "Remove it, and the next workflow makes it again."),
    "run.json": (read_record, asdict(records.run()), "Restore it, or discard the run"),
}


def test_a_record_that_is_none_is_named_with_its_place(tmp_path):
    rows = yaml.safe_load((ROOT / "tests/data/refused_records.yaml").read_text())
    for name, (reads, content, remedy) in KINDS.items():
        for row in rows[name]:
            change = {"plan": {**PLAN, "kv_tokens": "many"}} if "plan.kv_tokens" in row["change"] else row["change"]
            result = refused(reads, tmp_path, name, {**content, **change})
            assert result.startswith(f"{tmp_path}/{name}: not a valid {name} ("), row
            assert row["said"] in result and remedy in result, (row, result)
    for row in rows["pack.json"]:
        (tmp_path / "pack.json").write_text(json.dumps({**INDEX, **row["change"]}))
        with pytest.raises(ValueError, match=re.escape(row["said"])):
            read_index(tmp_path / "pack.json")


def test_what_is_no_record_is_refused(tmp_path):
    kinds = {"deployment.json": DeploymentFacts, "engine.json": EngineRecord, "checkpoint.json": Checkpoint}
    every = {name: partial(read, kind) for name, kind in kinds.items()} | {name: reads for name, (reads, *_) in KINDS.items()}
    for name, reads in every.items():
        for content in ("", "[]", "{}", "nothing", '{"deployment": NaN}', "[" * 100_000):
            assert refused(reads, tmp_path, name, content).startswith(f"{tmp_path}/{name}: not a valid "), (name, content[:9])


def test_a_line_that_is_no_request_is_named(tmp_path):
    file, sound = tmp_path / "requests.jsonl", asdict(records.request())
    for change, words in (
        ({"status": "200"}, "line 2 is not a request record: Expected `int | null`, got `str` - at `$.status`"),
        ({"outcome": "odd"}, "$.outcome"),
        ({"token_times_s": [0.1, None]}, "$.token_times_s[1]"),
        ({"end_s": float("nan")}, "line 2 is not a request record"),
        ({"completion_tokens": 10**30}, "cannot parse '1000000000000000000000000000000' (u128) as Int64"),
    ):
        file.write_text(f"{json.dumps(sound)}\n{json.dumps(sound | change)}\n")
        with pytest.raises(BenchError, match=re.escape(words)):
            request_table(file)


@pytest.mark.usefixtures("here")
def test_what_is_written_is_there_whole_or_as_it_was():
    """A reader of the file that was there sees no half of the new one, nor does whoever comes after a kill."""
    file = Path("results/study.json")
    file.parent.mkdir()
    for write in (
        lambda: write_record(records.facts(engine_version="1"), file),
        lambda: write_run_summary(RunSummary(level=1.0, figures={"level": 1.0}), file),
        lambda: remember_study(Path("mine.yaml")),
    ):
        file.write_text("as it was")
        with file.open() as earlier:
            write()
            assert earlier.read() == "as it was"
        assert isinstance(json.loads(file.read_text()), dict)
        assert list(file.parent.iterdir()) == [file]
