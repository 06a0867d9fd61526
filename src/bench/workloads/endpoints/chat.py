"""/v1/chat/completions: one user message a request, or the messages of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.workloads.endpoints.choices import Choices
from bench.workloads.endpoints.kind import Prompt

if TYPE_CHECKING:
    import openai


class Chat(Choices):
    name = "chat"
    meaning = "prompts as text, to /v1/chat/completions"
    path = "chat/completions"
    keys = ("messages",)
    lacks = ("token_ids",)
    kinds = ("text", "chat", "calls")

    def created(self, sdk: openai.OpenAI, model: str, options: Mapping[str, Any]) -> Any:
        return sdk.chat.completions.create(model=model, **options)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        body["messages"] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt

    def text_of(self, choice: Mapping[str, Any]) -> Any:
        return (choice.get("delta") or choice.get("message") or {}).get("content")
