"""/v1/embeddings: a vector for each prompt. There is no output to time: the answer comes whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from bench.runs.request import Omissible
from bench.workloads.endpoints.choices import error_of
from bench.workloads.endpoints.kind import EMBEDDING, Endpoint, Generated, Prompt, Read

if TYPE_CHECKING:
    import openai


class Pooled(Endpoint):
    """An endpoint of a pooling model. There is no output to time."""

    limits = ()
    lacks: ClassVar[tuple[Omissible, ...]] = ("ignore_eos", "stream_options", "max_tokens", "temperature")
    reasons = False

    def usage(self, content: Mapping[str, Any]) -> Any:
        return content.get("usage")

    def error(self, content: Mapping[str, Any]) -> Any:
        return error_of(content)

    def text(self, content: Mapping[str, Any]) -> str:  # noqa: ARG002 - numbers spell nothing
        return ""


class Embeddings(Pooled):
    """Embeddings, one prompt a request."""

    name = "embeddings"
    meaning = "prompts as token ids, to /v1/embeddings. Answers have no length and no TTFT, and throughput counts prompt tokens"
    path = "embeddings"
    keys = ("input",)
    work = EMBEDDING
    always: ClassVar[Mapping[str, Any]] = {"encoding_format": "float"}  # as servers compute them; the SDK would ask for base64
    kinds = ("text",)

    def created(self, sdk: openai.OpenAI, model: str, options: Mapping[str, Any]) -> Any:
        return sdk.embeddings.create(model=model, **options)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        body["input"] = prompt

    def generated(self, content: Mapping[str, Any]) -> Generated:
        vectors = [item.get("embedding") for item in content["data"]]
        if not all(isinstance(vector, list) and vector for vector in vectors):
            raise TypeError("an embedding is not a list of numbers")
        return Generated()

    def whole(self, content: Mapping[str, Any]) -> bool:
        return isinstance(content.get("data"), list) and bool(content["data"])

    def read(self, chunk: Any) -> Read:
        usage = chunk.usage
        counts = (getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))
        return Read("", None, None if usage is None else counts)
