"""/v1/rerank: scores of documents for a query, in the form of Jina and Cohere that vLLM and llama.cpp have too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.workloads.endpoints.embeddings import Pooled
from bench.workloads.endpoints.kind import RERANKING, Generated, Prompt, Read


class Rerank(Pooled):
    """Reranking: a query and its documents a request."""

    name = "rerank"
    meaning = (
        "a query and its documents as text, to /v1/rerank, otherwise as `embeddings`; `prompt_tokens` are those of all documents, "
        "each with the query"
    )
    path = "rerank"
    keys = ("query", "documents")
    work = RERANKING
    lacks = (*Pooled.lacks, "token_ids")
    kinds = ("query",)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        if isinstance(prompt, str):  # a first request's: a query and a document, neither of which is empty
            half = len(prompt) // 2
            prompt = [prompt[:half], prompt[half:]] if half else [prompt or "a"] * 2
        query, *documents = prompt
        body |= {"query": query, "documents": documents}

    def generated(self, content: Mapping[str, Any]) -> Generated:
        if not all(isinstance(item["relevance_score"], int | float) for item in content["results"]):
            raise TypeError("a score is no number")
        return Generated()

    def usage(self, content: Mapping[str, Any]) -> Any:
        usage = super().usage(content)
        # Nothing is generated, so that the total is the prompt's: Jina counts no other.
        return (
            usage if not isinstance(usage, dict) else {"prompt_tokens": usage.get("prompt_tokens", usage.get("total_tokens"))}
        )

    def whole(self, content: Mapping[str, Any]) -> bool:
        return isinstance(content.get("results"), list) and bool(content["results"])

    def read(self, chunk: Any) -> Read:
        usage = self.usage(chunk)
        return Read(counts=(usage.get("prompt_tokens") if isinstance(usage, dict) else None, None))
