"""Presets of workloads that people serve. A key that the workload gives itself stands; the preset fills the rest.

Sources, with the file or table that each number was read in. Lognormal fits keep the median, and the P99 or the standard deviation.

Azure 2023: AzurePublicDataset, data/AzureLLMInferenceTrace_{conv,code}.csv (Patel et al., Splitwise, ISCA 2024); computed from its
rows. inference-perf: kubernetes-sigs/inference-perf, workload-catalog, presets interactive-chat, batch-summarization-rag and reasoning.
Mooncake: Qin et al., FAST 2025, Table 2. LlamaIndex: llama_index/core/constants.py (chunks of 1,024 tokens).
LangChain: similarity_search, k = 4. llm-d: llm-d-benchmark, workload/profiles, summarization_synthetic.
"""

from __future__ import annotations

from typing import Any


def _lognormal(median: float, sigma: float, low: int, high: int) -> dict[str, Any]:
    return {"distribution": "lognormal", "median": float(median), "sigma": sigma, "min": low, "max": high}


ARCHETYPES: dict[str, dict[str, Any]] = {
    # Azure 2023, conversation: prompts P50 1,020, P99 4,142; answers mean 211, standard deviation 163, longest 1,000.
    # Turns (4), new tokens a turn (50 ± 40) and think time (45 s): inference-perf, interactive-chat. Of its random number of turns
    # and pauses the mean is taken.
    "chat": {
        "prompt_tokens": _lognormal(1020, 0.60, 16, 4142),
        "output_tokens": _lognormal(167, 0.68, 7, 1000),
        "turns": {"count": 4, "new_tokens": _lognormal(39, 0.70, 10, 1000), "think_s": 45.0},
    },
    # 500 tokens of instructions (inference-perf) + 4 passages (LangChain) of 1,024 tokens (LlamaIndex) = 4,600; the spread is ours.
    # Answers 256 ± 128 (llm-d). The instructions are the shared prefix: 500 of 4,600.
    "rag": {
        "prompt_tokens": _lognormal(4600, 0.50, 1500, 16500),
        "output_tokens": _lognormal(229, 0.47, 10, 512),
        "cache": "shared",
        "shared_prefix": 0.11,
    },
    # Generation of code with its reasoning: short in, long out. Prompts 1,000 ± 800, answers 8,000 ± 6,500 (inference-perf, reasoning).
    "code": {"prompt_tokens": _lognormal(781, 0.70, 100, 5000), "output_tokens": _lognormal(6200, 0.71, 500, 32000)},
    # Completion of code in an editor, which is the opposite: Azure 2023, code: prompts P50 1,469, P99 7,436; answers P50 13, P99 251.
    "completion": {"prompt_tokens": _lognormal(1469, 0.70, 16, 7437), "output_tokens": _lognormal(13, 1.27, 1, 1899)},
    # Calls of a tool-using agent. Mooncake's tool and agent trace has 8,596 tokens in and 182 out in the mean, 59 % of the input
    # cached. A conversation of 3 calls whose first prompt has 30 % in common with all others is ours; the first prompt's length and
    # the tool output that each call adds are solved for the two means and the 59 %. The spread of the answers and the pause for a
    # tool (1 s) are ours.
    "agentic": {
        "prompt_tokens": {"distribution": "fixed", "tokens": 5091},
        "output_tokens": _lognormal(104, 1.3, 8, 1024),
        "cache": "shared",
        "shared_prefix": 0.30,
        "turns": {"count": 3, "new_tokens": {"distribution": "fixed", "tokens": 3323}, "think_s": 1.0},
    },
}


def with_archetype(content: Any) -> Any:
    """A workload's or a class's keys, with those of its archetype below them; a prefix that is not shared has no length."""
    name = content.get("archetype") if isinstance(content, dict) else None
    if not isinstance(name, str):
        return content
    shared = content.get("cache", "shared") == "shared"
    return {**{key: value for key, value in ARCHETYPES.get(name, {}).items() if shared or key != "shared_prefix"}, **content}
