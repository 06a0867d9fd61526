"""Commands of other tools' files: theirs set beside our own runs, and what was measured here written for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bench.cli.entry import command
from bench.cli.options import Json, option
from bench.cli.output import print_json, print_table

if TYPE_CHECKING:
    from bench.beside.interop.imported import Imported

# Columns of numbers, and by what each is multiplied. Lengths are means in tokens.
_NUMBERS = {
    "prompt": ("counted_prompt_tokens", 1.0),
    "output": ("counted_output_tokens", 1.0),
    "requests/s": ("throughput_requests_per_s", 1.0),
    "tokens/s": ("throughput_tokens_per_s", 1.0),
    "TTFT P50, ms": ("ttft_p50_s", 1e3),
    "P99, ms": ("ttft_p99_s", 1e3),
    "TPOT P50, ms": ("tpot_p50_s", 1e3),
    "ITL P50, ms": ("itl_p50_s", 1e3),
    "E2E P50, ms": ("e2e_p50_s", 1e3),
}
_Row = Mapping[str, Any]


@command(
    "bench import vllm.json guidellm.json",
    "bench import runs/own vllm.json guidellm.json artifacts/aiperf reports/inference-perf --output-dir runs/imported",
    after="What each tool defines otherwise: docs/reference/imported.md.",
)
@dataclass(frozen=True, kw_only=True)
class Import:
    """Reads result files of vLLM bench, GuideLLM, AIPerf and inference-perf, each known by its content, and prints one table of their
    runs: what follows from their records by Saturate's definitions.

    With --output-dir each run is written as `bench parse` writes ours, so that `bench compare` and `bench figures` take it. Runs of the
    same arrivals and lengths share the name of their load, that of your own run if it is among the files. What a file does not say,
    such as what the server did, stays empty.
    """

    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Result files, folders of them, and parsed runs of your own as `bench compare` takes them.",
            show_default=False,
        ),
    ]
    output_dir: Annotated[
        Path | None, option("DIR", "Write each run into a folder of its own below DIR.", default="print only")
    ] = None
    json: Json = False

    def run(self) -> None:
        """Print the table, and write the runs."""
        from bench.beside.interop.imported import imported, read_peers, write_imported
        from bench.results import Results

        ours = [text for text in self.files if _has_own(text)]
        own = [row for text in ours for row in Results.open(text).own.to_dicts()]
        theirs = [text for text in self.files if text not in ours or Path(text).is_dir()]
        runs = imported((peer for text in theirs for peer in read_peers(Path(text), beside_own=text in ours)), own)
        written = list(map(str, write_imported(runs, self.output_dir))) if self.output_dir else []
        if self.json:
            found = [
                {
                    "tool": run.form.title,
                    "version": run.peer.version,
                    "source": str(run.source),
                    "figures": _plain(run.run.figures),
                }
                for run in runs
            ]
            print_json({"own": list(map(_plain, own)), "imported": found, "written": written})
            return
        print_table([*_rows(runs, own)], "<<" + ">" * 10)
        print("", *_notes(own), *written, sep="\n")


def _has_own(text: str) -> bool:
    """Whether it has runs of our own: a table, a folder with one or with a run at any depth, or one of its deployments."""
    from bench.beside.interop.imported import OWN

    place = Path(text)
    if not place.exists():
        return Path(text.rpartition(":")[0]).exists() and ":" in text
    names = ("summary.parquet", *OWN)
    return place.suffix == ".parquet" or (place.is_dir() and any(any(place.rglob(name)) for name in names))


def _plain(row: _Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and not isinstance(value, list)}


def _rows(runs: Sequence[Imported], own: Sequence[_Row]) -> Iterator[list[str]]:
    """Our own runs and those of other tools, by load."""
    named = [(str(row["deployment"]) + ("" if row["valid"] else ", invalid"), row) for row in own]
    named += [(f"{run.form.title} {run.peer.version or ''}".strip(), run.run.figures) for run in runs]
    yield ["", "load", "answered", *_NUMBERS]
    for name, row in sorted(named, key=lambda each: (str(each[1]["workload"]), str(each[1]["axis"]), each[1]["level"])):
        numbers = [row[column] and times * row[column] for column, times in _NUMBERS.values()]
        shown = ("–" if number is None else f"{float(f'{number:.3g}'):,g}" for number in numbers)
        yield [name, _load(row), f"{row['ok']} of {row['requests']}", *shown]


def _load(row: _Row) -> str:
    from bench.axes import AXES

    return f"{row['workload']} {AXES[row['axis']].label(row['level'])}"


def _notes(own: Sequence[_Row]) -> Iterator[str]:
    """What a reader of the table should know of the runs."""
    from bench.parse.validity import reason_texts

    for row in own:
        if not row["valid"]:
            yield f"{row['deployment']}, {_load(row)}: invalid, as {'; '.join(reason_texts(row['reasons']))}."
    yield "What each tool defines otherwise, or by another name: docs/reference/imported.md."


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
            help="A deployment of the results in this folder; for reports what `bench compare` takes, such as runs/one.",
            show_default=False,
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
            f"{source}: has {count_text(len(rows), 'run')}, but a file holds one. Give --output DIR, for a file each."
        )
    if output is not None and output.is_file():
        raise BenchError(f"--output {output}: this is a file, but each run needs its own. Name a folder.")
    for row in rows:
        text = yaml.safe_dump(benchmark_report(row), sort_keys=False, width=120)
        if output is None:
            print(text, end="")
            continue
        output.mkdir(parents=True, exist_ok=True)
        file = output / f"{row['deployment']}_{row['run']}.yaml".replace("/", "_")
        file.write_text(text, encoding="utf-8")
        print(file)
