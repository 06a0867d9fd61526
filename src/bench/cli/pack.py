"""`bench pack` and `bench unpack`: measure on one machine, parse and draw on another."""

from __future__ import annotations

import argparse
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cli.common import Commands, add_config, load_plan
from bench.errors import BenchError
from bench.store import Store
from bench.store.pack import Packed, pack
from bench.store.unpack import unpack
from bench.study import Paths
from bench.yaml_file import read_yaml

__all__ = ["add"]


def add(commands: Commands) -> None:
    packing = commands.add_parser(
        "pack",
        help="put a study's measured runs into one file",
        description="Put every measured run of a study into one file, with its deployments' facts and logs, as the sessions left them. "
        "`make pack` measures first. Runs that are missing are named and left out: a study that was interrupted can be packed too.",
    )
    add_config(packing)
    packing.add_argument("--output", type=Path, metavar="FILE", help="the file (default: results/packs/STUDY.tar.gz)")
    packing.set_defaults(run=_pack)
    unpacking = commands.add_parser(
        "unpack",
        help="take in the runs that another machine packed",
        description="Check every file of a pack and put its runs among the results here. The next workflow on the pack's study parses "
        "and draws them, and measures nothing.",
    )
    unpacking.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what `bench pack` wrote")
    unpacking.set_defaults(run=_unpack)


def _pack(options: argparse.Namespace) -> None:
    file: Path = options.configfile
    output: Path = options.output or Path(Paths.STORE).parent / "packs" / f"{file.stem}.tar.gz"
    done = pack(load_plan(options), read_yaml(file), output, Store(Path(Paths.STORE)))
    print(f"{output}: {_runs(done)}, {output.stat().st_size / 2**20:.1f} MiB")


def _unpack(options: argparse.Namespace) -> None:
    with _no_workflow():
        for file in options.files:
            done = unpack(file, Store(Path(Paths.STORE), owner="unpack"))
            print(f"{file}: {_runs(done)}\nNow: make figures CONFIG={done.study}")


@contextmanager
def _no_workflow() -> Iterator[None]:
    """Hold the lock of this folder's workflows, which make takes too.

    Raises:
        BenchError: one runs.
    """
    with Path(".snakemake.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BenchError("a workflow runs in this folder; wait for it, or end it.") from None
        yield


def _runs(packed: Packed) -> str:
    told = f"{len(packed.runs)} runs"
    if packed.missing:
        told += f"; {len(packed.missing)} of the study are left out, not measured or damaged, such as {packed.missing[0]}"
    return told
