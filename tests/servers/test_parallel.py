"""Tensor, pipeline and data parallelism: one number of GPUs for everybody, memory of each device, several engines behind one endpoint."""

import copy
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.economics import economics
from bench.findings.sizing import OperatingPoint, sized
from bench.load.client import Load, LoadResult
from bench.load.exchange import Report
from bench.load.target import Target
from bench.measure import recording
from bench.measure.exposition import kv_facts
from bench.measure.recording import record_run
from bench.measure.slurm import memory_mb
from bench.models.catalogue import catalogue
from bench.models.config_json import geometry_of, geometry_of_entry
from bench.models.model import whole_config
from bench.parse.server import saturated
from bench.parse.table import summary_frame
from bench.runs.files import read, write_record
from bench.runs.launch import Launch
from bench.runs.run import RECORD, read_record
from bench.servers import launch as launch_module
from bench.servers.gpus import gpu_names
from bench.servers.launch import write_launch
from bench.servers.memory import kv_pool
from bench.servers.stages import Parallel, layers_of_stages, parallel_problem, stages_of
from bench.study.config import Thresholds
from bench.study.decision import Decision
from bench.study.read import load_workload
from bench.workloads.schedule import schedule
from tests.support import records
from tests.support.launches import checkpoint_of, launched, spec_of
from tests.support.study import TINY

EIGHT = {"pipeline_parallel": 2, "data_parallel": 4}


# One number of GPUs


def test_four_engines_of_two_stages_are_eight_gpus_for_everybody(content, summary):
    """The launch, the session's telemetry, sizing, cost and the summary: all of them say eight."""
    spec = spec_of(content, **EIGHT)
    launch = launched(spec)
    assert spec.gpus == launch.gpus == 8
    assert gpu_names(spec, {}) == list("01234567")
    row = {**summary, "throughput_requests_per_s": 2.0, "throughput_tokens_per_s": 1000.0}
    runs = summary_frame([row], {"a": launch}, {"a": records.facts(kv_tokens=4 * 2048, kv_blocks=256, engines=4)}, Thresholds())
    assert runs["gpus"].to_list() == [8]
    assert economics(runs, Decision(price_per_hour=2.0), None)["fixed_per_h"].to_list() == [16.0]
    point = {"c_max": 4.0, "operate_at": 4.0, "usable_rps": 2.0, "latency_s": 2.0, "prompt_tokens": 32.0, "output_tokens": 32.0,
             "in_flight": 4.0, "in_flight_peak": 4.0, "unit": "requests in flight", "usable_low": None, "usable_high": None}  # fmt: skip
    found = sized(OperatingPoint.of(point, runs.row(0, named=True)), 10, safety=1.2, gpu_hour=2.0)
    assert (found["gpus_per_instance"], found["instances"], found["gpus"], found["cost"]["hour"]) == (8, 5, 48, 96.0)


def test_gpus_of_an_instance(content):
    for source, device, parallel, gpus in (
        ("command", "cuda", {}, 1),
        ("command", "cuda", {"tensor_parallel": 2, **EIGHT}, 16),
        ("command", "cpu", {"tensor_parallel": 2}, 0),
        ("external", None, {}, None),
        ("external", "cuda", {}, None),
        ("external", "cpu", {}, 0),
        ("external", None, {"tensor_parallel": 1}, 1),  # the user's word
        ("external", "cuda", {"tensor_parallel": 2, "data_parallel": 2}, 4),
    ):
        changed = copy.deepcopy(content)
        assert spec_of(changed, source=source, device=device, **parallel).gpus == gpus, (source, device, parallel)


# Memory


def test_layers_are_dealt_out_as_vllm_does():
    """The counts are those of `get_pp_indices` of vLLM 0.32.0."""
    for counts in ([20, 20, 20, 20], [27, 27, 26], [15, 15, 16, 15], [5, 6, 6, 6, 5], [2, 2, 2, 1], [7, 7, 7, 7, 7, 7, 6]):
        stages = layers_of_stages(sum(counts), len(counts))
        assert list(map(len, stages)) == counts
        assert [layer for stage in stages for layer in stage] == list(range(sum(counts)))


def geometry(key):
    return geometry_of_entry(catalogue()[key])


def test_a_block_of_a_stage_holds_what_vllm_makes_of_it():
    """Gemma's layers with windows: layers a block, of `_get_kv_cache_bytes_per_block` of vLLM 0.32.0 for each stage."""
    gemma = geometry("gemma-3-27b")
    page = 16 * 2 * 16 * 128 * 2
    for held in ([10], [5, 5], [3, 3, 3, 3], [1, 2, 2, 2, 2, 2, 2, 1]):
        parts = layers_of_stages(gemma.layers, len(held))
        assert [kv_pool(gemma, dtype="bfloat16", layers=part).block_bytes // page for part in parts] == held
    assert kv_pool(gemma, dtype="bfloat16").block_bytes == 10 * page


@pytest.mark.parametrize("tied", [False, True])
def test_stages_by_hand(tied):
    """Three layers of 36,864 linear parameters and seven norms of 64, dealt out; a table of 512 × 64 (two where not tied)."""
    model = geometry_of({**whole_config(TINY | {"num_hidden_layers": 3}), "tie_word_embeddings": tied})

    def weights(*parallel):
        return [stage.weights for stage in stages_of(model, Parallel(*parallel), dtype="float16", kv_dtype="float16")]

    layer, table = (2 * (3 * 36_864 + 7 * 64)) / 3, 2 * 512 * 64
    whole = round(3 * layer) + (1 if tied else 2) * table
    assert weights() == [whole]
    assert weights(2, 1) == [whole // 2]
    assert weights(1, 3) == [round(layer + table), round(layer), round(layer + table)]
    assert weights(1, 2) == [round(2 * layer + table), round(layer + table)]


def test_experts_are_shared_by_engines_and_the_rest_is_not():
    model = geometry("deepseek-v3")
    one, eight = (stages_of(model, Parallel(data=n), dtype="bfloat16", kv_dtype="bfloat16")[0].weights for n in (1, 8))
    assert one - eight == pytest.approx(model.experts.parameters * model.quantised_bytes * 7 / 8, rel=0.004)


def deployed(tmp_path, content, model, **deployment):
    """`launch.json` of a catalogue's model on GPUs of 80 GiB."""
    content["models"]["m"] = {"catalogue": model}
    content["deployments"]["a"] = {"model": "m", "engine": "e"}
    spec = spec_of(content, **deployment)
    write_record(records.engine(), tmp_path / "engine.json")
    write_record(checkpoint_of(spec), tmp_path / "checkpoint.json")
    paths = {name: tmp_path / f"{name}.json" for name in ("engine", "checkpoint", "launch")}
    write_launch(spec, 640, **paths)
    return read(Launch, paths["launch"])


def test_each_engine_has_a_cache_of_its_own_and_a_request_lives_in_one(tmp_path, content, monkeypatch):
    monkeypatch.setattr(launch_module, "least_memory", lambda _: 80 * 2**30)
    one, four = (
        deployed(tmp_path, content, "llama-3.1-8b", kv_cache_memory="1GiB", data_parallel=n).plan.kv_tokens for n in (1, 4)
    )
    assert (one, four) == (2**30 // 131_072, 4 * 2**30 // 131_072)
    # 640 tokens need 80 MiB: more than one engine has, though less than all four of them together.
    with pytest.raises(
        BenchError, match=r"384 tokens for each of 4 engines at 131,072 bytes each; one request needs 640 tokens"
    ):
        deployed(tmp_path, content, "llama-3.1-8b", kv_cache_memory="48MiB", data_parallel=4)


# Counts of devices that cannot work


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        ({"tensor_parallel": 3}, r"tensor_parallel is 3: .* cannot share 4 query heads, 2 KV heads, .* It may be 1, 2, 4\."),
        ({"pipeline_parallel": 3}, r"pipeline_parallel is 3: each stage needs a layer, .* has 2\. It may be 1 to 2\."),
    ],
)
def test_devices_that_cannot_share_the_model_are_refused(tmp_path, content, parallel, message):
    """When the configuration is read where it states the shape, else when the checkpoint is known; never of an external server."""
    with pytest.raises(BenchError, match=r"t: deployments\.a\." + message):
        spec_of(content, **parallel)
    external = spec_of(content, source="external", **parallel)
    checkpoint = checkpoint_of(external)
    content["models"]["m"] = {"path": str(tmp_path)}
    write_record(records.engine(), tmp_path / "engine.json")
    write_record(checkpoint, tmp_path / "checkpoint.json")
    paths = {name: tmp_path / f"{name}.json" for name in ("engine", "checkpoint", "launch")}
    with pytest.raises(BenchError, match=r"^deployments\.a\." + message):
        write_launch(spec_of(content, **parallel), 64, **paths)


def test_what_vllm_deals_out():
    for model, tensor, works in (
        ("llama-3.3-70b", 8, True),
        ("llama-3.3-70b", 16, True),  # each KV head twice
        ("llama-3.3-70b", 6, False),
        ("gpt2", 6, True),  # the study ran it so: 12 heads, and 50,304 rows of padded vocabulary
        ("gpt2-xl", 5, False),  # divides 25 heads, not the vocabulary
        ("deepseek-v3", 16, True),  # the latent vector is each device's
    ):
        assert (parallel_problem(geometry(model), Parallel(tensor)) is None) == works, (model, tensor)


# Several engines behind one endpoint


def cache_config(engine, blocks=384, **more):
    labels = {"block_size": 32, "enable_prefix_caching": "False", "engine": engine, "num_gpu_blocks": blocks, **more}
    return "vllm:cache_config_info{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "} 1.0\n"


def test_the_kv_cache_of_all_engines_behind_an_endpoint():
    for engines, expected in (
        ([{}], (1, 384, 12_288, 32, False)),
        ([{}] * 4, (4, 384, 12_288, 32, False)),  # vLLM tells the sum with each of its engines
        ([{"kv_cache_size_tokens": 3072}] * 4, (4, 384, 12_288, 32, False)),
        ([{"kv_cache_size_tokens": 12_288}] * 4, (4, 1536, 49_152, 32, False)),  # each its own
        ([{}, {"blocks": 300}], (2, 684, 21_888, 32, False)),
        ([{}, {"block_size": 16}], (2, 384, None, None, False)),
        ([{}, {"enable_prefix_caching": "True"}], (2, 384, 12_288, 32, None)),
        ([{}, {"blocks": "None"}], (2, None, None, 32, False)),
    ):
        result = kv_facts("".join(cache_config(i, **more) for i, more in enumerate(engines)), {})
        told = (result.engines, result.kv_blocks, result.kv_tokens, result.block_size, result.prefix_caching)
        assert (told, result.cache_config["engine"]) == (expected, "0" if len(engines) == 1 else None), engines


def test_sglang_s_ranks_of_data_parallelism_add_up_and_those_of_tensor_parallelism_do_not():
    text = "".join(
        f'sglang:{name}{{dp_rank="{dp}",tp_rank="{tp}"}} {value}\n'
        for name, value in (("max_total_num_tokens", 3072.0), ("num_pages", 192.0), ("page_size", 16.0))
        for dp in (0, 1)
        for tp in (0, 1)
    )
    result = kv_facts(text, {})
    assert (result.engines, result.kv_tokens, result.kv_blocks, result.block_size) == (2, 6144, 384, 16)


def test_a_cache_of_few_blocks_is_full_by_one_engine_s_blocks():
    """Of 20 blocks in four engines each has 5: the two that are free of 5 hold no prompt of 32 tokens, those of 20 would."""
    run = {"kv_usage_peak": [0.6], "kv_usage_queued": [0.6], "waiting_standing": [1.0], "running_peak": [2.0], "preemptions": [0.0],
           "kv_tokens": [640], "kv_blocks": [20], "prompt_tokens_p90": [32.0], "max_num_seqs": [256]}  # fmt: skip
    assert pl.DataFrame({**run, "engines": [4]}).select(saturated()).item() is True
    assert pl.DataFrame({**run, "engines": [1]}).select(saturated()).item() is False


class Unsent:
    """A load that is planned, and said to be sent."""

    longer = None

    def __init__(self, _target, load):
        self._planned = schedule(load.workload, load.level, load.schedule_seed)

    def prime(self):
        return []

    def waiting(self, _alive):
        process = Report(records=[], end=0.0, lags=[0.0], cpu_s=0.0, reads=1, clock_skew_s=0.0, realtime=False)
        return nullcontext(lambda: LoadResult(records=[], planned=self._planned, start=0.0, end=0.0, processes=[process]))


def test_which_engine_has_a_prefix_is_not_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.jsonl").write_text('{"prompt": "Why?"}\n')
    alone, shared = {"prompt_tokens": 64}, {"prompt_tokens": 64, "cache": "shared", "shared_prefix": 0.5}
    monkeypatch.setattr(recording, "PreparedLoad", Unsent)
    for workload, engines, block, expected in (
        (alone, 4, 16, 0),
        (shared, 1, 16, 3 * 32),
        (shared, 4, 16, None),
        (shared, 1, 0, 0),  # there is no cache
        (shared, 1, None, None),  # nothing says whether there is one
        (alone, 1, None, 0),
        # What a file's prompts have in common is not known.
        ({"prompts": "own.jsonl", "endpoint": "chat", "cache": "natural"}, 1, 16, None),
    ):
        load = Load(load_workload({"arrival": "burst", "output_tokens": 2, **workload}, source="t"), 3, "s", vocabulary=512)
        known = {"header": records.header(), "scrape_interval_s": None, "prefix_block_size": block, "engines": engines}
        record_run(Target("http://127.0.0.1:1", "m"), load, tmp_path, **known)
        assert read_record(tmp_path / RECORD).prefix.expected_tokens == expected, (workload, engines, block)


def test_settings_are_those_of_servers_that_are_started_and_of_others_what_is_given(content):
    """Keys that mean nothing to the backend are none; flags are text."""
    flags = {"max-num-batched-tokens": 2048, "enforce-eager": True}
    own = spec_of(content, flags=flags, kv_cache_memory=None).settings
    assert own["max_num_seqs"] == 256 and own["gpu_memory_utilization"] == 0.9 and "cores" not in own
    assert {name: own[name] for name in own if name.startswith("flag_")} == {
        "flag_max_num_batched_tokens": "2048", "flag_enforce_eager": "true"
    }  # fmt: skip
    for key in [key for key in content["deployments"]["a"] if key not in {"model", "engine"}]:
        del content["deployments"]["a"][key]
    assert spec_of(content, source="external", tensor_parallel=2).settings == {"tensor_parallel": 2}


def test_a_session_asks_for_what_all_replicas_take(content):
    spec = spec_of(content, tensor_parallel=2, replicas=2, router="haproxy", cores=3)
    launch = records.launch(tensor_parallel=2, replicas=2, plan={"weight_bytes": 10 * 2**30})
    assert (launched(spec).gpus, spec.gpus_started, memory_mb(launch, spec.gpus_started)) == (4, 4, (4 * 10 + 6) * 1024)
    assert gpu_names(spec, {}) == ["0", "1", "2", "3"]


def test_a_fleet_of_unknown_gpus_has_instances_and_no_price():
    found = sized(OperatingPoint(usable_rps=2.0, gpus=None), 10, gpu_hour=2.0)
    assert (found["instances"], found["gpus"], found["cost"]) == (5, None, None)
    assert found["utilisation_at_peak"] == pytest.approx(5 / 7)


def test_a_70b_in_four_stages_fits_where_it_does_not_in_one(tmp_path, content, monkeypatch):
    monkeypatch.setattr(launch_module, "least_memory", lambda _: 80 * 2**30)
    with pytest.raises(BenchError, match=r"weights 131\.\d+ GiB .*or raise tensor_parallel or pipeline_parallel"):
        deployed(tmp_path, content, "llama-3.3-70b")
    plan = deployed(tmp_path, content, "llama-3.3-70b", pipeline_parallel=4).plan
    assert plan.kv_bytes_per_token_per_device == 20 * 4096
    assert plan.kv_tokens == plan.kv_cache_bytes // (16 * 20 * 4096) * 16
    # The first and the last stage have a table of 1.96 GiB more, and the fewest blocks count.
    assert plan.weight_bytes / 2**30 == pytest.approx((20 * 855_654_400 + 128_256 * 8192 + 2048) * 2 / 2**30)
