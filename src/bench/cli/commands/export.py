"""`bench export`: a measured deployment as production runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import option

#: What a deployment can be written as; `bench.export.FORMS` has the same names.
Form = Literal["command", "compose", "helm"]


@command(
    "bench export tiny-mha",
    "bench export llama-fp8 --form compose --output compose.yaml",
    "bench export llama-fp8 --form helm --output values.yaml",
)
def export(
    deployment: Annotated[
        str,
        typer.Argument(
            metavar="DEPLOYMENT",
            help="A deployment of the results in this folder.",
            show_default=False,
            autocompletion=completion.deployments,
        ),
    ],
    form: Annotated[
        Form,
        option(
            None,
            "command: a shell script. compose: a Docker Compose file. helm: values of vLLM's production stack (chart vllm/vllm-stack).",
        ),
    ] = "command",
    output: Annotated[Path | None, option("FILE", "Where to write it.", default="standard output")] = None,
) -> None:
    """Prints how the server was started, with what belongs to the benchmark alone left out (random weights, seeds, its own names), and
    as comments what was held fixed: version, device, model, loads, and the limit that was found. Values of secrets are never printed.
    """
    from bench.errors import BenchError
    from bench.export import FORMS, read_exported

    text = FORMS[form](read_exported(deployment))
    if output is None:
        print(text, end="")
        return
    if not output.parent.is_dir():
        raise BenchError(f"--output {output}: there is no folder {output.parent}. Make it, or name another file.")
    output.write_text(text, encoding="utf-8")
    if form == "command":
        output.chmod(0o755)
