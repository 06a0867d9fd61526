"""What one chunk of a streamed answer, or a whole answer, says: what was generated, how it ended, and the server's counts.

Every shape here is one that some server in the field sends; tests/test_answers_read.py has an example of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Generated", "Usage", "error_of", "generated"]

# Keys of a delta or a message that carry what the model generated. Some servers repeat reasoning under several of them.
_OUTPUT = ("content", "tool_calls", "function_call", "refusal", "audio")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
# Keys below them whose text was generated; ids, types and signatures were not, and what is encrypted has no length in tokens.
_TEXT = ("text", "content", "thinking", "reasoning", "summary", "function", "name", "arguments", "transcript", "refusal")
_THOUGHT = ("thinking", "reasoning")  # types of parts of a `content`
_FAILED = ("error", "abort")  # values of finish_reason that end an answer which is not whole


class Generated(NamedTuple):
    """What a chunk carries.

    Attributes:
        text: bytes of generated text (UTF-8). output: whether any of it is an answer. reasoning: bytes of it that are reasoning.
        silent: whether it may carry a token that spells nothing: its text is there, and empty.
        finish: why the answer ended, if it did. tokens: how many it says it carries; None where it does not. said: the text itself,
            where it is plain; empty in shapes that hold more than a text.
    """

    text: int = 0
    output: bool = False
    reasoning: int = 0
    silent: bool = False
    finish: str | None = None
    tokens: int | None = None
    said: str = ""

    @property
    def words(self) -> int:
        """How many words begin in it, each after a space; no token spans two."""
        return len(self.said.split()) - (not self.said[0].isspace()) if self.said else 0


_NOTHING = Generated()
_CONTENT = {"content"}


class Usage(NamedTuple):
    """The server's counts of tokens: in the prompt, in the completion, prompt tokens from the prefix cache, and completion tokens that
    are reasoning. None where it does not count them.
    """

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> Usage:
        """The counts of a `usage`.

        Raises:
            AttributeError, TypeError: it is not one.
        """
        prompt = _first(usage, "prompt_tokens", "input_tokens")
        completion = _first(usage, "completion_tokens", "output_tokens")
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        cached = _first(details, "cached_tokens")
        if cached is None:  # as DeepSeek and as Anthropic name it
            cached = _first(usage, "prompt_cache_hit_tokens", "cache_read_input_tokens")
        of_output = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
        reasoning = _first(of_output, "reasoning_tokens")
        if reasoning is None:  # as SGLang has it
            reasoning = _first(usage, "reasoning_tokens")
        total = _first(usage, "total_tokens")
        # xAI counts reasoning beside the completion, not in it.
        beside = None not in (prompt, completion, reasoning, total) and total == prompt + completion + reasoning  # type: ignore[operator]
        if reasoning and beside and completion is not None:
            completion += reasoning
        return cls(prompt, completion, cached, reasoning)

    def merged(self, newer: Usage) -> Usage:
        """These counts, updated by a later usage. What that lacks, or has as 0, is kept: some servers end with costs or zeros alone."""
        return Usage(*(old if not new and old is not None else new for old, new in zip(self, newer, strict=True)))


def _first(usage: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these counts that is there."""
    for key in keys:
        if (count := usage.get(key)) is not None:
            whole = isinstance(count, int) or (isinstance(count, float) and count.is_integer())
            if isinstance(count, bool) or not whole or count < 0:
                raise TypeError(f"{key} is not a whole number")
            return int(count)
    return None


def generated(content: Mapping[str, Any]) -> Generated:
    """What an object with `choices` carries; nothing where it has none.

    Raises:
        AttributeError, TypeError: it is not a chunk of an answer.
    """
    choices = content.get("choices")
    if not choices:
        return _NOTHING
    if not isinstance(choices, list):
        raise TypeError("choices is not a list")
    if len(choices) == 1:
        return _of_choice(choices[0])
    found = [_of_choice(choice) for choice in choices]
    counts = [each.tokens for each in found]
    return Generated(
        text=sum(each.text for each in found),
        output=any(each.output for each in found),
        reasoning=sum(each.reasoning for each in found),
        silent=any(each.silent for each in found),
        finish=next((each.finish for each in found if each.finish), None),
        tokens=None if None in counts else sum(count or 0 for count in counts),
    )


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
    thought = max(_size(said.get(key)) for key in _REASONING)
    answered = _size(text) + sum(_size(said.get(key)) for key in _OUTPUT)
    for part in said["content"] if isinstance(said.get("content"), list) else ():
        if part.get("type") in _THOUGHT:
            thought, answered = thought + _size(part), answered - _size(part)
    return Generated(
        text=answered + thought,
        output=answered > 0,
        reasoning=thought,
        silent=silent and not answered + thought,
        finish=finish,
        tokens=_counted(choice),
    )


def _counted(choice: Mapping[str, Any]) -> int | None:
    """How many tokens a choice lists: vLLM's `token_ids`, or log probabilities."""
    logprobs = choice.get("logprobs") or {}
    if not logprobs and "token_ids" not in choice:
        return None
    for listed in (choice.get("token_ids"), logprobs.get("content"), logprobs.get("tokens")):
        if isinstance(listed, list) and listed:
            return len(listed)
    return None


def _size(value: Any) -> int:
    """Bytes of the generated text in a value, whether it is text, an object that holds text, or a list of either.

    Raises:
        TypeError: it is anything else.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, list):
        return sum(_size(each) for each in value)
    if isinstance(value, dict):
        return sum(_size(value.get(key)) for key in _TEXT)
    raise TypeError(f"generated text is a {type(value).__name__}")


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
    """What the first choice that failed says of it; None where none failed."""
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
