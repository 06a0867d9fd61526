"""/v1/responses: OpenAI's newer interface, whose stream is a sequence of typed events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from bench.workloads.endpoints.choices import error_of
from bench.workloads.endpoints.kind import Endpoint, Generated, Prompt, Read, size_of

if TYPE_CHECKING:
    import openai

# Events with a `delta` carry what the model generated: an answer, a call of a tool, or reasoning. Those that end in `.done` repeat it.
_DELTA, _THOUGHT, _NOT_TEXT = ".delta", "reasoning", "audio"
_BEGUN = "response.output_item.added"  # has the name of the tool that is called
_ENDED, _FAILED = ("completed", "incomplete"), ("response.failed", "response.cancelled")
_NOTHING = Generated()


class Responses(Endpoint):
    """Responses. Nothing of a request is stored by the server (`store: false`)."""

    name = "responses"
    meaning = "prompts as text, to /v1/responses"
    path = "responses"
    keys = ("input",)
    always: ClassVar[Mapping[str, Any]] = {"store": False}
    limits = ("max_output_tokens",)
    lacks = ("token_ids", "stream_options", "max_tokens")
    fewest_output = 16  # OpenAI refuses fewer
    endings = ("response.completed", "response.incomplete")
    cuts = ("max_output_tokens",)
    hides_cuts = ("completed",)  # llama.cpp's

    def created(self, sdk: openai.OpenAI, model: str, options: Mapping[str, Any]) -> Any:
        return sdk.responses.create(model=model, **options)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        body["input"] = prompt

    def generated(self, content: Mapping[str, Any]) -> Generated:
        kind = str(content.get("type"))
        if kind.endswith(_DELTA) and _NOT_TEXT not in kind:
            delta = content.get("delta")
            if not isinstance(delta, str):
                raise TypeError("a delta is not a text")
            thought = _THOUGHT in kind
            return Generated(
                size_of(delta), bool(delta) and not thought, size_of(delta) if thought else 0, silent=not delta, said=delta
            )
        if kind == _BEGUN:
            name = size_of(content["item"].get("name"))
            return Generated(name, output=name > 0)
        if kind in self.endings:
            return Generated(finish=_finish(_response(content)))
        if self.whole(content):
            text = size_of(self.text(content))
            return Generated(text, output=text > 0, finish=_finish(content))
        return _NOTHING

    def usage(self, content: Mapping[str, Any]) -> Any:
        return (_response(content) if content.get("type") in self.endings else content).get("usage")

    def whole(self, content: Mapping[str, Any]) -> bool:
        return content.get("object") == "response"

    def error(self, content: Mapping[str, Any]) -> Any:
        if content.get("type") in _FAILED:
            response = content.get("response")
            return (isinstance(response, dict) and response.get("error")) or content["type"]
        if content.get("type") == "error":
            return content.get("message") or content.get("error") or "error"
        if (error := error_of(content)) is None and self.whole(content) and content.get("status", "completed") not in _ENDED:
            return f"the server ended the answer with status {content['status']}"
        return error

    def text(self, content: Mapping[str, Any]) -> str:
        if content.get("type") == "response.output_text.delta":
            return str(content.get("delta") or "")
        return "".join(str(part.get("text") or "") for part in _parts(content) if part.get("type") == "output_text")

    def read(self, chunk: Any) -> Read:
        if getattr(chunk, "object", None) != "response" and chunk.type not in self.endings:
            return Read(chunk.delta if chunk.type == "response.output_text.delta" else "")
        whole = chunk if getattr(chunk, "object", None) == "response" else chunk.response
        cut = whole.incomplete_details
        counts = None if whole.usage is None else (whole.usage.input_tokens, whole.usage.output_tokens)
        return Read(whole.output_text if whole is chunk else "", (cut and cut.reason) or whole.status, counts)


def _response(content: Mapping[str, Any]) -> Mapping[str, Any]:
    response = content.get("response")
    if not isinstance(response, dict):
        raise TypeError("the last event has no response")
    return response


def _finish(response: Mapping[str, Any]) -> str | None:
    """Why it ended: what cut it off, such as `max_output_tokens`, or else its status."""
    return (response.get("incomplete_details") or {}).get("reason") or response.get("status")


def _parts(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for item in response.get("output") or () for part in item.get("content") or ()]
