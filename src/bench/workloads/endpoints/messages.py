"""/v1/messages: Anthropic's interface, whose stream is a sequence of typed events.

The openai SDK has no call for it and sends it as a plain request; tests/workloads/test_typed_events.py holds bytes and readings
against Anthropic's own SDK. Source: "Messages" and "Streaming messages" of Anthropic's API reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from bench.workloads.endpoints.choices import error_of
from bench.workloads.endpoints.kind import Endpoint, Generated, Prompt, Read, is_count, size_of

# Keys of a delta, or of a block, that carry what the model generated; signatures, citations and results of tools are not its words.
_OUTPUT, _REASONING = ("text", "partial_json", "name"), "thinking"
_NOTHING = Generated()


class Messages(Endpoint):
    """Messages: one of the user a request, or a chat, whose system messages at the beginning become its `system`."""

    name = "messages"
    meaning = "prompts as text, to Anthropic's /v1/messages"
    path = "messages"
    keys = ("messages", "system")
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}  # its newest that takes a temperature
    limits = ("max_tokens",)
    lacks = ("token_ids", "stream_options", "max_tokens")
    endings = ("message_stop",)
    cuts = ("max_tokens",)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        chat: list[Any] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        system: list[Any] = []
        while chat and chat[0]["role"] in ("system", "developer"):
            content = chat.pop(0)["content"]
            system += [{"type": "text", "text": content}] if isinstance(content, str) else content
        body.pop("system", None)
        body |= {"messages": chat, **({"system": system} if system else {})}

    def generated(self, content: Mapping[str, Any]) -> Generated:
        match content.get("type"):
            case "content_block_delta":
                delta = content["delta"]
                text = delta.get("text")
                plain = text if isinstance(text, str) else ""
                return _generated(delta)._replace(silent=text == "", said=plain)
            case "content_block_start":
                return _generated(content["content_block"])
            case "message_delta":
                return Generated(finish=_finish(content["delta"]))
            case "message":
                parts = [_generated(block) for block in content["content"]]
                return Generated(sum(part.text for part in parts), finish=_finish(content))
        return _NOTHING

    def usage(self, content: Mapping[str, Any]) -> Any:
        message = content["message"] if content.get("type") == "message_start" else content
        usage = message.get("usage")
        if not usage or not isinstance(usage, dict):
            return usage
        # What was read from a cache, or written to one, is counted beside the rest of the prompt.
        prompt = [usage.get(key) for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
        thought = details if isinstance(details := usage.get("output_tokens_details"), dict) else {}
        odd = [count for count in prompt if count is not None and not is_count(count)]
        return {
            "prompt_tokens": None if prompt[0] is None else odd[0] if odd else sum(count or 0 for count in prompt),
            # At its beginning a stream has counted no more than its first tokens.
            "completion_tokens": usage.get("output_tokens") if message is content else None,
            "prompt_tokens_details": {"cached_tokens": prompt[-1]},
            "completion_tokens_details": {"reasoning_tokens": thought.get("thinking_tokens")},
        }

    def whole(self, content: Mapping[str, Any]) -> bool:
        return content.get("type") == "message"

    def error(self, content: Mapping[str, Any]) -> Any:
        return error_of(content)

    def text(self, content: Mapping[str, Any]) -> str:
        return "".join(str(part.get("text") or "") for part in _parts(content))

    def message(self, contents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        message = super().message(contents)
        return message if message["content"] else {}  # Anthropic refuses an empty text

    def read(self, chunk: Any) -> Read:
        usage = self.usage(chunk)
        usage = usage if isinstance(usage, dict) else {}
        counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        return Read(self.text(chunk), _finish(chunk if self.whole(chunk) else chunk.get("delta") or {}), counts)


def _generated(part: Mapping[str, Any]) -> Generated:
    answered, thought = sum(size_of(part.get(key)) for key in _OUTPUT), size_of(part.get(_REASONING))
    return Generated(answered + thought, output=answered > 0, reasoning=thought)


def _finish(message: Mapping[str, Any]) -> str | None:
    """Such as `max_tokens`."""
    finish = message.get("stop_reason")
    if not isinstance(finish, str | None):
        raise TypeError("stop_reason is no text")
    return finish


def _parts(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = [content.get("delta"), content.get("content_block"), *(content.get("content") or ())]
    return [part for part in parts if isinstance(part, dict)]
