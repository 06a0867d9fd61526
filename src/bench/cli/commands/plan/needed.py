"""How many instances and GPUs a rate of requests takes, by the ceilings of a plan and by a share of them that was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from bench.cli.commands.plan import Plan
from bench.cli.commands.plan.planned import number_text
from bench.cli.output import headed, print_json, print_table
from bench.errors import BenchError, listed
from bench.models.catalogue import Accelerator
from bench.models.geometry import Geometry
from bench.servers.needed import EFFICIENCY, EFFICIENCY_SOURCE, PLANNED, Lengths, needed
from bench.servers.plan import Setting
from bench.servers.stages import ONE_NODE, tensor_parallel_sizes
from bench.study.slo import parse_slo

_LONGEST = 0.999  # share of the lengths up to the longest that is sent; convention


def print_needed(
    asked: Plan, geometry: Geometry, devices: Mapping[str, Accelerator], setting: Setting, lengths: tuple[Lengths, Lengths]
) -> None:
    """A row a size of instances on one GPU, or a row a GPU by the size that takes the fewest of it."""
    slos = [parse_slo(text) for text in asked.slo or ()]
    if odd := [slo.name for slo in slos if slo.request_class or slo.metric not in PLANNED]:
        raise BenchError(f"--slo: a plan knows only {', '.join(PLANNED)} of all requests, not {odd[0]}.")
    limits = [(slo.metric, slo.share, slo.limit_s) for slo in slos]
    share = EFFICIENCY if asked.efficiency is None else asked.efficiency / 100
    if not 0 < share <= 1:
        raise BenchError(f"--efficiency is {100 * share:g}: a percentage above 0 and at most 100.")
    rate = asked.request_rate or 0.0
    sizes = [size for size in tensor_parallel_sizes(geometry) if size <= ONE_NODE]
    rows = []
    for name, device in devices.items():
        found = []
        for size in [asked.tensor_parallel] if asked.tensor_parallel else sizes:
            server = (geometry, device, replace(setting, tensor_parallel=size), *lengths)
            reached = needed(*server, rate=rate, limits=limits, efficiency=share)
            cost = reached["gpus"] and device.price_per_hour and reached["gpus"] * device.price_per_hour
            ceilings = needed(*server, rate=rate, limits=limits)
            beside = {"usd_per_hour": cost, "at_the_ceilings": ceilings}
            found.append({"accelerator": name, "tensor_parallel": size, **reached, **beside})
        rows += found if asked.accelerator else [min(found, key=lambda row: row["gpus"] or math.inf)]
    prices = {name: device.price_remark(date.today()) for name, device in devices.items()}
    source = EFFICIENCY_SOURCE if asked.efficiency is None else "--efficiency"
    if asked.json:
        print_json({"request_rate": rate, "efficiency": share, "efficiency_source": source, "prices": prices, "needed": rows})
        return
    within = f", within {listed([str(slo) for slo in slos])}" if slos else ""
    prompt, output = (f"{round(each.mean):,}" for each in lengths)
    print(f"{rate:g} requests/s of {prompt} + {output} tokens in the mean to {asked.model}{within}\n")
    print_table(headed([_cells(row) for row in rows]))
    print(f"\nAt {100 * share:g} % of the ceilings ({source}); full load, without a queue, a failure or a peak above the mean.")
    print(
        "TTFT is that of the median prompt beside the others' step, so a limit on it leaves no room for a queue; TPOT is a mean, "
        "whatever percentile is limited; several GPUs count as that many times as fast."
    )
    for why in dict.fromkeys(f"{row['accelerator']}, {row['tensor_parallel']}: {row['why']}" for row in rows if row["why"]):
        print(f"– {why}")
    of_price: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["usd_per_hour"]:
            text = f"{row['accelerator']} {devices[row['accelerator']].price_per_hour:g}"
            of_price.setdefault(prices[row["accelerator"]], {})[text] = None
    for remark, texts in of_price.items():
        print(f"USD an hour of a GPU: {', '.join(texts)} ({remark}).")
    best = min(rows, key=lambda row: row["gpus"] or math.inf)
    if best["gpus"]:
        limit = " ".join(f"--slo {text}" for text in asked.slo or ["ttft_p95=LIMIT"])
        prompt_lengths, output_lengths = lengths
        room = geometry.context - round(output_lengths.at(_LONGEST))
        sent = f"{_sent('prompt', prompt_lengths, room)} {_sent('output', output_lengths, geometry.context)}"
        fleet = f"--sustained-rps RPS --gpus {best['tensor_parallel']} --peak-rps {rate:g}"
        print(
            f"Next, measure what one instance sustains: `bench find --base-url URL --model NAME --request-rate {sent} {limit}`."
        )
        print(f"Then size the fleet by that, with a safety factor: `bench fleet {fleet}`.")


def _sent(side: str, lengths: Lengths, room: int) -> str:
    """The options of `bench find` for such lengths. Args: room: for them in the model's context (tokens)."""
    if not lengths.sigma:
        return f"--{side}-length {round(lengths.median)}"
    most = min(round(lengths.at(_LONGEST)), room)
    return f"--set '{side}_tokens={{distribution: lognormal, median: {lengths.median:.4g}, sigma: {lengths.sigma:.3g}, max: {most}}}'"


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """By what heads their columns."""
    first, each = ("–" if time is None else f"{1000 * time:.3g}" for time in (row["ttft_s"], row["tpot_s"]))
    return {
        "accelerator": row["accelerator"],
        "GPUs of one": str(row["tensor_parallel"]),
        "in flight": number_text(row["in_flight"]),
        "requests/s": number_text(row["requests_per_s"]),
        "TTFT ms, no queue": first,
        "TPOT ms": each,
        "instances": number_text(row["instances"]),
        "GPUs": number_text(row["gpus"]),
        "USD/h": f"{row['usd_per_hour']:,.2f}" if row["usd_per_hour"] else "–",
        "GPUs at the ceilings": number_text(row["at_the_ceilings"]["gpus"]),
    }
