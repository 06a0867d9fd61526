"""`bench plan`: terms that add up, the study's capacities, ceilings by hand, and every model on every device."""

import json

import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.models import Demand, Setting, geometry_of, plan
from bench.study import catalogue, device_named, devices
from tests.test_capacity import PRINTED

GIB = 2**30


def planned(capsys, *arguments):
    assert main(["plan", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("key", "count", "printed"), PRINTED)
def test_the_studys_capacities(capsys, key, count, printed):
    told = planned(
        capsys, "--model", key, "--device", "h100-nvl", "--tensor-parallel", str(count), "--max-num-seqs", "1024",
        "--prompt-length", "128", "--output-length", "512",
    )  # fmt: skip
    assert told["kv_capacity_tokens"] == pytest.approx(printed, rel=0.01)
    assert told["predicted_saturation"] == pytest.approx(printed / 640, rel=0.01)


def test_the_terms_add_up(capsys):
    told = planned(
        capsys,
        "--model",
        "llama-3.1-70b-fp8",
        "--device",
        "h100-nvl",
        "--tensor-parallel",
        "2",
        "--prompt-length",
        "1000",
        "--output-length",
        "128",
    )
    terms = told["terms"]
    overhead = sum(terms[f"{name}_bytes_per_gpu"] for name in ("runtime", "sampler", "parallel"))
    assert terms["overhead_bytes_per_gpu"] == overhead
    assert terms["budget_bytes_per_gpu"] == int(0.9 * terms["device_memory_bytes"])
    assert terms["kv_cache_bytes_per_gpu"] == terms["budget_bytes_per_gpu"] - terms["weight_bytes_per_gpu"] - overhead
    assert told["kv_bytes_per_token"] == 327_680  # not the documents' 0.26 or 0.32 MB
    assert told["kv_capacity_tokens"] <= terms["kv_cache_bytes_per_gpu"] * 2 / 327_680


def test_an_fp8_cache_holds_twice_as_much(capsys):
    common = ("--model", "llama-3-8b", "--device", "h100", "--prompt-length", "128", "--output-length", "512")
    half, whole = planned(capsys, *common, "--kv-dtype", "fp8"), planned(capsys, *common)
    assert half["kv_capacity_tokens"] == pytest.approx(2 * whole["kv_capacity_tokens"], rel=0.001)


def test_quantised_weights_keep_embeddings_in_16_bit(capsys):
    common = ("--model", "llama-3-8b", "--device", "h100")
    told = {dtype: planned(capsys, *common, "--dtype", dtype)["weight_bytes"] for dtype in ("bfloat16", "fp8", "int4")}
    assert told["bfloat16"] == 2 * 8_030_261_248
    embeddings = 2 * 2 * 128_256 * 4096  # two tables of 16 bit
    assert told["fp8"] == pytest.approx(told["bfloat16"] / 2 + embeddings / 2, rel=0.001)
    assert told["int4"] < told["fp8"]


def test_decode_at_batch_one_is_bandwidth_over_weights():
    geometry, h100 = geometry_of(catalogue()["deepseek-7b"].config), devices()["h100"]
    told = plan(geometry, h100, Demand(128, 512), Setting())
    # The documents' 238 tokens/s are of 7.0 B parameters and 3.35 TB/s: 239.3. This model has 6.91 B.
    assert round(3.35e12 / 14e9, 1) == 239.3
    assert told["ceilings"]["decode_tokens_per_s"] == pytest.approx(3.35e12 / told["weight_bytes"])
    assert told["ceilings"]["decode_tokens_per_s_at_context"] < told["ceilings"]["decode_tokens_per_s"]
    assert told["ceilings"]["prefill_tokens_per_s"] < h100.bf16_tflops * 1e12 / (2 * geometry.parameters)
    assert told["ceilings"]["ridge_flop_per_byte"] == pytest.approx(989.4 / 3.35)


def test_a_mixture_of_experts_reads_one_tokens_share_alone_and_all_for_many(capsys):
    told = planned(capsys, "--model", "mixtral-8x7b", "--device", "h200", "--tensor-parallel", "2")["ceilings"]
    dense = planned(capsys, "--model", "mixtral-8x7b", "--device", "h200", "--tensor-parallel", "2")["weight_bytes"]
    assert told["decode_tokens_per_s"] > 2 * 4.8e12 / dense * 3


@pytest.mark.parametrize(
    ("model", "device", "gpus"),
    [("llama-3.1-70b-fp8", "h100", 2), ("llama-3.1-70b-fp8", "rtx-4090", 4), ("gpt2", "rtx-4090", 1)],
)
def test_the_fewest_gpus_hold_one_request_and_one_less_do_not(capsys, model, device, gpus):
    told = planned(capsys, "--model", model, "--device", device)
    assert told["min_gpus"] == gpus
    assert told["gpus_with_headroom"] >= gpus


def test_more_requests_need_more_gpus(capsys):
    common = ("--model", "llama-3.1-70b-fp8", "--device", "h100", "--prompt-length", "4000", "--output-length", "1000")
    few, many = (planned(capsys, *common, "--concurrency", n)["min_gpus"] for n in ("1", "200"))
    assert few < many


def test_every_model_on_every_device(capsys):
    told = planned(capsys)
    assert len(told) == len(catalogue()) * len(devices())
    assert main(["plan"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[2:] == list(devices()) and len(table) == len(catalogue()) + 1


def test_a_request_beyond_the_context_fits_nowhere(capsys):
    told = planned(capsys, "--model", "gpt2", "--device", "h100", "--prompt-length", "1000", "--output-length", "100")
    assert (told["predicted_saturation"], told["min_gpus"]) == (None, None)


def test_devices_of_ones_own(tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "h100: {price_per_hour: 2.5}\nbig: {title: Big, memory: 1000GiB, bandwidth_tb_s: 10, bf16_tflops: 1, power_w: 9, source: me}\n"
    )
    known = devices({"h100": {"price_per_hour": 2.5}})
    assert (known["h100"].price_per_hour, known["h100"].price_source, known["h100"].power_w) == (2.5, "your own", 700)
    told = planned(capsys, "--model", "llama-3.1-70b-fp8", "--device", "big", "--hardware", str(mine))
    assert told["min_gpus"] == 1
    with pytest.raises(BenchError, match=r"hardware.small: .*memory: Field required"):
        devices({"small": {"title": "Small"}})


def test_a_name_that_is_none_names_the_nearest():
    with pytest.raises(BenchError, match=r"no device is called h10; the nearest are .*h100"):
        device_named("h10", devices())
    assert main(["plan", "--model", "llama-3-9b", "--device", "h100"]) == 2


def test_every_device_says_where_its_numbers_are_from():
    for key, device in devices().items():
        assert device.source.startswith("https://"), key
        assert (device.price_per_hour is None) == (device.price_source is None), key
