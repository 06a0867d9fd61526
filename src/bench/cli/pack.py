"""`bench pack` and `bench unpack`: measure on one machine, parse and draw on another."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.cli.init import snakemake
from bench.cli.output import print_json
from bench.cli.study import load_plan
from bench.errors import BenchError
from bench.store import Store
from bench.store.pack import Packed, pack
from bench.store.unpack import unpack
from bench.study import Paths
from bench.yaml_file import read_yaml

__all__ = ["pack_study", "unpack_files"]


def pack_study(configfile: Path | None, select: str | None, output: Path | None, *, json: bool) -> None:
    file, plan = load_plan(configfile, select, json=json)
    output = output or Path(Paths.RESULTS) / "packs" / f"{file.stem}.tar.gz"
    done = pack(plan, read_yaml(file), output, Store())
    if json:
        print_json({"file": str(output), "bytes": output.stat().st_size, "runs": done.runs, "missing": done.missing})
        return
    print(f"{output}: {_runs(done)}, {output.stat().st_size / 2**20:.1f} MiB")


def unpack_files(files: Sequence[Path], *, json: bool) -> None:
    unpacked = []
    with _no_workflow():
        for file in files:
            done = unpack(file, Store(owner="unpack"))
            unpacked.append({"file": str(file), "study": str(done.study), "runs": done.runs, "missing": done.missing})
            if not json:
                print(f"{file}: {_runs(done)}\nNow: {_draw(done.study)}")
    if json:
        print_json(unpacked)


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


def _draw(study: Path | None) -> str:
    """The command that draws a pack's study: in a clone, or in a study's own folder."""
    if Path("Makefile").exists():
        return f"make figures CONFIG={study}"
    return f"{snakemake()} --cores 1 results/figures/all --configfile {study}"


def _runs(packed: Packed) -> str:
    text = f"{len(packed.runs)} runs"
    if packed.missing:
        text += f"; {len(packed.missing)} of the study are left out, not measured or damaged, such as {packed.missing[0]}"
    return text
