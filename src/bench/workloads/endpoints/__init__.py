"""The endpoints that load is sent to, one file each: how a request is written, and how its answer is read.

To add one, write its file and name it in `ENDPOINTS`; another package names its class in its entry points (`bench.plugins`).
"""

from __future__ import annotations

from bench.plugins import Registry
from bench.workloads.endpoints.chat import Chat
from bench.workloads.endpoints.completions import Completions
from bench.workloads.endpoints.embeddings import Embeddings
from bench.workloads.endpoints.kind import Drafts, Endpoint, Generated, Prompt, Read, Usage
from bench.workloads.endpoints.rerank import Rerank

__all__ = ["ENDPOINTS", "Drafts", "Endpoint", "Generated", "Prompt", "Read", "Usage"]

_OWN: tuple[type[Endpoint], ...] = (Completions, Chat, Embeddings, Rerank)
ENDPOINTS: Registry[Endpoint] = Registry("endpoint", {each.name: each() for each in _OWN}, lambda each: each())
