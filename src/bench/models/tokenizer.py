"""Tokenizers: which ids a prompt may be made of, and the tokenizer of synthetic checkpoints, a byte-level BPE without merges.

Every token but the special ones is text that can be seen. Servers hold back a token that ends within a character of UTF-8, and
clients that take the first text for the first token would measure times that are too long; so no token stands for part of one.
"""

from __future__ import annotations

import json
from pathlib import Path

SPECIAL = ("<s>", "</s>", "<pad>")
# ids of the special tokens; derived: their places in `SPECIAL`
TOKEN_IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
FEWEST_TOKENS = 160  # smallest vocabulary: 128 characters, the special ones, and some to spare; convention
UNKNOWN = "?"  # for each byte above 127
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\n' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)

# share of a vocabulary's rows that are tokens, as published ones are padded; measured: of DeepSeek-LLM's 102,400 rows 100,015
# are tokens, of Llama 4's 202,048 201,135
_SAFE_SHARE = 0.5
_FIRST = 3  # first id that is no special token; derived
_FEWEST_IDS = 1000  # ids that prompts need to differ; convention


def ids_below(vocabulary: int | None, folder: Path | None) -> int | None:
    """The id below which all ids are tokens, so that a prompt can be made of any of them; None where nothing is known of the model.

    `vocab_size` counts rows of the embeddings, which are padded beyond the tokenizer: servers refuse ids there. What the tokenizer
    adds at the end, such as markers of turns and images, is left out too. Without a tokenizer's file it is half of the rows.

    Args:
        vocabulary: `vocab_size` of the config.json. folder: the checkpoint's, if it is here.
    """
    found = _in_tokenizer(folder) if folder is not None else None
    if found is not None:
        return found if vocabulary is None else min(found, vocabulary)
    return None if vocabulary is None else max(min(vocabulary, _FEWEST_IDS), int(vocabulary * _SAFE_SHARE))


def _in_tokenizer(folder: Path) -> int | None:
    """The first id from 3 that a `tokenizer.json` has no token for; None without such a file, or where it is of a kind not known."""
    try:
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        known = set(vocabulary.values()) if isinstance(vocabulary, dict) else set(range(len(vocabulary)))
        known |= {token["id"] for token in content.get("added_tokens") or () if token["id"] < max(known)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    first = _FIRST
    while first in known:
        first += 1
    return first if first > _FEWEST_IDS or first == len(known) else None


def tokens(vocabulary: int) -> list[str]:
    """The `vocabulary` tokens by id: the special ones, one for each character of ASCII, and words that fill up."""
    known = [*SPECIAL, *_ascii()]
    return known + [f"Ġt{i}" for i in range(len(known), vocabulary)]


def _ascii() -> list[str]:
    """The printable character that stands for each byte up to 127 in byte-level BPE (GPT-2's table)."""
    spare = iter(range(256, 512))
    return [chr(byte) if byte in range(33, 127) else chr(next(spare)) for byte in range(128)]
