"""The endpoints that load is sent to, one file each: how a request is written, and how its answer is read.

To add one, write its file and name it in `ENDPOINTS`.
"""

from __future__ import annotations

from bench.endpoints.chat import Chat
from bench.endpoints.completions import Completions
from bench.endpoints.embeddings import Embeddings
from bench.endpoints.kind import Drafts, Endpoint, Generated, Prompt, Read, Usage
from bench.endpoints.messages import Messages
from bench.endpoints.rerank import Rerank
from bench.endpoints.responses import Responses

__all__ = ["ENDPOINTS", "Drafts", "Endpoint", "Generated", "Prompt", "Read", "Usage"]

ENDPOINTS: dict[str, Endpoint] = {
    each.name: each for each in (Completions(), Chat(), Responses(), Messages(), Embeddings(), Rerank())
}
