"""What tokens a server makes of a text, as its own `/tokenize` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import requests

from bench.errors import BenchError
from bench.http import post, problem
from bench.load.target import Target

# characters of a question: servers refuse a text beyond the model's context; convention
_PIECE = 2048
_SMALLEST = 16  # characters of a piece that is not halved again where the server refuses it; convention
_KNOWN: dict[tuple[str, str, str], list[int]] = {}


def tokenized(target: Target, text: str) -> list[int]:
    """Ids of the tokens of `text`, asked for in pieces, without any that the server would add; asked once for each text.

    Raises:
        BenchError: the server does not say.
    """
    asked = (target.base_url, target.model, text)
    if asked not in _KNOWN:
        pieces = (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
        _KNOWN[asked] = [each for piece in pieces for each in _ids(target, piece)]
    return _KNOWN[asked]


def _ids(target: Target, piece: str) -> Iterator[int]:
    # One body for all servers: vLLM, SGLang and Aphrodite read `prompt`, llama.cpp `content`, TGI `inputs`.
    content: dict[str, Any] = {"model": target.model, "prompt": piece, "content": piece, "inputs": piece}
    content |= {"add_special_tokens": False, "add_special": False}
    url = f"{target.base_url}/tokenize"
    try:
        answer = post(url, content, key=target.key, headers=target.headers)
    except OSError as error:
        raise BenchError(f"{url} does not answer: {problem(error)}.") from None
    found = _listed(answer) if answer.ok else None
    if found is not None:
        yield from found
    elif answer.status_code == requests.codes.bad_request and len(piece) > _SMALLEST:
        half = len(piece) // 2
        yield from _ids(target, piece[:half])
        yield from _ids(target, piece[half:])
    else:
        said = target.without_secrets(answer.text)[:200]
        raise BenchError(
            f"{url} says no tokens of a text ({answer.status_code}: {said}). Pieces of a text need a server with /tokenize, such as "
            "vLLM or llama.cpp; prompts of a file need none."
        )


def _listed(answer: requests.Response) -> list[int] | None:
    try:
        content = answer.json()
    except ValueError:
        return None
    tokens = content.get("tokens") if isinstance(content, dict) else content
    if not isinstance(tokens, list):
        return None
    ids = [each.get("id") if isinstance(each, dict) else each for each in tokens]
    whole = [each for each in ids if isinstance(each, int)]
    return whole if len(whole) == len(ids) else None
