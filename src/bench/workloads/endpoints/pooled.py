"""/v1/embeddings and /v1/rerank: vectors and scores. There is no output to time: the answer comes whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from bench.runs.request import Omissible
from bench.workloads.endpoints.kind import EMBEDDING, RERANKING, Endpoint, Generated, Prompt


class Pooled(Endpoint):
    """An endpoint of a pooling model, whose answer is a list under `holds`."""

    holds: ClassVar[str]
    limits = ()
    lacks: ClassVar[tuple[Omissible, ...]] = ("ignore_eos", "stream_options", "max_tokens", "temperature")
    reasons = False

    @abstractmethod
    def sound(self, item: Any) -> bool:
        """Whether an item of the list is a vector, or a score."""

    def generated(self, content: Mapping[str, Any]) -> Generated:
        if not all(self.sound(item) for item in content[self.holds]):
            raise TypeError(f"{self.holds} are not {self.work.answer}")
        return Generated()

    def whole(self, content: Mapping[str, Any]) -> bool:
        return isinstance(content.get(self.holds), list) and bool(content[self.holds])


class Embeddings(Pooled):
    """Embeddings, one prompt a request."""

    name = "embeddings"
    meaning = "prompts as token ids, to /v1/embeddings. Answers have no length and no TTFT, and throughput counts prompt tokens"
    path = call = "embeddings"
    keys = ("input",)
    work = EMBEDDING
    always: ClassVar[Mapping[str, Any]] = {"encoding_format": "float"}  # as servers compute them; the SDK would ask for base64
    kinds = ("text",)
    holds = "data"

    def sound(self, item: Any) -> bool:
        vector = item.get("embedding")
        return isinstance(vector, list) and bool(vector)


class Rerank(Pooled):
    """Scores of documents for a query, in the form of Jina and Cohere that vLLM and llama.cpp have too."""

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
    holds = "results"

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        if isinstance(prompt, str):  # a first request's: a query and a document, neither of which is empty
            half = len(prompt) // 2
            prompt = [prompt[:half], prompt[half:]] if half else [prompt or "a"] * 2
        query, *documents = prompt
        body |= {"query": query, "documents": documents}

    def sound(self, item: Any) -> bool:
        return isinstance(item["relevance_score"], int | float)

    def usage(self, content: Mapping[str, Any]) -> Any:
        usage = content.get("usage")
        # Nothing is generated, so that the total is the prompt's: Jina counts no other.
        return {"prompt_tokens": usage.get("prompt_tokens", usage.get("total_tokens"))} if isinstance(usage, dict) else usage
