"""/v1/completions and /v1/chat/completions, whose answers have `choices`.

Every shape here is one that some server in the field sends; tests/load/test_answers_read.py has an example of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.workloads.endpoints.kind import Endpoint, Generated, Prompt, dialogue, size_of

# Keys of a delta or a message that carry what the model generated. Some servers repeat reasoning under several of them.
_OUTPUT = ("content", "tool_calls", "function_call", "refusal", "audio")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
_THOUGHT = ("thinking", "reasoning")  # types of parts of a `content`
_NOTHING = Generated()
_CONTENT = {"content"}


class Choices(Endpoint):
    """An endpoint whose answers have `choices`."""

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

    def text(self, content: Mapping[str, Any]) -> str:
        choices = content.get("choices") or ()
        said = ((choice, choice.get("delta") or choice.get("message")) for choice in choices)
        parts = (each.get("content") if each else choice.get("text") for choice, each in said)
        return "".join(part for part in parts if isinstance(part, str))


class Completions(Choices):
    """Prompts as token ids, so that lengths are exact."""

    name = "completions"
    meaning = "prompts as token ids, to /v1/completions"
    path = call = "completions"
    keys = ("prompt",)
    reasons = False
    kinds = ("text",)


class Chat(Choices):
    """One user message a request, or the messages of a chat."""

    name = "chat"
    meaning = "prompts as text, to /v1/chat/completions"
    path = "chat/completions"
    call = "chat.completions"
    keys = ("messages",)
    lacks = ("token_ids",)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        body["messages"] = dialogue([prompt]) if isinstance(prompt, str) else prompt


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
