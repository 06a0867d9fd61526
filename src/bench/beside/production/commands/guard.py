"""`bench guard`: what a study measured, as alerts, a dashboard and limits of production."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import option


@command(
    "bench guard --deployment llama-fp8",
    "bench guard results --deployment llama-fp8 --workload chat --output-dir guard/llama-fp8",
)
def guard(
    results: Annotated[Path, typer.Argument(metavar="[RESULTS]", help="A folder with a study's results.")] = Path("results"),
    deployment: Annotated[
        str | None, option("NAME", "The server, where RESULTS has several.", complete=completion.deployments)
    ] = None,
    workload: Annotated[str | None, option("NAME", "The workload whose limit counts, where several were measured.")] = None,
    output_dir: Annotated[Path, option("FOLDER", "Where the files go.")] = Path("guard"),
) -> None:
    """Writes rules.yaml (Prometheus), dashboard.json (Grafana), haproxy.cfg and keda.yaml, with the metric names of the server or fleet
    that was measured. What the study does not know is left out, and a line says so.
    """
    from bench.beside.production.guard import FILES, read_measured, written

    measured = read_measured(results, deployment, workload)
    print(f"{measured.deployment}: {measured.limit_text}.")
    texts, left = written(measured)
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if name not in texts:
            (output_dir / name).unlink(missing_ok=True)  # of an earlier study, whose limits these are not
            continue
        (output_dir / name).write_text(texts[name], encoding="utf-8")
        print(f"{output_dir / name}")
    if left:
        print("\nLeft out:")
    for line in left:
        print(f"- {line}")
