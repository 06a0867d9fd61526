"""`bench export`: a measured deployment as production runs it, or its runs as reports that other tools read."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import option

#: What a deployment can be written as; `bench.export.FORMS` has the same names, but for the last two, which are of runs.
Form = Literal["command", "compose", "helm", "benchmark-report", "openmetrics"]


@command(
    "bench export tiny-mha",
    "bench export llama-fp8 --form compose --output compose.yaml",
    "bench export llama-fp8 --form helm --output values.yaml",
    "bench export runs/one --form benchmark-report --output reports",
    "bench export results --form openmetrics --output scraped",
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
            "command: a shell script. compose: a Docker Compose file. helm: values of vLLM's production stack (chart vllm/vllm-stack). "
            "benchmark-report: the numbers of each run, as llm-d-benchmark and inference-perf write them (version 0.2). "
            "openmetrics: what was scraped during each run, with its times, for promtool and Grafana.",
        ),
    ] = "command",
    output: Annotated[Path | None, option("FILE", "Where to write it; of runs a folder.", default="standard output")] = None,
) -> None:
    """Prints how the server was started, with what belongs to the benchmark alone left out (random weights, seeds, its own names), and
    as comments what was held fixed: version, device, model, loads, and the limit that was found. Values of secrets are never printed.
    """
    from bench.errors import BenchError
    from bench.export import FORMS, read_exported

    if form in ("benchmark-report", "openmetrics"):
        _runs(deployment, form, output)
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


def _runs(source: str, form: Form, output: Path | None) -> None:
    """Write each run into a file of a folder, or print the only run."""
    from bench.cli.sources import read_source
    from bench.errors import BenchError, count_text

    rows = read_source(source).to_dicts()
    if output is None and len(rows) != 1:
        raise BenchError(
            f"{source}: has {count_text(len(rows), 'run')}, and a file is of one. Give --output DIR, for a file each."
        )
    if output is not None and output.is_file():
        raise BenchError(f"--output {output}: it is a file, and runs are written into a folder, a file each. Name a folder.")
    if output is None:
        for line in _lines(source, form, rows[0]):
            print(line)
        return
    ending = "yaml" if form == "benchmark-report" else "txt"
    names = [f"{row['deployment']}_{row['run']}.{ending}".replace("/", "_") for row in rows]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BenchError(f"{source}: several runs would be {twice[0]}, by deployment and name. Export each folder by itself.")
    left_out = []
    for row, name in zip(rows, names, strict=True):
        try:
            lines = _lines(source, form, row)
        except BenchError as error:
            left_out.append(f"{row['deployment']}/{row['run']}: {error}")
            continue
        output.mkdir(parents=True, exist_ok=True)
        with (output / name).open("w", encoding="utf-8") as text:
            text.writelines(f"{line}\n" for line in lines)
        print(output / name)
    if len(left_out) == len(rows):
        raise BenchError("\n".join(left_out))
    for line in left_out:
        print(f"Left out: {line}", file=sys.stderr)


def _lines(source: str, form: Form, row: dict[str, Any]) -> Iterable[str]:
    import yaml

    from bench.cli.sources import telemetry_of
    from bench.export.benchmark_report import benchmark_report
    from bench.export.openmetrics import open_metrics

    if form == "openmetrics":
        return open_metrics(row, telemetry_of(source, row))
    return yaml.safe_dump(benchmark_report(row), sort_keys=False, width=120).splitlines()
