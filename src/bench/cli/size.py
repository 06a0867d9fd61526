"""`bench size`: how many instances and GPUs a peak takes, what they should refuse, and what they cost."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bench.cli.common import Commands, add_hardware, at_least_one, hardware, print_json, print_table
from bench.cli.sources import read_source
from bench.errors import BenchError
from bench.study import device_named

if TYPE_CHECKING:
    from bench.analysis.sizing import OperatingPoint
    from bench.analysis.slo import Slo

__all__ = ["add"]


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "size",
        help="size a fleet: instances, GPUs, admission limits and cost, from results or from numbers",
        description="From the load that one instance carries while it meets its SLOs to a fleet. That load is read from RESULTS (a "
        "folder, a summary.parquet, or one of them with :DEPLOYMENT), or given by --usable-rps.",
        epilog="examples: bench size results:tiny-mha --slo ttft_p99=2s --peak-rps 100 --device h100  |  "
        "bench size --usable-rps 12 --tensor-parallel 4 --safety 1.3 --peak-rps 120",
    )
    parser.add_argument(
        "results",
        nargs="?",
        metavar="RESULTS",
        help="measured results (default: the study in this folder, unless --usable-rps is given)",
    )
    parser.add_argument("--workload", metavar="W", help="the workload, where RESULTS has several")
    parser.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar="LIMIT",
        help="such as ttft_p99=2s or tpot_p95=50ms; repeatable, all have to be met",
    )
    parser.add_argument("--peak-rps", type=_positive, required=True, metavar="N", help="requests/s of the busiest moment")
    parser.add_argument("--usable-rps", type=_positive, metavar="N", help="requests/s of one instance, in place of RESULTS")
    parser.add_argument("--c-max", type=_positive, metavar="N", help="requests in flight there, with --usable-rps")
    parser.add_argument(
        "--tensor-parallel", type=at_least_one, metavar="N", help="GPUs of an instance (default: that of the results, else 1)"
    )
    parser.add_argument(
        "--safety", type=_positive, default=1.3, metavar="F", help="spare GPUs for failures and growth (default: %(default)s)"
    )
    parser.add_argument("--device", metavar="D", help="a device of config/hardware.yaml, for its price")
    parser.add_argument("--price-per-hour", type=_positive, metavar="USD", help="of one GPU; takes the place of the device's")
    parser.add_argument("--api-price", type=_positive, metavar="USD", help="of 10⁶ output tokens elsewhere, to break even with")
    add_hardware(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _run(options: argparse.Namespace) -> None:
    from bench.analysis.slo import parse_slo  # noqa: PLC0415 - --help must not pay for it

    slos = [parse_slo(text) for text in options.slo]
    if options.usable_rps is not None and options.results is not None:
        raise BenchError("RESULTS and --usable-rps both say what one instance carries; give one of them.")
    price = _price(options)
    point, evidence = _given(options) if options.usable_rps is not None else _measured(options, slos)
    told = _sized(options, point, slos, price) | {"evidence": evidence}
    if options.json:
        print_json(told)
    else:
        _print(told)


def _price(options: argparse.Namespace) -> float | None:
    if options.price_per_hour is not None:
        return float(options.price_per_hour)
    if options.device is None:
        return None
    return device_named(options.device, hardware(options)).price_per_hour


def _given(options: argparse.Namespace) -> tuple[OperatingPoint, dict[str, Any]]:
    from bench.analysis.sizing import OperatingPoint  # noqa: PLC0415 - as above

    point = OperatingPoint(options.usable_rps, options.tensor_parallel or 1, c_max=options.c_max)
    return point, {"source": "given"}


def _measured(options: argparse.Namespace, slos: list[Slo]) -> tuple[OperatingPoint, dict[str, Any]]:
    from bench.analysis.sizing import OperatingPoint  # noqa: PLC0415 - as above
    from bench.analysis.slo import operating_points  # noqa: PLC0415

    if not slos:
        raise BenchError(
            "--slo is missing: from results, the operating point is the highest load that meets one, such as ttft_p99=2s."
        )
    runs = read_source(options.results or "results")
    if options.workload is not None:
        runs = runs.filter(runs["workload"] == options.workload)
    points = operating_points(runs, slos)
    if points.height != 1:
        curves = ", ".join(f"{row['deployment']} with {row['workload']}" for row in points.iter_rows(named=True))
        raise BenchError(
            f"one curve is sized at a time; name it as RESULTS:DEPLOYMENT and with --workload. There are: {curves or 'none'}."
        )
    row = points.row(0, named=True)
    if row["c_max"] is None:
        why = f"at {row['high']:g} it misses {row['missed']}" if row["kind"] == "below" else "it has no valid run"
        raise BenchError(f"{row['deployment']} with {row['workload']}: no measured load meets the SLOs: {why}.")
    first = runs.row(0, named=True)
    point = OperatingPoint(
        usable_rps=row["usable_rps"],
        tensor_parallel=options.tensor_parallel or first.get("tensor_parallel") or 1,
        c_max=row["c_max"] if row["axis"] == "concurrency" else row["in_flight"],
        latency_s=row["latency_s"],
        prompt_tokens=row["prompt_tokens"],
        output_tokens=row["output_tokens"],
        kv_tokens=first.get("kv_tokens"),
    )
    return point, {"source": "measured", **row}


def _sized(options: argparse.Namespace, point: OperatingPoint, slos: list[Slo], price: float | None) -> dict[str, Any]:
    """The fleet as plain data."""
    from bench.analysis.sizing import break_even, cost_per_million_tokens, cost_per_month, fleet, limits  # noqa: PLC0415 - as above

    found = fleet(point, options.peak_rps, safety=options.safety)
    ttft = min((slo.limit_s for slo in slos if slo.metric == "ttft"), default=None)
    told: dict[str, Any] = {
        "instances": found.instances,
        "gpus": found.gpus,
        "utilisation_at_peak": found.utilisation,
        "peak_rps": options.peak_rps,
        "safety": options.safety,
        **asdict(point),
        "little": point.little,
        "consistent": point.consistent,
        "limits": None if ttft is None else asdict(limits(point, ttft)),
    }
    if price is not None:
        month = cost_per_month(price, found.gpus)
        told["cost"] = {"price_per_hour": price, "hour": price * found.gpus, "month": month}
        if point.output_tokens:
            tokens = options.peak_rps * point.output_tokens
            told["cost"]["million_output_tokens_at_peak"] = cost_per_million_tokens(price, found.gpus, tokens)
            if options.api_price is not None:
                told["cost"]["break_even_million_tokens_a_month"] = break_even(month, options.api_price)
    return told


def _print(told: dict[str, Any]) -> None:
    evidence = told["evidence"]
    if evidence["source"] == "measured":
        more = (
            f"; at {evidence['high']:g} it misses {evidence['missed']}"
            if evidence["high"] is not None
            else ", the highest level measured"
        )
        print(
            f"{evidence['deployment']} with {evidence['workload']} meets the SLOs up to {evidence['axis'].replace('_', ' ')} {evidence['c_max']:g}{more}.\n"
        )
    rows = [
        ["instances", f"{told['instances']:,}"],
        ["GPUs", f"{told['gpus']:,}"],
        ["usable requests/s of an instance", f"{told['usable_rps']:.3g}"],
        ["load of the fleet at the peak", f"{told['utilisation_at_peak']:.0%}"],
    ]
    if told["limits"]:
        limit = told["limits"]
        rows += [
            ["longest queue of an instance", f"{limit['queue']:,}"],
            ["shed load from, and all at", f"{limit['shed_from']:,}, {limit['shed_at']:,}"],
        ]
        rows += [
            [name, f"{limit[key]:,}"]
            for name, key in (
                ("requests in flight to admit", "admission"),
                ("longest prompt to admit (tokens)", "input_tokens"),
            )
            if limit[key] is not None
        ]
    if "cost" in told:
        names = {
            "hour": "USD an hour",
            "month": "USD a month",
            "million_output_tokens_at_peak": "USD a million output tokens, at peak all day",
            "break_even_million_tokens_a_month": "million output tokens a month to break even with the API",
        }
        rows += [[names[key], f"{value:,.2f}"] for key, value in told["cost"].items() if key in names]
    print_table(rows)
    if told["consistent"] is False:
        print(
            f"\nLittle's law gives {told['little']:.2g} times the requests/s measured: load, latency and rate do not belong together."
        )
