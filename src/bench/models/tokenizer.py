"""The tokenizer of synthetic checkpoints: a byte-level BPE without merges, in whatever file an engine reads it from."""

from __future__ import annotations

__all__ = ["CHAT_TEMPLATE", "FEWEST_TOKENS", "SPECIAL", "TOKEN_IDS", "tokens"]

SPECIAL = ("<s>", "</s>", "<pad>")
TOKEN_IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
FEWEST_TOKENS = 320  # 256 bytes, the special ones, and some to spare
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\n' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


def tokens(vocabulary: int) -> list[str]:
    """The `vocabulary` tokens by id: the special ones, one for each byte, and words that fill up.

    Any text is encoded, byte by byte, and every id decodes to text.
    """
    known = [*SPECIAL, *_byte_alphabet()]
    return known + [f"Ġt{i}" for i in range(len(known), vocabulary)]


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
