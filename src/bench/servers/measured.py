"""Engines that are measured where they run, and not started here: a row each. Their metrics' names: `metrics.toml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.runs.deployment import KvFacts
from bench.servers.kind import Ask, Exposed, Kind, Labelled, Spelling, common, names_of, ray_spellings, total, whole
from bench.servers.vllm import VLLM


class Measured(Kind):
    """An engine of which only its metrics are known.

    Args:
        asked: paths at which it reports itself, with its `version`; none where an engine that is asked before answers there alike.
        facts: names without its prefix. blocks_alike: whether blocks × tokens of a block are all tokens; not where layers with windows
            have blocks of their own.
    """

    def __init__(
        self,
        name: str,
        title: str,
        prefix: str,
        *,
        asked: Sequence[str] = (),
        facts: Mapping[str, str] | None = None,
        blocks_alike: bool = True,
        others: Sequence[Spelling] = (),
        repeats: Sequence[str] = (),
        totals: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.title, self.prefix = name, title, prefix  # type: ignore[misc] # of a class, where an engine is one
        self.metrics = names_of(name, prefix)  # type: ignore[misc]
        self.facts = {fact: prefix + each for fact, each in (facts or {}).items()}  # type: ignore[misc]
        self.others, self.repeats, self.totals = others, repeats, totals or {}  # type: ignore[misc]
        self._asked, self._blocks_alike = asked, blocks_alike

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """What it answers at the first of its paths."""
        contents = map(ask, self._asked)
        return next((each for each in contents if isinstance(each, dict) and isinstance(each.get("version"), str)), None)

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """Each engine exposes its own tokens and blocks."""
        tokens, blocks = (
            total([whole(value) for _, value in samples[fact]]) if fact in samples else None
            for fact in ("kv_tokens", "kv_blocks")
        )
        size = common([whole(value) for _, value in samples.get("block_size", ())])
        if tokens is None and blocks and size and self._blocks_alike:
            tokens = blocks * size
        return KvFacts(
            engines=max(map(len, samples.values()), default=None),
            kv_blocks=blocks,
            block_size=size,
            kv_tokens=tokens,
            prefix_caching=not info["disable_radix_cache"] if "disable_radix_cache" in info else None,
        )


class Aphrodite(Measured):
    """vLLM's metrics under another name; its versions are not vLLM's, so the newest of each."""

    def __init__(self) -> None:
        vllm = VLLM()
        super().__init__("aphrodite", "Aphrodite", "aphrodite:")
        own = {metric: rows[0] for metric, rows in vllm.metrics.items()}
        self.metrics = {  # type: ignore[misc]
            metric: [Exposed(self.prefix + row.name.removeprefix(vllm.prefix), since="0.20.0", absent=row.absent)]
            for metric, row in own.items()
        }
        self.facts = {fact: self.prefix + name.removeprefix(vllm.prefix) for fact, name in vllm.facts.items()}  # type: ignore[misc]
        self.kv_facts = vllm.kv_facts  # type: ignore[method-assign]


SGLANG = Measured(
    "sglang",
    "SGLang",
    "sglang:",
    asked=("server_info", "get_server_info"),  # the latter before 0.5.6
    facts={"kv_tokens": "max_total_num_tokens", "kv_blocks": "num_pages", "block_size": "page_size"},  # from 0.5.6 and 0.5.11
    others=ray_spellings("sglang"),
    # Each rank of a tensor, pipeline, expert or context group schedules all of its requests; dp_rank divides them.
    repeats=("tp_rank", "pp_rank", "moe_ep_rank"),
    totals={"priority": ""},  # with --enable-priority-scheduling
)
TGI = Measured("tgi", "TGI", "tgi_", asked=("info",))
# Its /version is like vLLM's, which is asked before.
TENSORRT_LLM = Measured(
    "tensorrt-llm",
    "TensorRT-LLM",
    "trtllm_",
    facts={"kv_blocks": "kv_cache_max_blocks", "block_size": "kv_cache_tokens_per_block"},
    blocks_alike=False,
    others=(Spelling("trtllm:"),),  # Dynamo, up to 0.7
)
LMDEPLOY = Measured("lmdeploy", "LMDeploy", "lmdeploy:")
APHRODITE = Aphrodite()
