"""What the endpoints whose answers have `choices` share: completions and chats.

Every shape here is one that some server in the field sends; tests/load/test_answers_read.py has an example of each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from bench.runs.request import RequestForm
from bench.workloads.endpoints.kind import Endpoint, Generated, Prompt, Read, size_of

# Keys of a delta or a message that carry what the model generated. Some servers repeat reasoning under several of them.
_OUTPUT = ("content", "tool_calls", "function_call", "refusal", "audio")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
_THOUGHT = ("thinking", "reasoning")  # types of parts of a `content`
_FAILED = ("error", "abort")  # values of finish_reason that end an answer which is not whole
_NOTHING = Generated()
_CONTENT = {"content"}


class Choices(Endpoint):
    """An endpoint whose answers have `choices`."""

    def options(self, form: RequestForm, prompt: Prompt, output: int, **more: Any) -> dict[str, Any]:
        options = super().options(form, prompt, output, **more)
        if more["stream"] and form.sends("stream_options"):
            options["stream_options"] = {"include_usage": True}
        return options

    def generated(self, content: Mapping[str, Any]) -> Generated:
        choices = content.get("choices")
        if not choices:
            return _NOTHING
        if not isinstance(choices, list):
            raise TypeError("choices is not a list")
        return _of_choice(choices[0])  # a request asks for one

    def usage(self, content: Mapping[str, Any]) -> Any:
        groq = content.get("x_groq")
        return content.get("usage") or (groq.get("usage") if isinstance(groq, dict) else None)

    def whole(self, content: Mapping[str, Any]) -> bool:
        return bool(content.get("choices"))

    def error(self, content: Mapping[str, Any]) -> Any:
        return error_of(content)

    def text(self, content: Mapping[str, Any]) -> str:
        parts = (self.text_of(choice) for choice in content.get("choices") or ())
        return "".join(part for part in parts if isinstance(part, str))

    @abstractmethod
    def text_of(self, choice: Mapping[str, Any]) -> Any:
        """A choice's text, without reasoning."""

    def read(self, chunk: Any) -> Read:
        text, finish = "", None
        for choice in getattr(chunk, "choices", None) or ():
            said = getattr(choice, "delta", None) or getattr(choice, "message", None)
            part = getattr(said, "content", None) if said is not None else getattr(choice, "text", None)
            text += part if isinstance(part, str) else ""
            finish = getattr(choice, "finish_reason", None) or finish
        usage = getattr(chunk, "usage", None)
        counts = (getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))
        return Read(text, finish, None if usage is None else counts)


def _of_choice(choice: Mapping[str, Any]) -> Generated:
    finish = choice.get("finish_reason")
    if finish is not None and not isinstance(finish, str):
        finish = str(finish.get("type"))  # SGLang's own form
    # A server that does not stream puts a whole message where a delta belongs.
    said = choice.get("delta") or choice.get("message") or {}
    text = choice.get("text") if not said else said.get("content") if said.keys() == _CONTENT else None
    if isinstance(text, str) and text:  # nearly every chunk
        return Generated(len(text.encode("utf-8", "replace")), True, 0, False, finish, _counted(choice), text)
    text = choice.get("text")
    # The role comes ahead of the first token.
    silent = text == "" or (said.get("content") == "" and "role" not in said)
    reasoning = max((said.get(key) for key in _REASONING), key=size_of)
    thought = size_of(reasoning)
    answered = size_of(text) + sum(size_of(said.get(key)) for key in _OUTPUT)
    for part in said["content"] if isinstance(said.get("content"), list) else ():
        if part.get("type") in _THOUGHT:
            thought, answered = thought + size_of(part), answered - size_of(part)
    return Generated(
        text=answered + thought,
        output=answered > 0,
        reasoning=thought,
        silent=silent and not answered + thought,
        finish=finish,
        tokens=_counted(choice),
        said="".join(part for part in (reasoning, text or said.get("content")) if isinstance(part, str)),
    )


def _counted(choice: Mapping[str, Any]) -> int | None:
    """How many tokens a choice lists: vLLM's `token_ids`, or log probabilities."""
    logprobs, ids = choice.get("logprobs"), choice.get("token_ids")
    if not logprobs and not ids:
        return None
    logprobs = logprobs or {}
    for listed in (ids, logprobs.get("content"), logprobs.get("tokens")):
        if isinstance(listed, list) and listed:
            return len(listed)
    return None


def error_of(content: Mapping[str, Any]) -> Any:
    """What an object says went wrong; None where nothing did."""
    if content.get("error"):
        return content["error"]
    if content.get("choices"):
        return _failure(content["choices"])
    # Older vLLM, FastAPI and DashScope report an error as the object itself.
    if "choices" in content or "usage" in content:
        return None
    coded = "code" in content and isinstance(content.get("message"), str)
    return content if coded or content.get("object") == "error" or content.get("detail") else None


def _failure(choices: Any) -> Any:
    for choice in choices if isinstance(choices, list) else ():
        finish = choice.get("finish_reason") if isinstance(choice, dict) else None
        if finish is None and not (isinstance(choice, dict) and choice.get("error")):
            continue
        if choice.get("error"):
            return choice["error"]
        if finish in _FAILED:
            return f"the server ended the answer with finish_reason {finish}"
        if isinstance(finish, dict) and finish.get("type") in _FAILED:
            return finish
    return None
