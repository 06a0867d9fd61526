"""What a server's scheduler obeys, as its launch, its deployment or the user says."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.errors import BenchError, listed
from bench.runs.deployment import DeploymentFacts
from bench.runs.launch import Launch
from bench.servers.engines import managed
from bench.servers.settings import STEP_TOKENS, flag_column, setting_name

# tokens of a step if neither command line nor log says; source: both engines' default on a CPU, vLLM's for each worker
_TOKENS = 2048
_PASS_TOKENS = 512  # tokens of a pass if no flag says; source: llama.cpp's default for `--ubatch-size`
_SPECULATES = (
    "--speculative-config",
    "-sc",
    "--spec-method",
    "--spec-model",
    "--spec-type",
    "--spec-draft-model",
    "--model-draft",
    "-md",
)
_ONE_CACHE = {"--kv-unified", "-kvu"}  # of all of llama.cpp's slots


@dataclass(frozen=True)
class Limits:
    """What a scheduler obeys.

    Attributes:
        tokens: of a step, decodes first. sequences: at once. blocks: of the KV cache, None where a slot holds all that a request may
            need; block_size: tokens of one. cached: whether prompt tokens that an earlier request had are not computed again.
        pass_tokens: that go through the layers together at most, on slots side by side (llama.cpp); None where a step does as a whole.
        ahead: whether a step is scheduled when the one before it begins (vLLM's asynchronous scheduling): it has no request that came
            since, and what ends with the one before it still has its place and its blocks. The engine's class says so.

    Source: vLLM V1's scheduler: running requests first, then those that wait, in their order; a prompt is admitted when blocks for
    all of it are free, and computed in chunks where the step's budget is short of it; where a running request finds no block, the one
    that was admitted last gives up its own and waits in front. One block of the pool is never given out. Ahead: `AsyncScheduler` and
    `EngineCore.step_with_batch_queue` of vLLM 0.32.
    """

    tokens: int
    sequences: int
    blocks: int | None
    block_size: int = 1
    cached: bool = False
    pass_tokens: int | None = None
    ahead: bool = False


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

    def over(self, limits: Limits) -> Limits:
        """The limits, with these in their place. Raises: BenchError: a KV cache's size, of an engine that has slots."""
        if self.kv_tokens is not None and limits.blocks is None:
            raise BenchError("--set kv_tokens: this engine has slots; set their number, max_num_seqs.")
        told: dict[str, Any] = {"tokens": self.tokens, "sequences": self.sequences, "cached": self.cached}
        told |= {"blocks": self.blocks(limits.block_size)}
        return replace(limits, **{name: value for name, value in told.items() if value is not None})

    def blocks(self, block_size: int) -> int | None:
        """Blocks of the KV cache, with the one that is never given out."""
        return None if self.kv_tokens is None else self.kv_tokens // block_size + 1


def limits_of(launch: Launch, facts: DeploymentFacts, given: Given | None = None) -> Limits:
    """What the scheduler obeys.

    Args:
        given: where neither its launch nor its deployment says it.

    Raises:
        BenchError: it is not known.
    """
    kind = (facts.kind if launch.argv is None else None) or launch.kind
    if kind not in STEP_TOKENS:
        raise BenchError(f"how {kind} admits requests is not known; only vllm and llama.cpp are modelled")
    flags, slots, said, given = STEP_TOKENS[kind], kind == "llama.cpp", launch.configured, given or Given()
    own = launch.argv is not None and launch.settings.max_num_seqs is not None
    several = {
        "servers behind a router": launch.servers,
        "stages (pipeline_parallel)": launch.pipeline_parallel,
        "engines (data_parallel)": launch.data_parallel if launch.argv is not None else None,
        "engines": None if own or slots else facts.engines,
    }
    for what, number in several.items():
        if number is not None and number > 1:
            raise BenchError(f"its {number} {what} share the load; only a single one is modelled")
    # The words of a command line, with those of a command line inside one of them.
    words = [word for text in launch.argv or () for word in (shlex.split(text) if " " in text else [text])]
    words = words if own else _words_said(launch)
    if slots and _ONE_CACHE & set(words):
        raise BenchError("its slots share one KV cache (--kv-unified); only slots with a KV cache each are modelled")
    if set(_values(words, *_SPECULATES)) - {"none"}:
        raise BenchError("it speculates; only steps that make one token of a request are modelled")
    stated = said.get("max_num_seqs")
    sequences = launch.settings.max_num_seqs or (stated if isinstance(stated, int) else None)
    sequences = sequences or (facts.kv_blocks if slots else None) or given.sequences
    tokens = _count(words, *map(_dashed, flags)) or (facts.step_tokens if own else None) or given.tokens
    if own and tokens is None and launch.device == "cpu":
        tokens = _TOKENS * ((launch.tensor_parallel or 1) if kind == "vllm" else 1)
    told = (bool(facts.prefix_caching),) if own else (said.get("prefix_caching"), facts.prefix_caching, given.cached)
    caching = [each for each in told if each is not None]
    size = facts.block_size or 1
    blocks = None if (launch.settings.slots if own else slots) else facts.kv_blocks or given.blocks(size) or 0
    known = {"sequences": sequences, "tokens": tokens, "cached": caching or slots, "blocks": blocks is None or blocks}
    if tokens is None or sequences is None or not all(known.values()):
        raise BenchError(_unknown([name for name, value in known.items() if not value], flags[0]))
    # llama.cpp, which does not report it, has one unless it is told otherwise.
    off = said.get(flag_column("cache_prompt")) == "false" or said.get(flag_column("no_cache_prompt")) == "true"
    # Of an engine that runs elsewhere no device is known: only a flag tells whether it schedules ahead.
    version = facts.engine_version if launch.device != "cpu" else None
    return Limits(
        tokens=tokens,
        sequences=sequences,
        blocks=blocks,
        block_size=size,
        cached=bool(caching[0]) if caching else not off,
        pass_tokens=(_count(words, "--ubatch-size", "-ub") or _PASS_TOKENS) if slots else None,
        ahead=managed(kind).schedules_ahead(version, words) and not (own and launch.device == "cpu"),
    )


# What may not be known: in words, its key in a deployment, and that of `bench fleet --set`.
_NAMES = {
    "sequences": ("how many requests run at once", "max_num_seqs", "max_num_seqs=N"),
    "tokens": ("the tokens of a step", "flags: {flag}", "max_num_batched_tokens=N"),
    "cached": ("whether prompts share a prefix cache", "prefix_caching", "prefix_caching=true (or false)"),
    "blocks": ("the size of its KV cache", None, "kv_tokens=N"),
}


def _unknown(missing: Sequence[str], flag: str) -> str:
    """That limits are not known, and where to say them. Args: flag: with the tokens of a step."""
    what, keys, sets = zip(*(_NAMES[name] for name in missing), strict=True)
    own = listed([key.format(flag=flag) for key in keys if key])
    where = f"name in its deployment {own}, or" if own else "name"
    return f"not known of its scheduler: {listed(what)}; {where} for `bench fleet` --set {', '.join(sets)}"


def _words_said(launch: Launch) -> list[str]:
    """The command line that the flags in a deployment make."""
    words = []
    for name, value in launch.configured.items():
        if name.startswith(flag_column("")) and value is not None:
            flag, text = setting_name(name), str(value)
            switch = {"true": [_dashed(flag)], "false": [f"--no-{flag}"]}
            words += switch.get(text, [_dashed(flag), text])
    return words


def _dashed(flag: str) -> str:
    return f"-{flag}" if len(flag) <= 3 else f"--{flag}"


def _count(words: Sequence[str], *names: str) -> int | None:
    """Of a flag that is given twice, the last value counts."""
    counts = [int(text) for text in _values(words, *names) if text.isdigit()]
    return counts[-1] if counts else None


def _values(words: Sequence[str], *names: str) -> list[str]:
    parts = [(word.partition("="), after) for word, after in zip(words, [*words, ""][1:], strict=True)]
    return [value or after for (name, _, value), after in parts if name in names]
