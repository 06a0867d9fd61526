"""Options that several commands share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.study import Plan, load_file

__all__ = ["Commands", "add_config", "load_plan", "print_json"]

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
