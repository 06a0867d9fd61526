"""What a run's row has of its deployment: from its launch, and from the facts of its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.runs.deployment import DeploymentFacts
from bench.runs.launch import Launch, MemoryPlan, Settings
from bench.servers.memory import predicted_saturation
from bench.workloads.endpoints.kind import GENERATION, WORKS
from bench.workloads.prefix_cache import ROUNDING

_ALIKE = ((None, 1),)  # layers that all keep the same tokens
_OF_LAUNCH = ("model", "engine", "device", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpus")
# Sums over the GPUs; over those of one node of several they mislead.
_OF_ALL_GPUS = ("gpu_power_mean_w", "gpu_energy_j", "tokens_per_joule")


def deployed(run: Mapping[str, Any], launch: Launch | None, facts: DeploymentFacts | None) -> dict[str, Any]:
    """The columns of a run that say what it was measured on, and the load at which its KV cache is full.

    Args:
        run: its summary. launch, facts: of its deployment; what is not known is null.
    """
    plan, settings = launch and launch.plan, launch and launch.settings
    engines = facts and facts.engines
    slots = launch and launch.kv_slots if WORKS[run.get("work") or GENERATION.name].generates else None
    return {
        **{name: getattr(launch, name, None) for name in _OF_LAUNCH},
        **(launch.configured if launch else {}),
        "engine_version": facts and facts.engine_version,
        "router_version": facts and facts.router_version,
        "hardware": facts and facts.hardware.in_short,
        **{name: getattr(plan, name, None) for name in ("parameters", "kv_bytes_per_token")},
        "kv_tokens_planned": plan and _planned(plan, settings.max_model_len if settings else None),
        "kv_tokens": facts and facts.kv_tokens,
        **(_started_with(settings) if settings else {}),
        "kv_blocks": facts and facts.kv_blocks,
        "kv_slots": settings and settings.slots,
        "engines": engines or (launch and launch.data_parallel),
        "predicted_saturation": _predicted(run, launch, facts),
        **(_slots_in_use(run, slots, one=launch.servers == 1) if launch and slots else {}),
        **(dict.fromkeys(_OF_ALL_GPUS) if launch and 0 < (run.get("gpu_count_seen") or 0) < (launch.gpus or 0) else {}),
    }


def _started_with(settings: Settings) -> dict[str, Any]:
    """What the command line says in place of `auto` and of keys that were left out. A slot is no block."""
    names = ("max_model_len", "max_num_seqs", "dtype", "prefix_caching", *(() if settings.slots else ("block_size",)))
    kv = {"kv_cache_dtype": settings.kv_cache_dtype or settings.dtype}  # by default, that of the weights
    return {
        name: value for name, value in {**{each: getattr(settings, each) for each in names}, **kv}.items() if value is not None
    }


def _slots_in_use(run: Mapping[str, Any], slots: int, *, one: bool) -> dict[str, float | None]:
    """The KV cache's usage where requests hold slots: the share of slots that are taken.

    Args:
        one: whether it is one server's, all of whose slots are taken while a request waits. Of several, one may have slots left.
    """

    def share(running: str) -> float | None:
        known = run.get(running)
        return None if known is None else known / slots

    return {
        "kv_usage_peak": share("running_peak"),
        "kv_usage_queued": 1.0 if one and run.get("waiting_standing") else None,
        "steady_kv_usage": share("steady_running"),
        "steady_kv_usage_queued": 1.0 if one and run.get("steady_queued_share") else None,
    }


def _planned(plan: MemoryPlan, longest: int | None) -> int | None:
    """Tokens of the planned KV cache as an engine reports them: of sequences of the longest length, where layers differ."""
    if plan.kv_tokens is None or plan.kv_groups == _ALIKE:
        return plan.kv_tokens
    return longest and int(predicted_saturation(plan.kv_tokens, longest, plan.block_size, plan.kv_groups) * longest)


def _predicted(run: Mapping[str, Any], launch: Launch | None, facts: DeploymentFacts | None) -> float | None:
    """Requests that the KV cache holds; None where it is unknown, or where requests share their prompts' blocks and more would fit.

    Slots share nothing: there are as many, whatever a prompt finds in its own. Of several engines it is what all of them hold together:
    where requests are dealt out unevenly, the first one is full before that.
    """
    plan = launch and launch.plan
    groups = plan.kv_groups if plan else _ALIKE
    blocks = facts and facts.kv_blocks and facts.block_size and facts.kv_blocks * facts.block_size
    reported = facts and facts.kv_tokens
    if groups == _ALIKE and blocks and reported and abs(reported / blocks - 1) > ROUNDING:
        return None  # the engine's layers keep different tokens, and which is not known here
    kv_tokens = (reported if groups == _ALIKE else blocks) or (plan and plan.kv_tokens)
    slots = launch and launch.kv_slots
    may_share = run.get("cache", "unique") != "unique" or run.get("arrival") == "trace"
    shared = may_share and run.get("prefix_hit_rate_expected") != 0 and not slots
    generates = WORKS[run.get("work") or GENERATION.name].generates
    prompt, output = run.get("prompt_tokens"), run.get("output_tokens") if generates else 0
    if not kv_tokens or shared or not run["requests"] or prompt is None or output is None or (slots and not generates):
        return None
    block_size = (facts and facts.block_size) or (plan and plan.block_size) or 1
    return predicted_saturation(kv_tokens, prompt + output, block_size, groups)
