"""What the shell completes beyond options: names from the catalogues, the summary table and the results of this folder.

Read as plain text where they can be: nobody waits a second for a completion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_BENCH = Path(__file__).parents[1]
_RUNS = Path("results/runs")


def models(incomplete: str) -> list[str]:
    """Models of the catalogue."""
    return _starting(incomplete, _keys("models/catalogue.yaml"))


def accelerators(incomplete: str) -> list[str]:
    """GPUs of the catalogue."""
    return _starting(incomplete, _keys("models/accelerators.yaml"))


def metrics(incomplete: str) -> list[str]:
    """Columns of the summary table that are compared."""
    from bench.runs.columns import METRICS

    return _starting(incomplete, METRICS)


def figures(incomplete: str) -> list[str]:
    """Figures that there are."""
    from bench.findings.registry import FIGURES

    return _starting(incomplete, FIGURES.every())


def deployments(incomplete: str) -> list[str]:
    """Deployments with runs in this folder."""
    return _starting(incomplete, (folder.name for folder in sorted(_RUNS.glob("*")) if folder.is_dir()))


def runs(incomplete: str) -> list[str]:
    """Runs in this folder, as deployment/run."""
    return _starting(incomplete, (f"{folder.parent.name}/{folder.name}" for folder in sorted(_RUNS.glob("*/*"))))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _keys(file: str) -> Iterator[str]:
    """The keys of a mapping in YAML that stand at the beginning of a line."""
    return (found[1] for found in re.finditer(r"^([a-z0-9.-]+):", (_BENCH / file).read_text(encoding="utf-8"), re.MULTILINE))
