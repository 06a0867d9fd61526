"""What commands share that ask a calibrated model: options, the measured runs, what-ifs, and the load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.axes import AXES
from bench.cli.options import LOAD, Json, WorkloadFile, at_least_one, option
from bench.errors import BenchError, is_are
from bench.runs.classes import served_alike

if TYPE_CHECKING:
    import polars as pl

    from bench.predict.calibrate import MeasuredRun
    from bench.predict.state import Limits
    from bench.workloads.workload import Workload

WHAT_IF = "What if"


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """Options of a command that asks a calibrated model. Of a server that was not started here, those of a what-if say what it has."""

    results: Annotated[
        str, typer.Argument(metavar="RESULTS", help="A folder with results, with :DEPLOYMENT where it has several.")
    ] = "results"
    prompt_length: Annotated[int | None, option("TOKENS", "Of each prompt.", LOAD, parser=at_least_one)] = None
    output_length: Annotated[int | None, option("TOKENS", "Of each answer.", LOAD, parser=at_least_one)] = None
    workload: WorkloadFile = None
    kv_tokens: Annotated[int | None, option("TOKENS", "KV capacity.", WHAT_IF, parser=at_least_one)] = None
    max_num_seqs: Annotated[int | None, option("N", "Requests at once.", WHAT_IF, parser=at_least_one)] = None
    max_num_batched_tokens: Annotated[int | None, option("N", "Tokens of a step.", WHAT_IF, parser=at_least_one)] = None
    prefix_caching: Annotated[
        bool | None, option(None, "Whether prompts reuse what earlier ones had.", WHAT_IF, default="as the server")
    ] = None
    json: Json = False

    def named(self) -> tuple[pl.DataFrame, Path, str]:
        """The summary, the folder that it is of, and the deployment that is named, or the only one."""
        from bench.cli.sources import read_named
        from bench.runs.paths import Paths

        text = self.results
        table, deployment = read_named(text)
        names = table["deployment"].unique(maintain_order=True).to_list()
        if deployment is None and len(names) > 1:
            raise BenchError(
                f"one deployment is predicted at a time; name it, as {text}:{names[0]}. There are: {', '.join(names)}."
            )
        place = Path(text) if Path(text).exists() else Path(text.rpartition(":")[0] or Path(Paths.SUMMARY).parent)
        return table, place if place.is_dir() else place.parent, deployment or names[0]

    def measured(self) -> tuple[list[MeasuredRun], Limits]:
        """The valid runs of one deployment with their requests, and what its scheduler obeys."""
        from bench.predict.calibrate import Given
        from bench.predict.sources import measured_runs, read_limits

        table, root, deployment = self.named()
        given = Given(self.max_num_batched_tokens, self.max_num_seqs, self.kv_tokens, self.prefix_caching)
        limits = read_limits(root, deployment, given)
        found = measured_runs(table, root, deployment, limits)
        if not found:
            invalid = table.filter((table["deployment"] == deployment) & ~table["valid"]).height
            why = (
                f"; {invalid} {is_are(invalid)} invalid, and `bench discard --invalid` lets them be measured again"
                if invalid
                else ""
            )
            raise BenchError(
                f"{root}: no valid run of {deployment} with streamed answers whose requests.parquet is there{why}. Left out are "
                "runs in which tokens were drafted, traces whose prompts share blocks, and classes with models, priorities or shared "
                "beginnings of their own."
            )
        return found, limits

    def what_if(self, limits: Limits) -> Limits:
        """The limits with the settings that are asked for in their place."""
        if self.kv_tokens is not None:
            if limits.blocks is None:
                raise BenchError("--kv-tokens: this engine has slots, whose number is --max-num-seqs.")
            limits = replace(limits, blocks=self.kv_tokens // limits.block_size + 1)
        if self.max_num_seqs is not None:
            limits = replace(limits, sequences=self.max_num_seqs)
        if self.max_num_batched_tokens is not None:
            limits = replace(limits, tokens=self.max_num_batched_tokens)
        if self.prefix_caching is not None:
            limits = replace(limits, cached=self.prefix_caching)
        return limits

    def load(self, axis: str, requests: int | None = None, *, also: str | None = None) -> Workload:
        """The load of `--workload` or of the two lengths.

        Args:
            axis: of its levels. requests: of a replay; None for what the workload says.
            also: a further axis that `--workload` may have.

        Raises:
            BenchError: neither is given, or the load is of another axis.
        """
        from bench.study.read import load_workload, read_workload

        content: dict[str, Any]
        if self.workload is not None:
            content = read_workload(self.workload)
        elif self.prompt_length is None or self.output_length is None:
            raise BenchError("--prompt-length and --output-length say how long requests are; give both, or --workload FILE.")
        else:
            arrival = "closed" if AXES[axis].held else "poisson"
            content = {"arrival": arrival, "prompt_tokens": self.prompt_length, "output_tokens": self.output_length}
        if requests is not None:
            content |= {"num_requests": requests}
        workload = load_workload(content, source=str(self.workload or "the command line"))
        if not workload.lengths_known:
            raise BenchError(
                f"{self.workload}: nothing is predicted of prompts from a file, of natural answers, of a server's own answers in the "
                "history or of answers that are no tokens. Give lengths as numbers or distributions."
            )
        # What a class does not say, such as `cache`, is the workload's.
        sent = {name: {"body": part.body, "cache": part.cache} for name, part in workload.parts.items() if name}
        if not served_alike({name: {**each, "model": workload.classes[name].model} for name, each in sent.items()}):
            raise BenchError(
                f"{self.workload}: nothing is predicted of classes with models, priorities or shared beginnings of their own. Leave "
                "these keys out to predict what their lengths alone come to."
            )
        if workload.axis not in (axis, also) and not (AXES[workload.axis].held and AXES[axis].held):
            raise BenchError(f"the load of arrival {workload.arrival} has levels of {workload.axis}, not of {axis}.")
        return workload
