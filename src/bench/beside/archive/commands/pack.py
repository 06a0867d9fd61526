"""`bench pack`: a study's measured runs as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from bench.cli.entry import command
from bench.cli.options import Configfile, Json, Scale, Select, option
from bench.cli.output import print_json


@command(
    "bench pack",
    "bench pack --configfile config/studies/h200.yaml --output h200.tar.gz",
)
def pack(
    configfile: Configfile = None,
    select: Select = None,
    scale: Scale = None,
    output: Annotated[Path | None, option("FILE", "The file.", default="results/packs/STUDY.tar.gz")] = None,
    json: Json = False,
) -> None:
    """With their deployments' facts and logs, as the sessions left them. `make pack` measures first. Runs that are missing are named
    and left out: a study that was interrupted can be packed too.
    """
    from bench.beside.archive.pack import pack, packed_text
    from bench.cli.study import load_plan
    from bench.runs.paths import Paths
    from bench.runs.store import Store
    from bench.yaml_file import read_yaml

    file, plan = load_plan(configfile, select, scale, json=json)
    output = output or Path(Paths.RESULTS) / "packs" / f"{file.stem}.tar.gz"
    done = pack(plan, read_yaml(file), output, Store())
    if json:
        print_json({"file": str(output), "bytes": output.stat().st_size, "runs": done.runs, "missing": done.missing})
        return
    print(f"{output}: {packed_text(done)}, {output.stat().st_size / 2**20:.1f} MiB")
