"""What a model of the default's first start expects of the other candidates: its runs, replayed under the limits of their schedulers.

It says who is started first, and who need not be. What is concluded of a candidate rests on its own starts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.errors import BenchError
from bench.parse.run import parse_run
from bench.parse.table import summary_frame
from bench.predict.calibrate import MeasuredRun, calibrate
from bench.predict.limit import highest_loads
from bench.predict.limits import Limits, limits_of
from bench.predict.sources import measured_runs, why_none
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.runs.store import Store
from bench.runs.tuning import Predicted
from bench.servers.settings import STEP_TOKENS, flag_column
from bench.study.plan import Plan
from bench.study.searches import SearchSpec, found_runs

# Settings that change nothing of a server but its scheduler's limits.
_REPLAYED = {"max_num_seqs", "kv_cache_memory", "block_size", "prefix_caching"}
_REPLAYED |= {flag_column(flag) for flags in (*STEP_TOKENS.values(), ("ubatch-size", "ub")) for flag in flags}


def predicted(plan: Plan, names: Sequence[str], near: float, say: Callable[[str], None]) -> Predicted:
    """The highest rates within the SLOs that a model of the default's runs expects of it and the others.

    Args:
        plan: of the candidates, each with its search. names: of the candidates, the default first. near: its rate (requests/s).
    """
    since = time.monotonic()
    try:
        rates = _rates(plan, names, near)
    except (BenchError, ArithmeticError, ValueError) as error:  # a server that has no model is tuned without one
        rates = {}
        say(f"no candidate's rate is predicted: {str(error).rstrip('.')}")
    return Predicted(rates=rates, seconds=round(time.monotonic() - since, 1))


def limits_of_candidate(default: Launch, facts: DeploymentFacts, candidate: Launch) -> Limits | None:
    """What a candidate's scheduler obeys before it was ever started; None where it differs from the default in more than that.

    Args:
        facts: of the default's server, as it ran.

    Raises:
        BenchError: it is not known.
    """
    one, other = default.configured, candidate.configured
    changed = {name for name in {**one, **other} if one.get(name) != other.get(name)}
    if changed - _REPLAYED or (default.model, default.engine) != (candidate.model, candidate.engine):
        return None
    memory, before = other.get("kv_cache_memory"), one.get("kv_cache_memory")
    size = candidate.settings.block_size if "block_size" in changed else facts.block_size
    if "kv_cache_memory" in changed and not (isinstance(memory, int) and isinstance(before, int)):
        return None
    if "block_size" in changed and not (size and facts.block_size):
        return None
    blocks = facts.kv_blocks
    if blocks is not None and isinstance(memory, int) and isinstance(before, int):
        blocks = blocks * memory // before
    if blocks is not None and size and facts.block_size:
        blocks = blocks * facts.block_size // size
    caching = other.get("prefix_caching") if "prefix_caching" in changed else facts.prefix_caching
    own = set(map(flag_column, STEP_TOKENS.get(candidate.kind, ())))
    return limits_of(
        candidate,
        replace(
            facts,
            kv_blocks=blocks,
            block_size=size,
            prefix_caching=None if caching is None else bool(caching),
            step_tokens=None if changed & own else facts.step_tokens,
        ),
    )


def _rates(plan: Plan, names: Sequence[str], near: float) -> dict[str, float]:
    default, *others = (read(Launch, Path(Paths.LAUNCH.format(deployment=name))) for name in names)
    facts, search = read(DeploymentFacts, Paths.facts(names[0])), plan.searches_of(names[0])[0]
    limits = limits_of(default, facts)
    runs = _runs(plan, search, default, facts, limits)
    model = calibrate(runs, limits, draws=1)
    if model is None:
        raise ValueError(f"{names[0]} showed too few steps of its engine")
    obeyed = {name: limits_of_candidate(default, facts, each) for name, each in zip(names[1:], others, strict=True)}
    shown = {name: replace(each, ahead=model.limits.ahead) for name, each in obeyed.items() if each is not None}
    asked = {names[0]: model.limits, **shown}
    loads = highest_loads(model, runs, search.slos, near, list(asked.values()))
    return {name: round(load, 4) for name, load in zip(asked, loads, strict=True) if load is not None}


def _runs(plan: Plan, search: SearchSpec, launch: Launch, facts: DeploymentFacts, limits: Limits) -> list[MeasuredRun]:
    """The valid runs of the default's first start."""
    store, name = Store(owner=search.deployment.name), search.deployment.name
    with tempfile.TemporaryDirectory() as folder:
        results, rows = Path(folder), []
        for run in found_runs([search], store.root.glob(f"{name}/*/{RECORD}")):
            tables = (results / Path(Paths.REQUESTS.format(deployment=name, run=run.name)).relative_to(Paths.RESULTS)).parent
            tables.mkdir(parents=True)
            files = {"requests": tables / "requests.parquet", "telemetry": tables / "telemetry.parquet"}
            rows.append(parse_run(store.folder(run), **files, wide=tables / "metrics.csv", summary=tables / "summary.json"))
        table = summary_frame(rows, {name: launch}, {name: facts}, plan.config.thresholds)
        runs = measured_runs(table, results, name, limits)
        if not runs:
            raise BenchError(why_none(table, name, runs))
        return runs
