"""The endpoints that load is sent to: how a request is written, and how its answer is read. `choices`: what generates; `pooled`: what
answers with numbers.

To add one, write its file and name it in `ENDPOINTS`; another package names its class in its entry points (`bench.plugins`).
"""

from __future__ import annotations

from bench.plugins import Registry
from bench.workloads.endpoints.choices import Chat, Completions
from bench.workloads.endpoints.kind import Drafts, Endpoint, Generated, Prompt, Usage, dialogue
from bench.workloads.endpoints.pooled import Embeddings, Rerank

__all__ = ["ENDPOINTS", "Drafts", "Endpoint", "Generated", "Prompt", "Usage", "dialogue"]

_OWN: tuple[type[Endpoint], ...] = (Completions, Chat, Embeddings, Rerank)
ENDPOINTS: Registry[Endpoint] = Registry("endpoint", {each.name: each() for each in _OWN}, lambda each: each())
