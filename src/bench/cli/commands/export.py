"""`bench export`: a measured deployment as production runs it, or its runs as reports that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import option

#: What a deployment can be written as; `bench.export.FORMS` has the same names, but for the last.
Form = Literal["command", "compose", "helm", "benchmark-report"]


@command(
    "bench export tiny-mha",
    "bench export llama-fp8 --form compose --output compose.yaml",
    "bench export llama-fp8 --form helm --output values.yaml",
    "bench export runs/one --form benchmark-report --output reports",
)
def export(
    deployment: Annotated[
        str,
        typer.Argument(
            metavar="DEPLOYMENT",
            help="A deployment of the results in this folder; of benchmark reports also what `bench compare` takes, such as runs/one.",
            show_default=False,
            autocompletion=completion.deployments,
        ),
    ],
    form: Annotated[
        Form,
        option(
            None,
            "command: a shell script. compose: a Docker Compose file. helm: values of vLLM's production stack (chart vllm/vllm-stack). "
            "benchmark-report: the numbers of each run, as llm-d-benchmark and inference-perf write them (version 0.2).",
        ),
    ] = "command",
    output: Annotated[
        Path | None, option("FILE", "Where to write it; of benchmark reports a folder.", default="standard output")
    ] = None,
) -> None:
    """Prints how the server was started, with what belongs to the benchmark alone left out (random weights, seeds, its own names), and
    as comments what was held fixed: version, device, model, loads, and the limit that was found. Values of secrets are never printed.
    """
    from bench.errors import BenchError
    from bench.export import FORMS, read_exported

    if form == "benchmark-report":
        _reports(deployment, output)
        return
    text = FORMS[form](read_exported(deployment))
    if output is None:
        print(text, end="")
        return
    if not output.parent.is_dir():
        raise BenchError(f"--output {output}: there is no folder {output.parent}. Make it, or name another file.")
    output.write_text(text, encoding="utf-8")
    if form == "command":
        output.chmod(0o755)


def _reports(source: str, output: Path | None) -> None:
    """Write the report of each run into a folder, or print that of the only run."""
    import yaml

    from bench.cli.sources import read_source
    from bench.errors import BenchError, count_text
    from bench.export.benchmark_report import benchmark_report

    rows = read_source(source).to_dicts()
    if output is None and len(rows) != 1:
        raise BenchError(
            f"{source}: has {count_text(len(rows), 'run')}, and a report is of one. Give --output DIR, for a file each."
        )
    if output is not None and output.is_file():
        raise BenchError(f"--output {output}: it is a file, and reports are written into a folder, a file each. Name a folder.")
    for row in rows:
        text = yaml.safe_dump(benchmark_report(row), sort_keys=False, width=120)
        if output is None:
            print(text, end="")
            return
        file = output / f"{row['deployment']}_{row['run']}.yaml".replace("/", "_")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(file)
