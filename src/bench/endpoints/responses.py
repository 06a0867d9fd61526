"""/v1/responses: OpenAI's newer interface, whose stream is a sequence of typed events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.endpoints.choices import error_of
from bench.endpoints.kind import Endpoint, Generated, Prompt, Read, size_of
from bench.records.form import RequestForm

if TYPE_CHECKING:
    import openai

__all__ = ["Responses"]

# Types of events that carry what the model generated, in `delta`. Those that end in `.done` repeat all of it.
_OUTPUT = (
    "response.output_text.delta",
    "response.refusal.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
)
_REASONING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_NOTHING = Generated()


class Responses(Endpoint):
    """Responses. Nothing of a request is stored by the server (`store: false`)."""

    name = "responses"
    meaning = "prompts as text, to /v1/responses, with lengths as for `chat`"
    path = "responses"
    limits = ("max_output_tokens",)
    lacks = ("token_ids", "stream_options", "max_tokens")
    endings = ("response.completed", "response.incomplete")

    def options(self, form: RequestForm, prompt: Prompt, output: int, *, stream: bool) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": stream, "max_output_tokens": output, "store": False}
        if form.sends("temperature"):
            options["temperature"] = 0
        if form.sends("ignore_eos"):
            options["extra_body"] = {"ignore_eos": True}
        self.put(options, prompt)
        return options

    def created(self, sdk: openai.OpenAI, model: str, options: Mapping[str, Any]) -> Any:
        return sdk.responses.create(model=model, **options)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        body["input"] = prompt

    def generated(self, content: Mapping[str, Any]) -> Generated:
        kind = content.get("type")
        if kind in _OUTPUT:
            delta = content["delta"]
            return Generated(size_of(delta), output=bool(delta), silent=not delta, said=delta if isinstance(delta, str) else "")
        if kind in _REASONING:
            length = size_of(content["delta"])
            return Generated(length, reasoning=length)
        if kind in self.endings:
            return Generated(finish=_finish(content["response"]))
        if content.get("object") == "response":
            text = len(self.text(content).encode("utf-8", "replace"))
            return Generated(text, output=text > 0, finish=_finish(content))
        return _NOTHING

    def usage(self, content: Mapping[str, Any]) -> Any:
        whole = content["response"] if content.get("type") in self.endings else content
        return whole.get("usage")

    def whole(self, content: Mapping[str, Any]) -> bool:
        return content.get("object") == "response"

    def error(self, content: Mapping[str, Any]) -> Any:
        response = content.get("response")
        if content.get("type") == "response.failed" and isinstance(response, dict):
            return response.get("error") or "response.failed"
        if content.get("type") == "error":
            return content.get("message") or content.get("error") or "error"
        return error_of(content)

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


def _finish(response: Mapping[str, Any]) -> str | None:
    """Why it ended: what cut it off, such as `max_output_tokens`, or else its status."""
    return (response.get("incomplete_details") or {}).get("reason") or response.get("status")


def _parts(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of a whole answer's output."""
    return [part for item in response.get("output") or () for part in item.get("content") or ()]
