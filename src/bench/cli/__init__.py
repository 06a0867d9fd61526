"""The `bench` command: the study's runs, and each stage by itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status, as `bench.cli.help` has them."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given in ([], ["--help"], ["-h"]):
        from bench.cli.help import print_page

        print_page()
        return 0
    from bench.cli.entry import run

    return run(given)
