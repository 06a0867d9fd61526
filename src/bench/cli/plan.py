"""`bench plan`: what a model needs of a device, and what it could hold, before anything is spent."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.cli.common import (
    Commands,
    add_engine_memory,
    add_hardware,
    at_least_one,
    hardware,
    print_json,
    print_table,
    refuse_wrong_share,
)
from bench.errors import BenchError
from bench.models import DTYPE_BYTES, WEIGHTS, Demand, Geometry, Setting, choices, geometry_at, geometry_of, plan
from bench.published import Device, catalogue, catalogue_key, device_named

__all__ = ["add"]

_GIB = 2**30
_SHORT = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "plan",
        help="what a model needs of a GPU, the load that it could hold, and the ceilings of its speed",
        description="Before any GPU hour: weights, activations, overhead and KV cache term by term, the KV capacity in tokens, the "
        "concurrency at which it is full, the fewest GPUs, and the ceilings that bandwidth and FLOP/s set. Without --model, every "
        "model of the catalogue; without --device, every device; without both, the fewest GPUs of each for each. "
        "What each number means: docs/explanation/fleet.md.",
        epilog="example: bench plan --model llama-3.1-70b-fp8 --device h100-nvl --tensor-parallel 2 --prompt-length 1000 "
        "--output-length 128",
    )
    parser.add_argument(
        "--model", metavar="M", help="a model of the catalogue (`bench models`), a config.json, or a folder with one"
    )
    parser.add_argument("--device", metavar="D", help="a device that is known here or in --hardware, such as h100")
    parser.add_argument(
        "--prompt-length", type=at_least_one, default=128, metavar="P", help="of a request (default: %(default)s)"
    )
    parser.add_argument(
        "--output-length", type=at_least_one, default=512, metavar="O", help="of a request (default: %(default)s)"
    )
    parser.add_argument(
        "--concurrency",
        type=at_least_one,
        default=1,
        metavar="N",
        help="requests to be held at once, for the fewest GPUs (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype",
        type=_dtype,
        choices=WEIGHTS,
        default="bfloat16",
        help="of the weights; int8 and int4 of the weights alone, computed in 16 bit; a quantised checkpoint keeps its own "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--kv-dtype", type=_dtype, choices=DTYPE_BYTES, help="of the KV cache (default: 16 bit, or 32 with --dtype float32)"
    )
    add_engine_memory(parser)
    add_hardware(parser)
    parser.add_argument(
        "--json", action="store_true", help="everything, as JSON; a list where several models or devices are meant"
    )
    parser.set_defaults(run=_run)


def _dtype(text: str) -> str:
    """`fp16`, as documents write it, is `float16`, as engines do."""
    return _SHORT.get(text.lower(), text.lower())


def _run(options: argparse.Namespace) -> None:
    refuse_wrong_share(options)
    known = hardware(options)
    devices = {options.device: device_named(options.device, known)} if options.device else known
    models = {key: _geometry(key) for key in ([options.model] if options.model else catalogue())}
    demand = Demand(options.prompt_length, options.output_length, options.concurrency)
    setting = _setting(options)
    if options.model and options.device:
        _one(options, models[options.model], devices[options.device], demand, setting)
        return
    asked = {"demand": asdict(demand), "setting": asdict(setting)}
    plans = [
        {"model": model, "device": name, **asked, **plan(geometry, device, demand, setting)}
        for model, geometry in models.items()
        for name, device in devices.items()
    ]
    if options.json:
        print_json(plans)
    elif options.model or options.device:
        count = f"{options.tensor_parallel} GPU" + "s" * (options.tensor_parallel > 1)
        print(
            f"{options.model or devices[options.device].title}, {count}, {demand.prompt:,} + {demand.output:,} tokens a request\n"
        )
        print_table(_side_by_side(plans, "device" if options.model else "model"))
    else:
        _print_fewest(plans, devices, demand)


def _geometry(name: str) -> Geometry:
    """That of a model of the catalogue, or of a config.json."""
    if name in catalogue():
        return geometry_of(catalogue()[name].config)
    if Path(name).exists():
        return geometry_at(Path(name))
    try:
        catalogue_key(name)
    except ValueError as error:
        raise BenchError(f"--model {name}: {error}. Nor is there a file or folder of that name.") from None
    raise AssertionError(name)


def _setting(options: argparse.Namespace) -> Setting:
    return Setting(
        dtype=options.dtype,
        kv_dtype=options.kv_dtype or ("float32" if options.dtype == "float32" else "bfloat16"),
        tensor_parallel=options.tensor_parallel,
        share=options.gpu_memory_utilization,
        max_num_seqs=options.max_num_seqs,
    )


def _one(options: argparse.Namespace, geometry: Geometry, device: Device, demand: Demand, setting: Setting) -> None:
    told = plan(geometry, device, demand, setting)
    rows = choices(geometry, device, demand, setting)
    if options.json:
        print_json(
            {
                "model": options.model,
                "device": options.device,
                "demand": asdict(demand),
                "setting": asdict(setting),
                **told,
                "choices": rows,
            }
        )
        return
    _print_one(options.model, device, demand, setting, told)
    print()
    print_table(_side_by_side(rows, "tensor_parallel"))
    for note in told["notes"]:
        print(f"note: {note}")


def _print_one(model: str, device: Device, demand: Demand, setting: Setting, told: Mapping[str, Any]) -> None:
    terms, ceilings, rule = told["terms"], told["ceilings"], told["rule_of_thumb"]
    print(f"{model} on {setting.tensor_parallel} × {device.title}, {demand.prompt:,} + {demand.output:,} tokens a request\n")
    print_table(
        [
            ["memory of each GPU", "GiB"],
            [f"{setting.share:g} of {_gib(terms['device_memory_bytes'])} for the engine", _gib(terms["budget_bytes_per_gpu"])],
            ["− weights", _gib(terms["weight_bytes_per_gpu"])],
            [f"− activations, {setting.max_num_seqs} sequences", _gib(terms["activation_bytes_per_gpu"])],
            ["− overhead: graphs, libraries, exchange", _gib(terms["overhead_bytes_per_gpu"])],
            ["= KV cache", _gib(terms["kv_cache_bytes_per_gpu"])],
        ]
    )
    print()
    if told["why"]:
        print(f"{told['why']}\n")
    print_table(
        [
            ["KV bytes a token", f"{told['kv_bytes_per_token']:,}"],
            ["KV capacity (tokens)", _number(told["kv_capacity_tokens"])],
            ["predicted saturation (requests at once)", _requests(told["predicted_saturation"])],
            [f"fewest GPUs for {demand.concurrency:,} at once", _fewest(told)],
            [
                "  with 30 % of the memory in use left free",
                _dealt(told["gpus_with_headroom"], told["tensor_parallel_with_headroom"]),
            ],
            ["  by the documents' rule of thumb, with headroom", f"{rule['min_gpus']}, {rule['gpus_with_headroom']}"],
            ["prefill ceiling (tokens/s)", _number(ceilings["prefill_tokens_per_s"])],
            ["least TTFT (ms)", _number(1000 * ceilings["ttft_s"])],
            ["decode ceiling, one request (tokens/s)", _number(ceilings["decode_tokens_per_s_at_context"])],
            ["decode ceiling, full cache (tokens/s)", _number(ceilings["decode_tokens_per_s_at_saturation"])],
        ]
    )


def _side_by_side(plans: Iterable[Mapping[str, Any]], key: str) -> list[list[str]]:
    """A row a plan; `key` is what they differ in."""
    plans = list(plans)
    names = ("prefill_tokens_per_s", "decode_tokens_per_s_at_context", "decode_tokens_per_s_at_saturation")
    rows = [[key.replace("_", " "), "KV tokens", "requests at once", "prefill tokens/s", "decode tokens/s, one", "full cache"]]
    for told in plans:
        held = [_number(told["kv_capacity_tokens"]), _requests(told["predicted_saturation"])]
        rows.append([str(told[key]), *held, *(_number(told["ceilings"][name]) for name in names)])
    if all("min_gpus" in told for told in plans):
        rows = [[*row, last] for row, last in zip(rows, ["fewest GPUs", *map(_fewest, plans)], strict=True)]
    return rows


def _print_fewest(plans: Sequence[Mapping[str, Any]], devices: Mapping[str, Device], demand: Demand) -> None:
    """A row a model, a column a device."""
    rows: dict[str, list[str]] = {}
    for told in plans:
        rows.setdefault(told["model"], [told["model"]]).append(_fewest(told))
    at_once = "one request" if demand.concurrency == 1 else f"{demand.concurrency:,} requests at once"
    print(f"fewest GPUs that hold {at_once} of {demand.prompt:,} + {demand.output:,} tokens\n")
    print_table([["model", *devices], *rows.values()])
    print("\n3→4: three have the memory; four are the next that divide the heads (--tensor-parallel).")
    print("–: more than 64, or a request is beyond the context.")


def _fewest(told: Mapping[str, Any]) -> str:
    """The fewest GPUs, and where the heads cannot be dealt out over so many, the fewest over which they can."""
    return _dealt(told["min_gpus"], told["min_tensor_parallel"])


def _dealt(fewest: int | None, dealt: int | None) -> str:
    return _gpus(fewest) if fewest == dealt else f"{_gpus(fewest)}→{_gpus(dealt)}"


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _requests(value: float | None) -> str:
    """Requests that fit: a part of one does not."""
    return _number(value if value is None or value < 10 else math.floor(value))  # 121.65 hold 121


def _gpus(count: int | None) -> str:
    return "–" if count is None else str(count)
