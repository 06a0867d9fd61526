"""`bench wheels`: the packages that a study needs on a machine without network."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from bench.cli.common import Commands, add_config, load_plan
from bench.engine.environment import indexed_locks
from bench.engine.wheels import fetch_wheels
from bench.errors import BenchError

__all__ = ["add"]

_OLDEST = 11  # as pyproject.toml has it
_OWN_LOCK = Path(__file__).parents[3] / "requirements.lock"


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "wheels",
        help="fetch the packages that a study needs on a machine without network",
        description="Download the wheels of Saturate's own environment and of the engines that the study builds from locks, checked "
        "against the locks' hashes, for a Linux machine without network; `make pack WHEELS=DIR` installs them there.",
    )
    add_config(parser)
    parser.add_argument("--output-dir", type=Path, default=Path("wheels"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument(
        "--python-version",
        type=_minor,
        default=f"{sys.version_info.major}.{sys.version_info.minor}",
        metavar="X.Y",
        help="Python of that machine (default: this one's, %(default)s)",
    )
    parser.add_argument(
        "--machine", choices=("x86_64", "aarch64"), default="x86_64", help="processor of that machine (default: %(default)s)"
    )
    parser.set_defaults(run=_run)


def _minor(text: str) -> str:
    """A version of Python 3 that Saturate runs on, for `type=`."""
    if not re.fullmatch(r"3\.\d+", text) or int(text[2:]) < _OLDEST:
        raise argparse.ArgumentTypeError(f"{text} is no version such as 3.12, of 3.{_OLDEST} or newer")
    return text


def _run(options: argparse.Namespace) -> None:
    if not _OWN_LOCK.is_file():
        raise BenchError(
            f"{_OWN_LOCK.name}: an installed package has none. `bench wheels` fetches what `make pack WHEELS=DIR` installs in a clone "
            "of the project: run it in one."
        )
    engines = {spec.deployment.engine: spec.engine for spec in load_plan(options).deployments.values()}
    locks: dict[Path, str | None] = {_OWN_LOCK: None}
    for engine in engines.values():
        locks |= dict(indexed_locks(engine))
    files = fetch_wheels(
        list(locks.items()),
        options.output_dir,
        python=options.python_version,
        machine=options.machine,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    size = sum(file.stat().st_size for file in files)
    print(f"{options.output_dir}: {len(files)} packages, {size / 2**30:.2f} GiB")
    if sources := [file.name for file in files if file.suffix != ".whl"]:
        print(f"Built there, as they have no wheel for it: {', '.join(sources)}")
    for name, engine in engines.items():
        if engine.source != "lock":
            print(f"Engine {name} is a {engine.source}: that machine has to have it.")
