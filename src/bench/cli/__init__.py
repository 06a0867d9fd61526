"""The `bench` command: the study's runs, and each stage by itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status, as `bench.cli.help` has them."""
    from bench.cli.entry import run

    return run((sys.argv[1:] if arguments is None else list(arguments)) or ["--help"])
