"""A server's calibrated model: its scheduler's limits, its step times, and what it has seen."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from bench.errors import BenchError
from bench.predict.calibration import Interval
from bench.predict.state import Limits
from bench.predict.step_time import Fitted, StepTime, fit_steps
from bench.predict.steps import intervals
from bench.predict.way import Against, against
from bench.runs.deployment import DeploymentFacts
from bench.runs.launch import Launch
from bench.servers.engines import managed
from bench.servers.settings import STEP_TOKENS, flag_column, setting_name
from bench.workloads.schedule import PlannedRequest

# tokens of a step if neither command line nor log says; source: both engines' default on a CPU, vLLM's for each worker
_TOKENS = 2048
_ENDS = (0.05, 0.95)  # quantiles of the bootstrap between which a cost lies; derived: predict.predict has 90 %
_PASS_TOKENS = 512  # tokens of a pass if no flag says; source: llama.cpp's default for `--ubatch-size`
_SPECULATES = {
    "--speculative-config",
    "-sc",
    "--spec-method",
    "--spec-model",
    "--spec-type",
    "--spec-draft-model",
    "--model-draft",
    "-md",
}
_ONE_CACHE = {"--kv-unified", "-kvu"}  # of all of llama.cpp's slots


@dataclass(frozen=True)
class MeasuredRun:
    """A run to calibrate with, or to judge by.

    Attributes:
        row: of the summary. requests: its table, in the order of their indices.
    """

    name: str
    row: Mapping[str, Any]
    requests: pl.DataFrame
    _steps: dict[Limits, pl.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    def steps(self, limits: Limits) -> pl.DataFrame:
        """Its `intervals`, worked out once."""
        if limits not in self._steps:
            self._steps[limits] = intervals(self.requests, limits)
        return self._steps[limits]

    @property
    def held(self) -> int | None:
        """Requests that a closed loop keeps in flight; None for other loads."""
        return int(self.row["level"]) if self.row["arrival"] == "closed" else None

    @property
    def condition(self) -> tuple[str, float]:
        """Its workload and level: what repeats share."""
        return str(self.row["workload"]), float(self.row["level"])


@dataclass(frozen=True)
class Calibrated:
    """A model of a server.

    Attributes:
        runs: that it was fitted to. longest: tokens of a request, the most that was seen. beyond: by metric, how far predictions of
            runs that it had not seen were off beyond what their ensembles say (standard deviation of ln).
    """

    limits: Limits
    fitted: Fitted
    runs: tuple[str, ...]
    longest: int
    beyond: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Given:
    """Limits of a scheduler that somebody names; None where nobody does. Of a server that was started here they are not needed.

    Attributes:
        tokens: of a step. sequences: at once. kv_tokens: of the KV cache. cached: whether prompts reuse what earlier ones had.
    """

    tokens: int | None = None
    sequences: int | None = None
    kv_tokens: int | None = None
    cached: bool | None = None


def limits_of(launch: Launch, facts: DeploymentFacts, given: Given | None = None) -> Limits:
    """What the scheduler obeys.

    Args:
        given: of a server that was not started here, where its deployment does not say it, or says something else.

    Raises:
        BenchError: it is not known.
    """
    kind = (facts.kind if launch.argv is None else None) or launch.kind
    if kind not in STEP_TOKENS:
        raise BenchError(f"how {kind} admits requests is not known here; vllm and llama.cpp are")
    if launch.servers > 1:
        raise BenchError(f"its {launch.servers} servers behind a router share the load; only a single one is modelled")
    flags, given = [_dashed(flag) for flag in STEP_TOKENS[kind]], given or Given()
    if (launch.pipeline_parallel or 1) > 1:
        raise BenchError(
            f"its {launch.pipeline_parallel} stages (pipeline_parallel) compute as many batches at a time; only one is modelled"
        )
    if launch.argv is None or launch.settings.max_num_seqs is None:
        return _strangers(launch, facts, given, flags, kind=kind)
    words = _words(launch.argv)
    _refuse_flags(words, slots=kind == "llama.cpp")
    if (launch.data_parallel or 1) > 1:
        raise BenchError(f"its {launch.data_parallel} engines (data_parallel) share the load; only a single one is modelled")
    tokens = _flag(words, *flags) or facts.step_tokens
    if tokens is None and launch.device != "cpu":
        raise BenchError(f"a GPU's default for {flags[0]} is not known here; name it under the deployment's flags")
    return Limits(
        tokens=tokens or _TOKENS * ((launch.tensor_parallel or 1) if kind == "vllm" else 1),
        sequences=launch.settings.max_num_seqs,
        blocks=None if launch.settings.slots else _blocks(facts, given if facts.kv_blocks is None else Given()),
        block_size=facts.block_size or 1,
        cached=bool(facts.prefix_caching),
        pass_tokens=_pass_tokens(words) if kind == "llama.cpp" else None,
        ahead=launch.device != "cpu" and managed(kind).schedules_ahead(facts.engine_version, words),
        settled=managed(kind).says_schedule(words),
    )


def _blocks(facts: DeploymentFacts, given: Given) -> int:
    """A block is divided among the devices of a tensor-parallel engine, and counts once."""
    blocks = facts.kv_blocks if given.kv_tokens is None else given.kv_tokens // (facts.block_size or 1) + 1
    if blocks is None:
        raise BenchError("it does not report the size of its KV cache. Give it: --set kv_tokens=N")
    return blocks


def _pass_tokens(words: Sequence[str]) -> int:
    return _flag(words, "--ubatch-size", "-ub") or _PASS_TOKENS


def _refuse_flags(words: Sequence[str], *, slots: bool) -> None:
    if slots and _ONE_CACHE & set(words):
        raise BenchError("its slots share one KV cache (--kv-unified); only slots with a KV cache each are modelled")
    if set(_values(words, *_SPECULATES)) - {"none"}:
        raise BenchError("it speculates; only steps that make one token of a request are modelled")


def _strangers(launch: Launch, facts: DeploymentFacts, given: Given, flags: Sequence[str], *, kind: str) -> Limits:
    """What the scheduler of a server obeys that was not started here: as somebody names it, else as its deployment says, else as it
    reports itself: llama.cpp its slots, vLLM its KV cache.
    """
    said, slots = launch.configured, kind == "llama.cpp"
    words = [
        word
        for name, value in said.items()
        if name.startswith(flag_column("")) and value is not None
        for word in _written(setting_name(name), str(value))
    ]
    _refuse_flags(words, slots=slots)
    tokens, stated = given.tokens or _flag(words, *flags), said.get("max_num_seqs")
    sequences = given.sequences or (stated if isinstance(stated, int) else None) or (facts.kv_blocks if slots else None)
    if tokens is None or sequences is None:
        raise BenchError(
            "it was not started here, so its scheduler's limits are not known. Say how it was started: in its deployment max_num_seqs "
            f"(requests at once; llama.cpp reports it) and under flags {flags[0].strip('-')} (tokens of a step; llama.cpp's default is "
            "2048). `bench fleet` takes --set max_num_seqs=N and --set max_num_batched_tokens=N"
        )
    if (facts.engines or 1) > 1 and not slots:
        raise BenchError(f"its {facts.engines} engines share the load; only a single one is modelled")
    blocks = None if slots else _blocks(facts, given)
    caching = [each for each in (given.cached, said.get("prefix_caching"), facts.prefix_caching) if each is not None]
    if not caching and not slots:
        raise BenchError(
            "it does not report whether prompts share a prefix cache. Say it: in its deployment prefix_caching; `bench fleet` takes "
            "--set prefix_caching=true (or false)"
        )
    # llama.cpp, which does not report it, has one unless it is told otherwise.
    off = said.get(flag_column("cache_prompt")) == "false" or said.get(flag_column("no_cache_prompt")) == "true"
    return Limits(
        tokens=tokens,
        sequences=sequences,
        blocks=blocks,
        block_size=facts.block_size or 1,
        cached=bool(caching[0]) if caching else not off,
        pass_tokens=_pass_tokens(words) if slots else None,
        # The engine that runs elsewhere is said to be one of a CPU where nobody says anything: only a flag tells then.
        ahead=managed(kind).schedules_ahead(facts.engine_version if launch.device != "cpu" else None, words),
        settled=managed(kind).says_schedule(words),
    )


def _written(flag: str, value: str) -> list[str]:
    switch = {"true": _dashed(flag), "false": f"--no-{flag}"}
    return [switch[value]] if value in switch else [_dashed(flag), value]


def _dashed(flag: str) -> str:
    return f"-{flag}" if len(flag) <= 3 else f"--{flag}"


def _words(argv: Sequence[str]) -> list[str]:
    """The words of a command line, with those of a command line inside one of them."""
    return [word for text in argv for word in (shlex.split(text) if " " in text else [text])]


def _flag(words: Sequence[str], *names: str) -> int | None:
    """Of a flag that is given twice, the last value counts."""
    counts = [int(text) for text in _values(words, *names) if text.isdigit()]
    return counts[-1] if counts else None


def _values(words: Sequence[str], *names: str) -> list[str]:
    parts = [(word.partition("="), after) for word, after in zip(words, [*words, ""][1:], strict=True)]
    return [value or after for (name, _, value), after in parts if name in names]


def calibrate(runs: Sequence[MeasuredRun], limits: Limits, *, draws: int = 30, seed: int = 1) -> Calibrated | None:
    """A model of the server; None where the runs show too few steps.

    Args:
        limits: what the scheduler obeys. Where no flag says whether it schedules ahead, and the runs clearly show the opposite, that
            counts: version and device say what a server may do.
    """
    limits, _ = as_shown(runs, limits)
    fitted = fit_steps([run.steps(limits) for run in runs], draws=draws, seed=seed)
    if fitted is None:
        return None
    longest = max(int(np.max((run.requests["prompt_asked"] + run.requests["output_asked"]).to_numpy())) for run in runs)
    return Calibrated(limits, fitted, tuple(run.name for run in runs), longest)


def as_shown(runs: Sequence[MeasuredRun], limits: Limits) -> tuple[Limits, Against]:
    """The limits with `ahead` as they say it, or the opposite where significantly fewer prompts contradict that; and what stands
    against the limits then.
    """
    if not runs:
        return limits, Against(0, 0)
    declared, opposite = against([run.steps(limits) for run in runs])
    settled = limits.settled or limits.pass_tokens is not None  # llama.cpp never does
    if settled or not opposite.fewer_than(declared):
        return replace(limits, settled=True), declared
    return replace(limits, ahead=not limits.ahead, settled=True), opposite


def elsewhere(model: Calibrated, *, bandwidth: float = 1.0, flops: float = 1.0) -> Calibrated:
    """The model on a device with so many times the bandwidth and FLOP/s: an extrapolation, of which no run and no interval tells."""
    fitted = model.fitted
    draws = tuple(step.elsewhere(bandwidth=bandwidth, flops=flops) for step in fitted.draws)
    return replace(model, fitted=replace(fitted, best=fitted.best.elsewhere(bandwidth=bandwidth, flops=flops), draws=draws))


def parameters(model: Calibrated) -> dict[str, Interval]:
    """What a step costs (s), which explains the server's speed: the best fit, and the central 90 % of the bootstrap.

    Returns:
        `step_s`, whatever is in it; `request_s`, a request more in it, in the mean of as many as were seen; `prompt_s` of 1,000 prompt
        tokens, in steps as large as were seen; `context_s` of 1,000 tokens of context that decodes read; `idle_s`, the way to an idle
        engine and back; `path_s`, the same of a busy one (0 where no run shows it). Where slots are counted, `pass_s` of a pass
        through the layers beyond a step's first, and `in_flight_s` of a token for each 100 requests in flight.
    """
    best, draws = _costs(model.fitted.best, model), [_costs(step, model) for step in model.fitted.draws]
    ends = {name: np.quantile([each[name] for each in draws], _ENDS) for name in best}
    low, high = model.fitted.path_s or (0.0, 0.0)
    return {
        name: Interval(value, min(value, float(ends[name][0])), max(value, float(ends[name][1])))
        for name, value in best.items()
    } | {"path_s": Interval((low + high) / 2, low, high)}


def _costs(step: StepTime, model: Calibrated) -> dict[str, float]:
    many, tokens = max(model.fitted.most["decodes"], 1.0), max(model.fitted.most["tokens"], 1.0)
    costs = {
        "step_s": step.fixed_s,
        "request_s": step.sequence_s + step.line(many) / many,
        "prompt_s": 1000 * step.line(tokens) / tokens,
        "context_s": 1000 * step.context_s,
        "idle_s": step.idle_s,
    }
    return (
        costs if model.limits.pass_tokens is None else {**costs, "pass_s": step.pass_s, "in_flight_s": 100 * step.in_flight_s}
    )


def planned_again(run: MeasuredRun) -> list[PlannedRequest]:
    """The requests of a run as they were planned: lengths as asked, moments as due, and what their prompts have in common."""
    due = run.held is None
    ended = dict(run.requests.select("index", "end_s").iter_rows())
    shared = {"repeated": 1.0, "shared": run.row.get("shared_prefix") or 0.0}.get(str(run.row.get("cache")), 0.0)
    plans: dict[int, PlannedRequest] = {}
    for row in run.requests.sort("index").iter_rows(named=True):
        before = plans.get(row["after"]) if row["after"] is not None else None
        common = before.shared_tokens if before else int(shared * row["prompt_asked"])
        plans[row["index"]] = PlannedRequest(
            index=row["index"],
            conversation=before.conversation if before else row["index"],
            prompt_asked=row["prompt_asked"],
            output_tokens=row["output_asked"],
            due_s=row["scheduled_s"] if due and row["after"] is None else None,
            after=() if row["after"] is None else (row["after"],),
            think_s=_thought(row["scheduled_s"], ended.get(row["after"])),
            shared_tokens=common,
            reusable_tokens=before.prompt_tokens if before else common,
            request_class=row.get("request_class"),
        )
    return list(plans.values())


def _thought(due_s: float | None, ended_s: float | None) -> float:
    """From the end of the turn before to the moment at which this one was due (s)."""
    return 0.0 if due_s is None or ended_s is None else max(0.0, due_s - ended_s)
