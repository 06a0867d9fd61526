"""The `bench` command: the study's runs, and each stage by itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import bench
from bench.cli import config, figures, parse, runs, scrape, workload
from bench.errors import BenchError

__all__ = ["main"]

_COMMANDS = (runs, workload, scrape, parse, figures, config)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, 2 for what the user can mend, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Saturate: find where an LLM inference server saturates, and why. `snakemake --cores 1` runs a whole study; "
        "these commands look at one, or run a single stage against any OpenAI-compatible server.",
    )
    parser.add_argument("--version", action="version", version=f"saturate {bench.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to say
        return 0
    return 0
