"""Our stages over a folder of results: `python -m benchmarks.tables.ours STAGE RESULTS [FIGURE...]`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["parse"]


def parse(results: Path) -> None:
    """Every run's tables and summary, as the rule `parse` makes them."""
    from bench.parse import parse_run  # noqa: PLC0415 - each stage pays for its own imports, as its rule does

    for record in sorted(results.glob("runs/*/*/run.json")):
        folder = record.parent
        parse_run(
            folder,
            requests=folder / "requests.parquet",
            telemetry=folder / "telemetry.parquet",
            wide=folder / "metrics.csv",
            summary=folder / "summary.json",
        )


def aggregate(results: Path) -> None:
    """The tables of all runs, as the rule `aggregate` makes them."""
    from bench import aggregate as tables  # noqa: PLC0415
    from bench.study.config import Thresholds  # noqa: PLC0415

    tables.aggregate(
        sorted(results.glob("runs/*/*/summary.json")),
        launches=sorted(results.glob("deployments/*/launch.json")),
        facts=sorted(results.glob("deployments/*/deployment.json")),
        thresholds=Thresholds(),
        summary=results / "summary.parquet",
        summary_csv=results / "summary.csv",
        timeseries=results / "timeseries.parquet",
    )


def figures(results: Path, names: Sequence[str]) -> None:
    """Figures as SVG, PNG and Vega-Lite; without names, all that the runs can answer."""
    from bench.figures import Results, figures_of  # noqa: PLC0415
    from bench.figures.save import save_figure  # noqa: PLC0415

    tables = Results.read(results / "summary.parquet", results / "timeseries.parquet")
    for name in names or figures_of(tables.runs.to_dicts()):
        save_figure(name, tables, results / "figures" / name)


def main(stage: str, results: Path, *names: str) -> None:
    """Do one stage, and print the seconds that it took after Python's start."""
    begin = time.perf_counter()
    if stage == "figures":
        figures(results, names)
    else:
        {"parse": parse, "aggregate": aggregate}[stage](results)
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
