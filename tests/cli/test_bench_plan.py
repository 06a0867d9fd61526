"""`bench plan`: terms that add up, the study's capacities, answers in words, and every model on every device."""

import json
import re
from datetime import date

import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.models.catalogue import Accelerator, accelerator_named, accelerators, catalogue
from bench.models.config_json import geometry_of, geometry_of_entry
from bench.models.model import whole_config
from bench.servers.kind import OnGpu
from bench.servers.plan import Demand, Setting, choices, plan
from bench.servers.stages import tensor_parallel_sizes
from bench.servers.vllm import VLLM
from tests.support.study import TINY

GIB = 2**30
SMALL = geometry_of(whole_config(TINY | {"max_position_embeddings": 4096}))
DEVICE = Accelerator(title="made up", memory=4 * GIB, bandwidth_tb_s=1, bf16_tflops=1, power_w=1, source="by hand")
KEYS = ("weight_bytes", "kv_bytes_per_token", "kv_capacity_tokens", "predicted_saturation", "min_gpus")


def planned(capsys, *arguments):
    assert main(["plan", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def geometries():
    return {key: geometry_of_entry(entry) for key, entry in catalogue().items()}


def test_a_plan_by_hand():
    told = plan(SMALL, DEVICE, Demand(128, 512), Setting())
    # A layer: attention 64 × 16 × (2 × 4 + 2 × 2), MLP 3 × 64 × 128, two norms of 64. Two layers, two tables of 512 × 64, one norm.
    assert told["weight_bytes"] == 2 * (2 * (12_288 + 24_576 + 128) + 2 * 32_768 + 64) == 279_168
    assert told["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2 == 256
    assert told["kv_bytes_per_request"] == 256 * 640
    assert told["terms"] == {
        "device_memory_bytes": 4_294_967_296,
        "share": 0.9,
        "budget_bytes_per_gpu": 3_865_470_566,
        "weight_bytes_per_gpu": 279_168,
        # Sampling, 14.5 × 512 × 256 beside 2,048 × 64 × 2 and 0.05 GiB; a step of 2,048 × (6 × 128 + 8.5 × 64) is less.
        "activation_bytes_per_gpu": 55_849_779,
        "overhead_bytes_per_gpu": 1_106_598_323,  # 0.45 and 0.55 GiB, and 0.0003 for each of 51 graphs of two layers
        "kv_cache_bytes_per_gpu": 2_702_743_296,
        "kv_bytes_per_token_per_gpu": 256,
        "block_size": 16,
        "headroom": 0.3,
    }
    assert told["kv_capacity_tokens"] == 659_849 * 16  # whole blocks of 4,096 bytes
    assert told["predicted_saturation"] == 659_849 / 40
    assert (told["min_gpus"], told["gpus_with_headroom"], told["tensor_parallel_sizes"]) == (1, 1, [1, 2, 4])
    assert [note[:39] for note in told["notes"]] == [
        "the weights are estimated: they are cou",
        "at most 256 sequences run in a step (--",
    ]
    # Two GPUs split weights and KV heads; of four, each KV head is held by two. GPUs of 4 GiB have no fast links.
    two, four = (plan(SMALL, DEVICE, Demand(128, 512), Setting(tensor_parallel=n))["terms"] for n in (2, 4))
    assert two["overhead_bytes_per_gpu"] == 1_106_598_323
    assert (two["weight_bytes_per_gpu"], four["weight_bytes_per_gpu"]) == (139_584, 69_792)
    assert two["kv_bytes_per_token_per_gpu"] == four["kv_bytes_per_token_per_gpu"] == 128


def ceilings(tensor_parallel=1, *, device=DEVICE, **setting):
    return plan(SMALL, device, Demand(128, 512), Setting(tensor_parallel=tensor_parallel, **setting))["ceilings"]


def test_ceilings_by_hand():
    """Reading is the limit at 1,000 TFLOP/s, and the arithmetic at 0.001; a request's middle is at 128 + 512 ÷ 2 = 384 tokens."""
    reads = DEVICE.model_copy(update={"bf16_tflops": 1000})
    told = ceilings(device=reads)
    weights, kv = 279_168, 384 * 256
    assert told["decode_tokens_per_s"] == pytest.approx(1e12 / weights)
    assert told["decode_tokens_per_s_at_context"] == pytest.approx(1e12 / (weights + kv))
    assert told["tpot_s"] == pytest.approx((weights + kv) / 1e12)
    # 16,496 requests have memory and 256 a place.
    assert told["decode_tokens_per_s_at_saturation"] == pytest.approx(256e12 / (weights + 256 * kv))
    ten = ceilings(device=reads, max_num_seqs=10)
    assert ten["decode_tokens_per_s_at_saturation"] == pytest.approx(10e12 / (weights + 10 * kv))
    # Two GPUs split the two KV heads, four hold each twice, and read them twice.
    assert ceilings(2, device=reads)["decode_tokens_per_s_at_context"] == pytest.approx(2e12 / (weights + kv))
    assert ceilings(4, device=reads)["decode_tokens_per_s_at_context"] == pytest.approx(4e12 / (weights + 2 * kv))
    # Layers of 73,728 parameters and five norms of 64, an output of 512 × 64, and 4 heads × 32 × 384 tokens in two layers.
    slow = DEVICE.model_copy(update={"bf16_tflops": 0.001})
    flop = 2 * (73_728 + 5 * 64) + 2 * 32_768 + 2 * 4 * 32 * 2 * 384
    assert ceilings(device=slow)["decode_tokens_per_s_at_context"] == pytest.approx(1e9 / flop)
    assert ceilings(2, device=slow)["decode_tokens_per_s_at_context"] == pytest.approx(2e9 / flop)
    assert ceilings(device=slow)["ttft_s"] == pytest.approx(128 / ceilings(device=slow)["prefill_tokens_per_s"])
    assert [ceilings(n, device=slow)["ridge_flop_per_byte"] for n in (1, 4)] == [0.001, 0.001]


def test_there_is_no_speed_at_saturation_of_less_than_one_request():
    """Blocks of 4,096 bytes, 40 a request: the memory that holds them all, and the one with a block less."""
    rest = 279_168 + 55_849_779 + 1_106_598_323
    one, less = (DEVICE.model_copy(update={"memory": rest + blocks * 4096}) for blocks in (40, 39))
    told = plan(SMALL, one, Demand(128, 512), Setting(share=1.0))
    assert (told["predicted_saturation"], told["kv_capacity_tokens"], told["min_gpus"]) == (1, 640, 1)
    assert told["ceilings"]["decode_tokens_per_s_at_saturation"] == told["ceilings"]["decode_tokens_per_s_at_context"]
    told = plan(SMALL, less, Demand(128, 512), Setting(share=1.0))
    assert (told["predicted_saturation"], told["kv_capacity_tokens"], told["min_gpus"]) == (39 / 40, 624, 2)
    assert told["ceilings"]["decode_tokens_per_s_at_saturation"] is None


def test_a_request_of_the_whole_context_is_held_and_headroom_leaves_a_share_free():
    assert plan(SMALL, DEVICE, Demand(4095, 1), Setting())["predicted_saturation"] == 659_849 / 256
    assert plan(SMALL, DEVICE, Demand(4095, 1), Setting())["min_gpus"] == 1
    beyond = plan(SMALL, DEVICE, Demand(4095, 2), Setting())
    assert (beyond["predicted_saturation"], beyond["min_gpus"], beyond["min_tensor_parallel"]) == (None, None, None)
    demand = Demand(128, 512, 16_496)  # one request less than the 16,496.2 that 4 GiB hold
    assert plan(SMALL, DEVICE, demand, Setting())["min_gpus"] == 1
    wide = DEVICE.model_copy(update={"memory": round(4 * GIB * 1.3) + GIB // 1000})
    assert plan(SMALL, wide, demand, Setting())["gpus_with_headroom"] == 1
    tight = DEVICE.model_copy(update={"memory": round(4 * GIB * 1.29)})
    assert plan(SMALL, tight, demand, Setting())["gpus_with_headroom"] != 1


def test_the_most_gpus_that_are_looked_at():
    """64 and no more: where they lack a little, 65 would do, and are not looked at."""
    large = geometry_of(whole_config({
        "model_type": "llama", "num_hidden_layers": 128, "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 64,
        "head_dim": 128, "intermediate_size": 28_672, "vocab_size": 320, "max_position_embeddings": 256,
    }))  # fmt: skip
    weights = 2 * large.parameters
    engine = VLLM().gpu_overhead(large, OnGpu(8 * GIB, 2, 256, tensor_parallel=64))
    kv = 128 * 2 * 64 * 128 * 2 * 16  # one request of a block
    enough, short = ((weights + kv) // 64 + engine + more for more in (2, -100_000))
    for memory, found in ((enough, 64), (short, None)):
        device = DEVICE.model_copy(update={"memory": memory})
        told = plan(large, device, Demand(8, 8), Setting(share=1.0))
        assert (told["min_gpus"], told["min_tensor_parallel"]) == (found, found)


def test_the_rule_of_thumb_by_hand():
    """279,168 bytes of weights, 20 % more, 10 requests of 163,840 bytes; 7.5 % of each GPU is the framework's."""
    told = plan(SMALL, DEVICE.model_copy(update={"memory": 1_000_000}), Demand(128, 512, 10), Setting())["rule_of_thumb"]
    assert told == {
        "weight_bytes": 279_168,
        "kv_cache_bytes": 1_638_400,
        "activation_bytes": 55_834,
        "framework_bytes_per_gpu": 75_000,
        "min_gpus": 3,  # 1,973,402 ÷ 925,000 = 2.13
        "gpus_with_headroom": 4,  # 3.9
    }


def test_quantised_weights_keep_embeddings_in_16_bit_and_fp8_needs_a_device_that_has_it(capsys):
    common = ("--model", "llama-3-8b", "--accelerator", "h100")
    told = {dtype: planned(capsys, *common, "--dtype", dtype) for dtype in ("bfloat16", "fp8", "int8", "int4", "float32")}
    weights = {dtype: each["weight_bytes"] for dtype, each in told.items()}
    assert weights["bfloat16"] == 2 * 8_030_261_248 and weights["float32"] == 2 * weights["bfloat16"]
    linear = 32 * (4096 * 128 * (2 * 32 + 2 * 8) + 3 * 4096 * 14_336 + 2 * 4096) + 4096  # with the norms
    assert weights["fp8"] == weights["int8"] == weights["bfloat16"] - linear
    assert weights["int4"] == weights["bfloat16"] - linear * 3 // 2
    ridge = {dtype: round(each["ceilings"]["ridge_flop_per_byte"]) for dtype, each in told.items()}
    assert ridge["fp8"] == 591
    assert ridge["bfloat16"] == ridge["int8"] == ridge["int4"] == 295  # int8, int4: of the weights alone
    told = planned(capsys, "--model", "llama-3-8b", "--accelerator", "a100-80g", "--dtype", "fp8")
    assert told["ceilings"]["ridge_flop_per_byte"] == pytest.approx(312 / 2.039)
    assert told["notes"][0].startswith("the device has no FP8 arithmetic")
    quantised = planned(capsys, "--model", "deepseek-v3", "--accelerator", "h200", "--dtype", "int4", "--tensor-parallel", "8")
    assert quantised["notes"][0].startswith("the checkpoint is quantised already")
    assert quantised["ceilings"]["ridge_flop_per_byte"] == pytest.approx(1978.9 / 4.8)  # blocks of FP8 are FP8


def test_an_fp8_cache_holds_twice_as_much(capsys):
    common = ("--model", "llama-3-8b", "--accelerator", "h100")
    half, whole = planned(capsys, *common, "--kv-dtype", "fp8"), planned(capsys, *common)
    assert (half["kv_bytes_per_token"], whole["kv_bytes_per_token"]) == (65_536, 131_072)
    assert half["kv_capacity_tokens"] == pytest.approx(2 * whole["kv_capacity_tokens"], abs=16)


def test_why_there_is_no_answer(capsys):
    def why(model, device, *arguments):
        told = planned(capsys, "--model", model, "--accelerator", device, *arguments)
        return told["kv_capacity_tokens"], told["predicted_saturation"], told["min_gpus"], told["why"]

    capacity, held, fewest, text = why("gpt2", "h100", "--prompt-length", "1000", "--output-length", "100")
    assert capacity > 0 and held is None and fewest is None
    assert text == "a request of 1,000 + 100 tokens exceeds the model's context of 1,024. Shorten it."
    for model, device, options, found, said in (
        ("gpt2-xl", "a10", ("--tensor-parallel", "2"), [None, None, 1], "--tensor-parallel is 2: so many devices cannot"),
        ("gpt2-xl", "a10", ("--tensor-parallel", "2"), [None, None, 1], "It may be 1."),
        ("llama-3.3-70b", "h100", (), [None, None, 2], "--tensor-parallel 2 holds the demand"),
        ("llama-3.1-70b-fp8", "h100", ("--gpu-memory-utilization", "0.901"), [80, 0.125, 2], "the KV cache of 0.12 requests"),
        ("deepseek-v3", "l4", ("--gpu-memory-utilization", "0.5"), [None] * 3, "No tensor parallelism of up to 64 holds"),
    ):
        *numbers, text = why(model, device, *options)
        assert (numbers, said in text) == (found, True), (model, numbers, text)


def test_tensor_parallel_sizes(geometries):
    """Of gpt2-xl 5 and 25 divide the heads, but not 50,304, the padded vocabulary; 5 and so on divide Qwen's 40 heads alone."""
    for model, sizes in (("gpt2-xl", [1]), ("llama-3.3-70b", [1, 2, 4, 8, 16, 32, 64]), ("qwen1.5-14b", [1, 2, 4, 8])):
        assert tensor_parallel_sizes(geometries[model]) == sizes, model
    for model in ("qwen1.5-14b", "llama-3.3-70b"):  # of one node
        rows = choices(geometries[model], accelerators()["h200"], Demand(128, 512), Setting())
        assert [row["tensor_parallel"] for row in rows] == [1, 2, 4, 8], model
        held = [row["kv_capacity_tokens"] for row in rows if row["kv_capacity_tokens"] is not None]
        assert held == sorted(held) and held, model


def test_every_model_on_every_device(capsys):
    told = planned(capsys)
    assert {(each["model"], each["accelerator"]) for each in told} == {(m, d) for m in catalogue() for d in accelerators()}
    assert all(name in each for each in told for name in KEYS)
    assert main(["plan"]) == 0
    table = capsys.readouterr().out.splitlines()[22:]
    assert table[2].split() == ["model", *accelerators()]
    assert [line.split()[0] for line in table[3:-3]] == list(catalogue())
    assert next(line for line in table if line.startswith("llama-3.3-70b")).split()[7] == "4"  # on a100-40g
    assert main(["plan", "--accelerator", "h200"]) == main(["plan", "--model", "gpt2"]) == 0
    assert capsys.readouterr().out.count("128 + 512 tokens a request") == 2


def test_a_model_of_ones_own(tmp_path, capsys):
    config = dict(catalogue()["llama-3-8b"].config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    common = ("--accelerator", "h100")
    shipped = planned(capsys, "--model", "llama-3-8b", *common)
    for path in (tmp_path, tmp_path / "config.json"):
        counted = planned(capsys, "--model", str(path), *common)
        how = "they are counted by the formula of a plain dense decoder, which leaves biases out"
        assert counted["notes"].pop(0) == f"the weights are estimated: {how}."
        assert counted == shipped | {"model": str(path)}

    (tmp_path / "config.json").write_text(json.dumps(catalogue()["mixtral-8x7b"].config))
    unknown = planned(capsys, "--model", str(tmp_path), *common)
    assert unknown["kv_bytes_per_token"] == 131_072
    assert unknown["weight_bytes"] is unknown["min_gpus"] is unknown["kv_capacity_tokens"] is None
    assert unknown["why"].startswith("the weights are not known") and unknown["why"].endswith("or give --parameters.")
    stated = planned(capsys, "--model", str(tmp_path), "--parameters", "46702792704", *common)
    assert stated == planned(capsys, "--model", "mixtral-8x7b", *common) | {"model": str(tmp_path)}


def test_a_device_of_one_s_own_and_in_other_units(tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "h100: {price_per_hour: 2.5}\nbig: {title: Big, memory: 1000GiB, bandwidth_tb_s: 10, bf16_tflops: 1, power_w: 9, source: me}\n"
    )
    known = accelerators({"h100": {"price_per_hour": 2.5}})["h100"]
    assert (known.price_per_hour, known.price_remark(date(2030, 1, 1)), known.power_w) == (2.5, "your own", 700)
    told = planned(capsys, "--model", "deepseek-v3", "--accelerator", "big", "--hardware", str(mine))
    assert told["min_gpus"] == 1
    with pytest.raises(BenchError, match=r"hardware\.small: memory is missing"):
        accelerators({"small": {"title": "Small"}})
    for entry, told in (
        ({"memory": 80}, "less than 1 GiB is no GPU's memory"),
        ({"bandwidth_tb_s": 1000}, "less than or equal to 100"),
    ):
        with pytest.raises(BenchError, match=told):
            accelerators({"h100": entry})
    assert accelerator_named("H100", accelerators()) == accelerators()["h100"]
    with pytest.raises(BenchError, match=r"no accelerator is called h10; the nearest are .*h100"):
        accelerator_named("h10", accelerators())


def test_the_numbers_of_devices():
    for key, device in accelerators().items():
        assert device.source.startswith("https://"), key
        assert (device.price_per_hour is None) == (device.price_source is None) == (device.price_date is None), key
        assert device.fp8_tflops is None or 1.9 < device.fp8_tflops / device.bf16_tflops < 2.1, key
        printed = int(re.search(r"(\d+) GB$", device.title)[1])
        assert 0.93 * printed * GIB < device.memory <= printed * GIB, key  # 7 % at most is for ECC and the driver


def test_a_price_says_its_date_and_when_that_is_a_year_ago():
    h100, without = (accelerators()[name] for name in ("h100", "b200"))
    dated = "on-demand list price, 2024-12 at the latest"
    assert h100.price_remark(date(2025, 12, 31)) == dated
    assert h100.price_remark(date(2026, 1, 1)) == f"{dated}, more than a year old: look it up and give your own price_per_hour"
    assert without.price_remark(date(2026, 1, 1)) == ""


def test_how_many_instances_a_rate_takes(capsys):
    asked = ("--model", "llama-3.3-70b", "--request-rate", "50", "--output-length", "300")
    told = planned(capsys, *asked, "--prompt-length", "2000", "--accelerator", "h100", "--tensor-parallel", "4")
    (row,) = told["needed"]
    # Of the ceilings that the plan prints: 50 × (2,000 ÷ 28,365 + 300 ÷ 9,329) = 5.1 instances.
    assert (row["at_the_ceilings"]["instances"], row["at_the_ceilings"]["gpus"]) == (6, 24)
    assert (row["instances"], row["gpus"], row["usd_per_hour"]) == (10, 40, 400.0)  # 5.1 ÷ 0.57 is 9.01
    drawn = f"plan {' '.join(asked)} --prompt-length p50=1500,p95=6000 --accelerator h100 --slo tpot_p95=50ms"
    assert main(drawn.split()) == 0
    text = capsys.readouterr().out
    for said in (
        "2,140 + 300 tokens in the mean",
        "within TPOT P95 ≤ 50 ms",
        "At 57 % of the ceilings",
        "--request-rate --set 'prompt_tokens={distribution: lognormal, median: 1500, sigma: 0.843, max: 20286}' --output-length 300 --slo",
        "bench fleet --sustained-rps RPS --gpus",
    ):
        assert said in text, said
    # The fewest GPUs of each kind, without a name.
    assert len(planned(capsys, *asked, "--efficiency", "60")["needed"]) == len(accelerators())


def test_the_most_requests_at_once_and_their_speed_name_the_limit(capsys):
    for prompt, limit, most in (("1000", "--max-num-seqs", 256), ("3000", "the KV cache", 139)):
        asked = f"plan --model llama-3.1-8b --accelerator h100 --prompt-length {prompt} --output-length 200"
        assert main(asked.split()) == 0
        text = capsys.readouterr().out
        assert re.search(rf"^most at once, by {limit} +{most}$", text, re.MULTILINE), limit
        assert re.search(rf"^decode ceiling, {most} at once .*^1 +444,928 +{most} ", text, re.MULTILINE | re.DOTALL), limit
