"""`bench import`: result files of other tools beside our own runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli.entry import command
from bench.cli.options import Json, option
from bench.cli.output import print_json, print_table


@command(
    "bench import vllm.json guidellm.json",
    "bench import runs/own vllm.json guidellm.json artifacts/aiperf reports/inference-perf --output-dir runs/imported",
    after="What each tool defines otherwise: docs/reference/imported.md.",
)
@dataclass(frozen=True, kw_only=True)
class Import:
    """Reads result files of vLLM bench, GuideLLM, AIPerf and inference-perf, each known by its content, and prints one table of their
    runs: what follows from their records by Saturate's definitions, and below it what the tool itself reports.

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
        from bench.beside.interop.imported.words import imported_notes, imported_rows
        from bench.results import Results

        ours = [text for text in self.files if _is_own(text)]
        own = [row for text in ours for row in Results.open(text).own.to_dicts()]
        runs = imported((peer for text in self.files if text not in ours for peer in read_peers(Path(text))), own)
        written = write_imported(runs, self.output_dir) if self.output_dir else []
        if self.json:
            print_json(
                {
                    "own": [_plain(row) for row in own],
                    "imported": [
                        {
                            "tool": run.form.title,
                            "version": run.peer.version,
                            "source": str(run.source),
                            "figures": _plain(run.figures),
                            "reported": run.peer.reported,
                        }
                        for run in runs
                    ],
                    "written": [str(place) for place in written],
                }
            )
            return
        print_table(imported_rows(runs, own), "<<" + ">" * 10)
        print()
        for line in imported_notes(runs, own):
            print(line)
        for place in written:
            print(place)


def _is_own(text: str) -> bool:
    """Whether it names runs of our own: a table, a folder with one or with parsed runs, or one of its deployments."""
    place = Path(text)
    if not place.exists():
        return Path(text.rpartition(":")[0]).exists() and ":" in text
    return place.suffix == ".parquet" or (
        place.is_dir() and any(any(place.rglob(name)) for name in ("summary.json", "summary.parquet", "run.json"))
    )


def _plain(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and not isinstance(value, list)}
