"""The tokenizer of synthetic checkpoints: a byte-level BPE without merges, in whatever file an engine reads it from.

Every token but the special ones is text that can be seen. Servers hold back a token that ends within a character of UTF-8, and
clients that take the first text for the first token would measure times that are too long; so no token stands for part of one.
"""

from __future__ import annotations

__all__ = ["CHAT_TEMPLATE", "FEWEST_TOKENS", "SPECIAL", "TOKEN_IDS", "UNKNOWN", "tokens"]

SPECIAL = ("<s>", "</s>", "<pad>")
TOKEN_IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
FEWEST_TOKENS = 160  # 128 characters, the special ones, and some to spare
UNKNOWN = "?"  # for each byte above 127
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\n' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


def tokens(vocabulary: int) -> list[str]:
    """The `vocabulary` tokens by id: the special ones, one for each character of ASCII, and words that fill up."""
    known = [*SPECIAL, *_ascii()]
    return known + [f"Ġt{i}" for i in range(len(known), vocabulary)]


def _ascii() -> list[str]:
    """The printable character that stands for each byte up to 127 in byte-level BPE (GPT-2's table)."""
    spare = iter(range(256, 512))
    return [chr(byte) if byte in range(33, 127) else chr(next(spare)) for byte in range(128)]
