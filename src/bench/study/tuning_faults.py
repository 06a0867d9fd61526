"""What of a configuration's `tune` leads nowhere, or cannot be compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.axes import AXES
from bench.errors import as_written, names_text
from bench.study.config import Config
from bench.study.tuning import candidates, competing

_PARALLEL = {"tensor_parallel", "pipeline_parallel", "data_parallel"}
_FEWEST_CANDIDATES = 2  # fewest servers of a tuning; derived


def tuning_faults(
    config: Config,
    tables: Mapping[str, Mapping[str, Any]],
    swept_names: Mapping[str, Sequence[str]],
    faults_of: Callable[[Config], Iterable[str]],
) -> Iterator[str]:
    """Faults of a tuning: of its own names, then those of the study of its candidates.

    Args:
        tables: the configuration's, by what they hold. swept_names: the combinations of each swept deployment.
    """
    tune = config.tune
    if tune is None:
        return
    faults = [
        f"tune.{key} is {wanted!r}, which {table} does not define. Defined: {names_text(as_written(tables[table[:-1]], swept_names))}."
        for key, table, names in (
            ("deployments", "deployments", tune.deployments),
            ("default", "deployments", [tune.default] if tune.default else []),
            ("workload", "workloads", [tune.workload]),
        )
        for wanted in names
        if wanted not in tables[table[:-1]]
    ]
    yield from faults
    names = candidates(config)
    if len(set(names)) < len(names):
        yield "tune.deployments names one twice. Remove it."
    if len(names) < _FEWEST_CANDIDATES:
        yield f"tune.deployments is {names[0]} alone, and a tuning needs two servers or more. Give it a sweep, or name another one."
    if tune.objective == "cost":
        for name in names:
            deployment = config.deployments.get(name)
            engine = deployment and config.engines.get(deployment.engine)
            if deployment and engine and engine.source == "external" and not deployment.model_fields_set & _PARALLEL:
                yield (
                    f"tune.objective is cost, and how many GPUs deployments.{name} has is not known. Give it tensor_parallel, or make "
                    "the objective requests."
                )
    workload = config.workloads.get(tune.workload)
    if workload and (no_search := AXES[workload.axis].no_search):
        yield (
            f"tune.workload is {tune.workload!r}, whose highest load no search finds: {no_search.partition('. ')[0]}. Use an open "
            "loop, or arrival: closed without turns."
        )
    elif workload and not faults:
        known = set(_without_ladders(faults_of(config.model_copy(update={"tune": None}))))
        found = _without_ladders(faults_of(competing(config, names)))
        yield from dict.fromkeys(fault for fault in found if fault not in known)


def _without_ladders(faults: Iterable[str]) -> Iterator[str]:
    for fault in faults:
        yield re.sub(r"study\.ladders\[\d+\]", "tune", fault)
