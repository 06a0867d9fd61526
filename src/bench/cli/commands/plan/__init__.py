"""`bench plan`: what a model needs of an accelerator, and what it could hold, before anything is spent; `needed`: how many GPUs a
rate of requests takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bench.cli.entry import command
from bench.cli.options import Json, at_least_one, limits, option, percent, positive
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, count_text, shown_gib
from bench.errors import listed as listed

if TYPE_CHECKING:
    from bench.models.catalogue import Accelerator, CatalogueEntry
    from bench.models.geometry import Geometry
    from bench.servers.needed import Lengths
    from bench.servers.plan import Demand, Setting

_RATE = "For a rate of requests"
# As the study's models have them: reading those would cost the help half a second.
Weights = Literal["bfloat16", "float16", "float32", "fp8", "int8", "int4"]
Kv = Literal["float32", "bfloat16", "float16", "fp8"]


@command(
    "bench plan",
    "bench plan --model llama-3.1-8b --concurrency 64",
    "bench plan --model llama-3.1-70b-fp8 --accelerator h100-nvl --tensor-parallel 2 --prompt-length 1000 --output-length 128",
    "bench plan --model llama-3.3-70b --accelerator h100 --request-rate 50 --slo tpot_p95=50ms --prompt-length p50=1500,p95=6000",
)
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Weights, activations, overhead and KV cache term by term, the KV capacity in tokens, the concurrency at which it is full, the
    fewest GPUs, and the ceilings that bandwidth and FLOP/s set. Without --model, every model of the catalogue, by the names that
    `models.NAME.catalogue` of a study takes; without --accelerator, every accelerator; without both, the catalogue, and the fewest GPUs
    of each for each. What each number means: docs/explanation/memory.md.

    With --request-rate, the instances and GPUs that it takes within --slo, at those ceilings and at a share of them that was measured.
    """

    model: Annotated[
        str | None,
        option(
            "MODEL",
            "A model of the catalogue, a config.json, a folder with one, or an id on the hub, such as Qwen/Qwen3-8B.",
            default="every model of the catalogue",
        ),
    ] = None
    parameters: Annotated[
        int | None,
        option("N", "How many weights it has, where --model is a config.json without its *.safetensors.", parser=at_least_one),
    ] = None
    accelerator: Annotated[str | None, option("NAME", "A GPU that is known here or in --hardware, such as h100.")] = None
    prompt_length: Annotated[str, option("TOKENS", "Prompt tokens of a request; or percentiles, as in p50=800,p95=4000.")] = (
        "128"
    )
    output_length: Annotated[str, option("TOKENS", "Output tokens of a request, likewise.")] = "512"
    concurrency: Annotated[int, option("N", "Requests to hold at once, for the fewest GPUs.", parser=at_least_one)] = 1
    dtype: Annotated[
        Weights,
        option(
            None,
            "Type of the weights; int8 and int4 are computed in 16 bit. A quantised checkpoint keeps its own.",
        ),
    ] = "bfloat16"
    kv_dtype: Annotated[Kv | None, option(None, "Type of the KV cache.", default="16 bit, or 32 with --dtype float32")] = None
    gpu_memory_utilization: Annotated[
        float, option("SHARE", "Share of a GPU's memory that the engine may take, above 0 and at most 1.")
    ] = 0.9
    tensor_parallel: Annotated[
        int | None,
        option("N", "GPUs that share each layer.", parser=at_least_one, default="1; with --request-rate each size of up to 8"),
    ] = None
    max_num_seqs: Annotated[
        int,
        option(
            "N",
            "Most sequences in one step: the sampler keeps memory for them, and no more requests run at once.",
            parser=at_least_one,
        ),
    ] = 256
    hardware: Annotated[
        Path | None,
        option(
            "FILE",
            "A YAML file of accelerators, which add to those known here or replace their values: `h100: {price_per_hour: 2.5}`.",
        ),
    ] = None
    request_rate: Annotated[
        float | None, option("N", "Requests/s to serve: how many instances and GPUs take that?", _RATE, parser=positive)
    ] = None
    slo: Annotated[list[str] | None, limits(_RATE)] = None
    efficiency: Annotated[
        float | None,
        option(
            "PERCENT", "Share of the ceilings that a server reaches.", _RATE, parser=percent, default="57, measured: docs/h200"
        ),
    ] = None
    json: Json = False

    def run(self) -> None:
        """Print the plan of each model on each accelerator that is asked for."""
        from bench.models.catalogue import accelerator_named, accelerators, catalogue
        from bench.servers.plan import Demand, plan
        from bench.yaml_file import read_yaml

        if not 0 < (share := self.gpu_memory_utilization) <= 1:
            raise BenchError(f"--gpu-memory-utilization is {share:g}; give a share above 0 and at most 1.")
        if self.parameters and not (self.model and Path(self.model).exists()):
            raise BenchError("--parameters applies only to a --model that is a config.json or a folder with one. Leave it out.")
        if self.hardware and not self.hardware.is_file():
            raise BenchError(f"--hardware {self.hardware}: no such file.")
        try:
            known = accelerators(read_yaml(self.hardware) if self.hardware else None)
        except BenchError as error:
            raise BenchError(f"--hardware {self.hardware}: {error}" if self.hardware else str(error)) from None
        if not self.request_rate and (self.slo or self.efficiency):
            raise BenchError("--slo and --efficiency need --request-rate. Give it, or leave them out.")
        devices = {self.accelerator: accelerator_named(self.accelerator, known)} if self.accelerator else known
        models = {key: _geometry(key, self.parameters) for key in ([self.model] if self.model else catalogue())}
        lengths = _lengths("--prompt-length", self.prompt_length), _lengths("--output-length", self.output_length)
        demand = Demand(round(lengths[0].mean), round(lengths[1].mean), self.concurrency)
        setting = self._setting()
        if self.request_rate:
            if not self.model:
                raise BenchError("--request-rate sizes instances of one model: name it with --model.")
            from bench.cli.commands.plan.needed import print_needed

            print_needed(self, models[self.model], devices, setting, lengths)
            return
        if self.model and self.accelerator:
            self._one(models[self.model], devices[self.accelerator], demand, setting)
            return
        asked = {"demand": asdict(demand), "setting": asdict(setting)}
        plans = [
            {"model": model, "accelerator": name, **asked, **plan(geometry, accelerator, demand, setting)}
            for model, geometry in models.items()
            for name, accelerator in devices.items()
        ]
        if self.json:
            print_json(plans)
        elif self.model or self.accelerator:
            count = count_text(setting.tensor_parallel, "GPU")
            what = self.model or next(iter(devices.values())).title
            print(f"{what}, {count}, {demand.prompt:,} + {demand.output:,} tokens a request\n")
            print_table(_side_by_side(plans, "accelerator" if self.model else "model", self.max_num_seqs))
        else:
            _print_catalogue(catalogue(), models)
            print()
            _print_fewest(plans, devices, demand)

    def _setting(self) -> Setting:
        from bench.servers.plan import Setting

        return Setting(
            dtype=self.dtype,
            kv_dtype=self.kv_dtype or ("float32" if self.dtype == "float32" else "bfloat16"),
            tensor_parallel=self.tensor_parallel or 1,
            share=self.gpu_memory_utilization,
            max_num_seqs=self.max_num_seqs,
        )

    def _one(self, geometry: Geometry, accelerator: Accelerator, demand: Demand, setting: Setting) -> None:
        from bench.servers.plan import choices, plan

        weighed = plan(geometry, accelerator, demand, setting)
        rows = choices(geometry, accelerator, demand, setting)
        if self.json:
            print_json(
                {
                    "model": self.model,
                    "accelerator": self.accelerator,
                    "demand": asdict(demand),
                    "setting": asdict(setting),
                    **weighed,
                    "choices": rows,
                }
            )
            return
        _print_one(str(self.model), accelerator, demand, setting, weighed)
        print()
        print_table(_side_by_side(rows, "tensor_parallel", self.max_num_seqs))
        for note in weighed["notes"]:
            print(f"note: {note}")


def _lengths(name: str, text: str) -> Lengths:
    """The lengths of an option, `2000` or `p50=800,p95=4000`."""
    from bench.servers.needed import Lengths

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
    from bench.models.catalogue import catalogue, catalogue_key
    from bench.models.checkpoint_record import Weights
    from bench.models.config_json import geometry_at, geometry_of_entry
    from bench.models.hub import geometry_on_hub

    if name in catalogue():
        return geometry_of_entry(catalogue()[name])
    if Path(name).exists():
        return geometry_at(Path(name), Weights(parameters) if parameters else None)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
        return geometry_on_hub(name)
    try:
        catalogue_key(name)
    except ValueError as error:
        raise BenchError(f"--model {name}: {error}. Nor is there a file or folder of that name.") from None
    raise AssertionError(name)


def _print_one(model: str, accelerator: Accelerator, demand: Demand, setting: Setting, weighed: Mapping[str, Any]) -> None:
    terms, ceilings, rule = weighed["terms"], weighed["ceilings"], weighed["rule_of_thumb"]
    held = weighed["predicted_saturation"]
    cut = held is not None and held > setting.max_num_seqs
    most = _at_once(held, setting.max_num_seqs)
    print(
        f"{model} on {setting.tensor_parallel} × {accelerator.title}, {demand.prompt:,} + {demand.output:,} tokens a request\n"
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


def _side_by_side(plans: Iterable[Mapping[str, Any]], key: str, most: int) -> list[list[str]]:
    """A row a plan. Args: key: what they differ in. most: sequences of a step (`--max-num-seqs`)."""
    plans = list(plans)
    names = ("prefill_tokens_per_s", "decode_tokens_per_s_at_context", "decode_tokens_per_s_at_saturation")
    rows = [[key.replace("_", " "), "KV tokens", "requests at once", "prefill tokens/s", "decode tokens/s, one", "all"]]
    for weighed in plans:
        held = [number_text(weighed["kv_capacity_tokens"]), _at_once(weighed["predicted_saturation"], most)]
        rows.append([str(weighed[key]), *held, *(number_text(weighed["ceilings"][name]) for name in names)])
    if all("min_gpus" in weighed for weighed in plans):
        rows = [[*row, last] for row, last in zip(rows, ["fewest GPUs", *map(_fewest, plans)], strict=True)]
    return rows


def _print_catalogue(entries: Mapping[str, CatalogueEntry], models: Mapping[str, Geometry]) -> None:
    """A row a model: parameters, KV bytes a token, and weights as the checkpoint has them, in 16 bit where it is not quantised."""
    from bench.models.geometry import kv_bytes_per_token, weight_bytes

    rows = [
        ["model", "parameters", "active", "attention", "layers", "heads/KV", "context", "KV B/token", "weights GiB", "licence"]
    ]
    for key, entry in entries.items():
        g = models[key]
        active = "" if g.active_parameters == g.parameters else _count(g.active_parameters or 0)
        windows = [window for window in g.windows if window]
        seen = f"{g.attention}, {len(windows)} layers ≤ {max(windows):,}" if windows else g.attention
        kv, weights = f"{kv_bytes_per_token(g, 'bfloat16'):,}", shown_gib(weight_bytes(g, "bfloat16"))
        shape = [str(g.layers), f"{g.heads}/{g.kv_heads}", f"{g.context:,}"]
        rows.append([key, _count(entry.parameters), active, seen, *shape, kv, weights, entry.licence])
    print_table(rows, "<>><>>>>><")


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"


def _print_fewest(plans: Sequence[Mapping[str, Any]], accelerators: Mapping[str, Accelerator], demand: Demand) -> None:
    rows: dict[str, list[str]] = {}
    for weighed in plans:
        rows.setdefault(weighed["model"], [weighed["model"]]).append(_fewest(weighed))
    at_once = "one request" if demand.concurrency == 1 else f"{demand.concurrency:,} requests at once"
    print(f"fewest GPUs that hold {at_once} of {demand.prompt:,} + {demand.output:,} tokens\n")
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
