"""Options that several commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.study import Plan, load_file

__all__ = ["Commands", "add_config", "load_plan", "print_json", "refuse_missing_gpus"]

Commands = Any  # argparse's own class for subparsers has no public name


def add_config(parser: argparse.ArgumentParser) -> None:
    """Options that say which study is meant."""
    parser.add_argument(
        "--configfile", type=Path, default=Path("config/config.yaml"), metavar="F", help="the study (default: %(default)s)"
    )
    parser.add_argument("--select", metavar="PATTERN", help="only runs whose deployment/run matches this shell pattern")


def load_plan(options: argparse.Namespace) -> Plan:
    """The plan that the options name."""
    return Plan.of(load_file(options.configfile, **({"select": options.select} if options.select else {})))


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
