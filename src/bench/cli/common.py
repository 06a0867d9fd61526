"""Options that several commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.published import Device, devices
from bench.study import Deployment, Plan, load_file
from bench.yaml_file import read_yaml

__all__ = [
    "Commands",
    "add_config",
    "add_engine_memory",
    "add_hardware",
    "at_least_one",
    "hardware",
    "load_plan",
    "print_json",
    "print_table",
    "refuse_missing_gpus",
    "refuse_wrong_share",
]

Commands = Any  # argparse's own class for subparsers has no public name


def add_config(parser: argparse.ArgumentParser) -> None:
    """Options that say which study is meant."""
    parser.add_argument(
        "--configfile", type=Path, default=Path("config/config.yaml"), metavar="F", help="the study (default: %(default)s)"
    )
    parser.add_argument("--select", metavar="PATTERN", help="only runs whose deployment/run matches this shell pattern")


def load_plan(options: argparse.Namespace) -> Plan:
    """The plan that the options name.

    Raises:
        BenchError: there is no such file, or its configuration is refused.
    """
    if not options.configfile.exists():
        raise BenchError(
            f"{options.configfile}: no such file in {Path.cwd()}, and this command is about a study. Run it in a clone of the project, "
            "or name the study's file with --configfile."
        )
    return Plan.of(load_file(options.configfile, **({"select": options.select} if options.select else {})))


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """The option that overrides or adds devices."""
    parser.add_argument(
        "--hardware",
        type=Path,
        metavar="F",
        help="a YAML file of devices, which replace those known here key by key (`h100: {price_per_hour: 2.5}`), or add to them",
    )


def hardware(options: argparse.Namespace) -> dict[str, Device]:
    """Every device, with the user's own.

    Raises:
        BenchError: the file is missing, or an entry is wrong.
    """
    if options.hardware and not options.hardware.is_file():
        raise BenchError(f"--hardware {options.hardware}: no such file.")
    try:
        return devices(read_yaml(options.hardware) if options.hardware else None)
    except BenchError as error:
        raise BenchError(f"--hardware {options.hardware}: {error}" if options.hardware else str(error)) from None


def add_engine_memory(parser: argparse.ArgumentParser) -> None:
    """Options that decide what an engine leaves for the KV cache, with a deployment's defaults."""
    default = {name: field.default for name, field in Deployment.model_fields.items()}
    parser.add_argument(
        "--gpu-memory-utilization",
        type=float,
        default=default["gpu_memory_utilization"],
        metavar="SHARE",
        help="share of a GPU's memory that the engine may take (default: %(default)s)",
    )
    parser.add_argument(
        "--tensor-parallel",
        type=at_least_one,
        default=default["tensor_parallel"],
        metavar="N",
        help="GPUs that share each layer (default: %(default)s)",
    )
    parser.add_argument(
        "--max-num-seqs",
        type=at_least_one,
        default=default["max_num_seqs"],
        metavar="N",
        help="most sequences in one step, for which the sampler keeps memory, and a bound on requests at once (default: %(default)s)",
    )


def refuse_wrong_share(options: argparse.Namespace) -> None:
    """Refuse a memory share that is none.

    Raises:
        BenchError: it is not above 0 and at most 1.
    """
    if not 0 < options.gpu_memory_utilization <= 1:
        raise BenchError(
            f"--gpu-memory-utilization is {options.gpu_memory_utilization:g}; it is a share, above 0 and at most 1."
        )


def at_least_one(text: str) -> int:
    """A whole number of 1 or more, for `type=`."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def print_table(rows: Sequence[Sequence[str]], align: str = "") -> None:
    """Print rows, the head among them, in columns.

    Args:
        align: `<` or `>` for each column; without it, the first is left and the others right.
    """
    align = align or "<" + ">" * (len(rows[0]) - 1)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)).rstrip())


def print_json(content: Any) -> None:
    """Print a result for another program."""
    print(json.dumps(content, indent=2))


def refuse_missing_gpus(endpoints: Iterable[str], *, option: str) -> None:
    """Refuse an `nvml:` endpoint that cannot be read here, before anything is measured for it.

    Raises:
        BenchError: it says why, and under which option the endpoint was given.
    """
    from bench.telemetry import is_nvml, nvml_problem  # noqa: PLC0415 - --help must not pay for it

    for endpoint in filter(is_nvml, endpoints):
        if problem := nvml_problem(endpoint):
            raise BenchError(f"{option} {endpoint}: {problem}.")
