"""The plan of each model on each accelerator: terms, ceilings and the fewest GPUs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.cli.commands.plan import Plan
from bench.cli.output import headed, print_json, print_table
from bench.errors import BenchError, count_text, shown_gib
from bench.models.catalogue import Accelerator, accelerator_named, accelerators, catalogue, catalogue_key
from bench.models.checkpoint_record import Weights
from bench.models.config_json import geometry_at, geometry_of_entry
from bench.models.geometry import Geometry, kv_bytes_per_token, weight_bytes
from bench.models.hub import geometry_on_hub
from bench.servers.needed import Lengths
from bench.servers.plan import Demand, Setting, choices
from bench.servers.plan import plan as planned
from bench.yaml_file import read_yaml


def plan(asked: Plan) -> None:
    """Print the plan of each model on each accelerator that is asked for."""
    _refuse_contradictions(asked)
    try:
        known = accelerators(read_yaml(asked.hardware) if asked.hardware else None)
    except BenchError as error:
        raise BenchError(f"--hardware {asked.hardware}: {error}" if asked.hardware else str(error)) from None
    devices = {asked.accelerator: accelerator_named(asked.accelerator, known)} if asked.accelerator else known
    models = {key: _geometry(key, asked.parameters) for key in ([asked.model] if asked.model else catalogue())}
    lengths = _lengths("--prompt-length", asked.prompt_length), _lengths("--output-length", asked.output_length)
    demand = Demand(round(lengths[0].mean), round(lengths[1].mean), asked.concurrency)
    setting = Setting(
        dtype=asked.dtype,
        kv_dtype=asked.kv_dtype or ("float32" if asked.dtype == "float32" else "bfloat16"),
        tensor_parallel=asked.tensor_parallel or 1,
        share=asked.gpu_memory_utilization,
        max_num_seqs=asked.max_num_seqs,
    )
    if asked.request_rate:
        from bench.cli.commands.plan.needed import print_needed  # with a study's SLOs

        print_needed(asked, models[str(asked.model)], devices, setting, lengths)
        return
    same = {"demand": asdict(demand), "setting": asdict(setting)}
    plans = [
        {"model": model, "accelerator": name, **same, **planned(geometry, device, demand, setting)}
        for model, geometry in models.items()
        for name, device in devices.items()
    ]
    one = plans[0] if asked.model and asked.accelerator else None
    if one:
        one["choices"] = choices(models[one["model"]], devices[one["accelerator"]], demand, setting)
    if asked.json:
        print_json(one or plans)
    elif one:
        _print_one(asked, devices[one["accelerator"]], demand, setting, one)
    elif asked.model or asked.accelerator:
        count = count_text(setting.tensor_parallel, "GPU")
        what = asked.model or next(iter(devices.values())).title
        print(f"{what}, {count}, {demand.prompt:,} + {demand.output:,} tokens a request\n")
        key = "accelerator" if asked.model else "model"
        print_table(headed([_side_by_side(each, key, asked.max_num_seqs) for each in plans]))
    else:
        _print_catalogue(models)
        _print_fewest(plans, devices, demand)


def _refuse_contradictions(asked: Plan) -> None:
    if not 0 < (share := asked.gpu_memory_utilization) <= 1:
        raise BenchError(f"--gpu-memory-utilization is {share:g}; give a share above 0 and at most 1.")
    if asked.parameters and not (asked.model and Path(asked.model).exists()):
        raise BenchError("--parameters applies only to a --model that is a config.json or a folder with one. Leave it out.")
    if asked.hardware and not asked.hardware.is_file():
        raise BenchError(f"--hardware {asked.hardware}: no such file.")
    if not asked.request_rate and (asked.slo or asked.efficiency):
        raise BenchError("--slo and --efficiency need --request-rate. Give it, or leave them out.")
    if asked.request_rate and not asked.model:
        raise BenchError("--request-rate sizes instances of one model: name it with --model.")


def _lengths(name: str, text: str) -> Lengths:
    """The lengths of an option, `2000` or `p50=800,p95=4000`."""
    points = re.findall(r"(?:p(\d{1,2}(?:\.\d+)?)=)?([1-9]\d*)", text)
    written = ",".join(f"p{share}={tokens}" if share else tokens for share, tokens in points)
    try:
        if written != text or (len(points) > 1 and not all(share for share, _ in points)):
            raise ValueError("write tokens, or one or two percentiles")
        return Lengths.of({float(share or 50) / 100: float(tokens) for share, tokens in points})
    except (ValueError, ArithmeticError) as error:
        raise BenchError(f"{name} {text}: {error}, as in 2000 or p50=800,p95=4000.") from None


def _geometry(name: str, parameters: int | None) -> Geometry:
    """The geometry of a model of the catalogue, of a config.json, or of a checkpoint on the hub."""
    if name in catalogue():
        return geometry_of_entry(catalogue()[name])
    if Path(name).exists():
        return geometry_at(Path(name), Weights(parameters) if parameters else None)
    if name.startswith((".", "/", "~")):
        raise BenchError(f"--model {name}: no such file or folder. Name a config.json, or a folder with one.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
        return geometry_on_hub(name)
    try:
        return geometry_of_entry(catalogue()[catalogue_key(name)])
    except ValueError as error:
        raise BenchError(f"--model {name}: {error}. Nor is there a file or folder of that name.") from None


def _print_one(asked: Plan, accelerator: Accelerator, demand: Demand, setting: Setting, weighed: Mapping[str, Any]) -> None:
    terms, ceilings, rule = weighed["terms"], weighed["ceilings"], weighed["rule_of_thumb"]
    held = weighed["predicted_saturation"]
    cut = held is not None and held > setting.max_num_seqs
    most = _at_once(held, setting.max_num_seqs)
    print(
        f"{asked.model} on {setting.tensor_parallel} × {accelerator.title}, {demand.prompt:,} + {demand.output:,} tokens a request\n"
    )
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
    if weighed["why"]:
        print(f"{weighed['why']}\n")
    print_table(
        [
            ["KV bytes a token", f"{weighed['kv_bytes_per_token']:,}"],
            *([["state bytes a sequence", f"{state:,}"]] if (state := weighed["state_bytes_per_sequence"]) else []),
            ["KV capacity (tokens)", number_text(weighed["kv_capacity_tokens"])],
            ["predicted saturation of the KV cache (requests)", _requests(weighed["predicted_saturation"])],
            [f"most at once, by {'--max-num-seqs' if cut else 'the KV cache'}", most],
            [f"fewest GPUs for {demand.concurrency:,} at once", _fewest(weighed)],
            [
                "  with 30 % of the memory in use left free",
                _dealt(weighed["gpus_with_headroom"], weighed["tensor_parallel_with_headroom"]),
            ],
            [
                "  by rule of thumb (1.2 × weights, KV, 7.5 % of a GPU), × 1.3",
                f"{number_text(rule['min_gpus'])}, {number_text(rule['gpus_with_headroom'])}",
            ],
            ["prefill ceiling (tokens/s)", number_text(ceilings["prefill_tokens_per_s"])],
            ["least TTFT (ms)", number_text(None if ceilings["ttft_s"] is None else 1000 * ceilings["ttft_s"])],
            ["decode ceiling, one request (tokens/s)", number_text(ceilings["decode_tokens_per_s_at_context"])],
            [
                f"decode ceiling, {most if held else 'all'} at once (tokens/s)",
                number_text(ceilings["decode_tokens_per_s_at_saturation"]),
            ],
        ]
    )
    print()
    print_table(headed([_side_by_side(each, "tensor_parallel", setting.max_num_seqs) for each in weighed["choices"]]))
    for note in weighed["notes"]:
        print(f"note: {note}")


def _side_by_side(weighed: Mapping[str, Any], key: str, most: int) -> dict[str, str]:
    """The cells of a plan. Args: key: what plans differ in. most: sequences of a step (`--max-num-seqs`)."""
    ceilings = weighed["ceilings"]
    return {
        key.replace("_", " "): str(weighed[key]),
        "KV tokens": number_text(weighed["kv_capacity_tokens"]),
        "requests at once": _at_once(weighed["predicted_saturation"], most),
        "prefill tokens/s": number_text(ceilings["prefill_tokens_per_s"]),
        "decode tokens/s, one": number_text(ceilings["decode_tokens_per_s_at_context"]),
        "all": number_text(ceilings["decode_tokens_per_s_at_saturation"]),
        **({"fewest GPUs": _fewest(weighed)} if "min_gpus" in weighed else {}),
    }


def _print_catalogue(models: Mapping[str, Geometry]) -> None:
    """A row a model: parameters, KV bytes a token, and weights as the checkpoint has them, in 16 bit where it is not quantised."""
    rows = []
    for key, g in models.items():
        windows = [window for window in g.windows if window]
        rows.append(
            {
                "model": key,
                "parameters": _count(catalogue()[key].parameters),
                "active": "" if g.active_parameters == g.parameters else _count(g.active_parameters or 0),
                "attention": f"{g.attention}, {len(windows)} layers ≤ {max(windows):,}" if windows else g.attention,
                "layers": str(g.layers),
                "heads/KV": f"{g.heads}/{g.kv_heads}",
                "context": f"{g.context:,}",
                "KV B/token": f"{kv_bytes_per_token(g, 'bfloat16'):,}",
                "weights GiB": shown_gib(weight_bytes(g, "bfloat16")),
                "licence": catalogue()[key].licence,
            }
        )
    print_table(headed(rows), "<>><>>>>><")


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"


def _print_fewest(plans: Sequence[Mapping[str, Any]], accelerators: Mapping[str, Accelerator], demand: Demand) -> None:
    rows: dict[str, list[str]] = {}
    for weighed in plans:
        rows.setdefault(weighed["model"], [weighed["model"]]).append(_fewest(weighed))
    at_once = "one request" if demand.concurrency == 1 else f"{demand.concurrency:,} requests at once"
    print(f"\nfewest GPUs that hold {at_once} of {demand.prompt:,} + {demand.output:,} tokens\n")
    print_table([["model", *accelerators], *rows.values()])
    print("\n3→4: three have the memory; four are the next that divide the heads (--tensor-parallel).")
    print("–: more than 64, or a request is beyond the context.")


def _fewest(weighed: Mapping[str, Any]) -> str:
    """The fewest GPUs, and where the heads cannot be dealt out over so many, the fewest over which they can."""
    return _dealt(weighed["min_gpus"], weighed["min_tensor_parallel"])


def _dealt(fewest: int | None, dealt: int | None) -> str:
    return number_text(fewest) if fewest == dealt else f"{number_text(fewest)}→{number_text(dealt)}"


def _gib(size: int | None) -> str:
    return "–" if size is None else shown_gib(size)


def number_text(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _requests(value: float | None) -> str:
    """Requests that fit: a part of one does not."""
    return number_text(value if value is None or value < 10 else math.floor(value))  # 121.65 hold 121


def _at_once(held: float | None, most: int) -> str:
    """Requests that run at once: as many as the KV cache holds, and `most` sequences of a step."""
    return _requests(held if held is None else min(held, most))
