"""`bench export`: a measured deployment as production runs it, or its runs as reports that other tools read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import option

#: What a deployment can be written as; `bench.beside.interop.export.FORMS` has the same names, but for the last one, which is of runs.
Form = Literal["command", "compose", "kubernetes", "benchmark-report"]


@command(
    "bench export tiny-mha",
    "bench export llama-fp8 --form compose --output compose.yaml",
    "bench export llama-fp8 --form kubernetes --output llama-fp8.yaml",
    "bench export runs/one --form benchmark-report --output reports",
)
def export(
    deployment: Annotated[
        str,
        typer.Argument(
            metavar="DEPLOYMENT",
            help="A deployment of the results in this folder; of runs also what `bench compare` takes, such as runs/one.",
            show_default=False,
            autocompletion=completion.deployments,
        ),
    ],
    form: Annotated[
        Form,
        option(
            None,
            "command: a shell script. compose: a Docker Compose file. kubernetes: a Deployment with a Service. benchmark-report: the "
            "numbers of each run, as llm-d-benchmark and inference-perf write them (version 0.2).",
        ),
    ] = "command",
    output: Annotated[Path | None, option("FILE", "Where to write it; of runs a folder.", default="standard output")] = None,
) -> None:
    """Prints how the server was started, with what belongs to the benchmark alone left out (random weights, seeds, its own names), and
    as comments what was held fixed: version, device, model, loads, and the limit that was found. Values of secrets are never printed.
    """
    from bench.beside.interop.export import read_exported, written
    from bench.errors import BenchError

    if form == "benchmark-report":
        _reports(deployment, output)
        return
    text = written(read_exported(deployment), form)
    if output is None:
        print(text, end="")
        return
    if not output.parent.is_dir():
        raise BenchError(f"--output {output}: there is no folder {output.parent}. Make it, or name another file.")
    output.write_text(text, encoding="utf-8")
    if form == "command":
        output.chmod(0o755)


def _reports(source: str, output: Path | None) -> None:
    """Write each run into a file of a folder, or print the only run."""
    import yaml

    from bench.beside.interop.export.benchmark_report import benchmark_report
    from bench.errors import BenchError, count_text
    from bench.results import Results

    rows = Results.open(source).own.to_dicts()
    if output is None and len(rows) != 1:
        raise BenchError(
            f"{source}: has {count_text(len(rows), 'run')}, and a file is of one. Give --output DIR, for a file each."
        )
    if output is not None and output.is_file():
        raise BenchError(f"--output {output}: it is a file, and runs are written into a folder, a file each. Name a folder.")
    reports, left_out = {}, []
    for row in rows:
        name = f"{row['deployment']}_{row['run']}.yaml".replace("/", "_")
        if name in reports:
            raise BenchError(f"{source}: several runs would be {name}, by deployment and name. Export each folder by itself.")
        try:
            reports[name] = yaml.safe_dump(benchmark_report(row), sort_keys=False, width=120)
        except BenchError as error:
            left_out.append(f"{row['deployment']}/{row['run']}: {error}")
    if not reports:
        raise BenchError("\n".join(left_out))
    for name, text in reports.items():
        if output is None:
            print(text, end="")
            continue
        output.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text, encoding="utf-8")
        print(output / name)
    for line in left_out:
        print(f"Left out: {line}", file=sys.stderr)
